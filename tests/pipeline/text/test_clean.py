"""Cleaning gives one form to texts that look alike, and changes nothing the tokenizer sees."""

import csv
import io
import re
import unicodedata

import pytest
import sentencex
from hypothesis import given
from hypothesis import strategies as st
from tokenizers.normalizers import BertNormalizer

from pipeline.text import sentences
from pipeline.text.clean import clean
from pipeline.text.sentences import LONGEST, LONGEST_RUN, split_sentences
from pipeline.text.tables import tsv_rows

ANYTHING = st.text(st.characters() | st.sampled_from(" \t\n\r\u00a0\u3000\u200b\u2028\ufeffae\u0301"))


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [
        ("one\r\ntwo\rthree\n\n\nfour", "one\ntwo\nthree\nfour"),
        ("a\u00a0b\u3000c\td", "a b c d"),
        ("  wide   gaps \n and\t\n \nlines  ", "wide gaps\nand\nlines"),
        ("soft\u00adhyphen zero\u200bwidth \ufeffmark nul\x00", "softhyphen zerowidth mark nul"),
        ("half \ud800 pair", "half pair"),
        ("page one\fpage two\x85next", "page one\npage two\nnext"),
        ("Ã© stays, e\u0301 and e\u200b\u0301 are composed, ﬁ stays", "Ã© stays, é and é are composed, ﬁ stays"),
        (" \n\t ", ""),
    ],
)
def test_texts_that_look_alike_become_equal(raw, wanted):
    assert clean(raw) == wanted


@given(ANYTHING)
def test_what_is_left_is_plain_and_stays_so(text):
    cleaned = clean(text)
    assert clean(cleaned) == cleaned
    kinds = {unicodedata.category(char) for char in cleaned if char not in " \n"}
    assert not kinds & {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}
    assert not re.search(r"^ | $|  |\n\n|^\n|\n$", cleaned, re.MULTILINE)


@given(ANYTHING, st.booleans())
def test_the_tokenizer_sees_the_same_words(text, lowercase):
    text = re.sub("[\v\f\x1c-\x1e\x85\ud800-\udfff]", "", text)
    normalizer = BertNormalizer(lowercase=lowercase)

    def words(text):
        return unicodedata.normalize("NFC", str(normalizer.normalize_str(text))).split()

    assert words(clean(text)) == words(text)


# TSV is read in the dialect in which it was written.


QUOTED = [["text", "label"], ['She said "yes".', "1"], ["two\nlines\tand a tab", "0"], ['"', "1"], ["plain", "0"]]
QUOTED += [["", "1"], ["long " * 30_000 + '"end"', "0"]]


@pytest.mark.parametrize("quoting", [csv.QUOTE_MINIMAL, csv.QUOTE_ALL, csv.QUOTE_NONNUMERIC])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("rows", [QUOTED, [QUOTED[0], ["a", "1"]]])
def test_what_a_writer_of_csv_wrote_is_read_as_written(quoting, end, rows):
    file = io.StringIO(newline="")
    csv.writer(file, delimiter="\t", quoting=quoting, lineterminator=end).writerows(rows)
    assert [row for _, row in tsv_rows("a.tsv", file.getvalue())] == rows


@given(st.lists(st.text('a" ', min_size=1, max_size=6), min_size=1))
def test_one_field_that_no_writer_of_csv_wrote_makes_all_quotation_marks_text(texts):
    rows = [[text, "1"] for text in [*texts, 'a "b" c']]
    found = tsv_rows("a.tsv", "\n".join(map("\t".join, rows)))
    assert found == list(enumerate(rows, 1))


@given(st.lists(st.tuples(*[st.text('a"', max_size=4)] * 2), min_size=1), st.sampled_from(["", "\r"]))
def test_rows_of_one_width_without_doubled_marks_are_lines(texts, end):
    """As in GLUE, where a mark at the beginning of a field may be closed at the end of one rows later."""
    rows = [["index", "a", "b"], *([str(number), *pair] for number, pair in enumerate(texts))]
    if not any('""' in field for row in rows for field in row):
        found = tsv_rows("a.tsv", f"{end}\n".join(map("\t".join, rows)))
        assert [row for _, row in found] == rows


# Sentences: nothing is lost, nothing is empty, nothing reaches over a line's end.


TEXTS = st.text(st.sampled_from("ab A.!?。！\"“”'()«0 é中…:;\n") | st.characters())


@pytest.mark.parametrize(
    ("language", "text", "wanted"),
    [
        ("en", "Dr. Smith came. He left!", ["Dr. Smith came.", "He left!"]),
        ("en", "It cost 3.5 million. Why?", ["It cost 3.5 million.", "Why?"]),
        ("en", "A heading\nA paragraph. Its end.", ["A heading", "A paragraph.", "Its end."]),
        ("zh", "他走了。真的嗎？是的！", ["他走了。", "真的嗎？", "是的！"]),
        ("ja", "行った。本当？", ["行った。", "本当？"]),
        ("hi", "वह गया। सच?", ["वह गया।", "सच?"]),
        ("tlh", "One. Two.", ["One.", "Two."]),
        ("km", "គាត់ទៅ។ខ្ញុំទៅ៕ ឆ្មា។ល។ ឆ្កែ។", ["គាត់ទៅ។", "ខ្ញុំទៅ៕", "ឆ្មា។ល។", "ឆ្កែ។"]),
        ("bo", "ང་འགྲོ། །ཁོང་སླེབས༎ གཉིས།", ["ང་འགྲོ། །", "ཁོང་སླེབས༎", "གཉིས།"]),
        ("dz", "«ང་འགྲོ།» ཁོང་།", ["«ང་འགྲོ།»", "ཁོང་།"]),
        ("en", "It rained.) It stopped.\n) A line.", ["It rained.)", "It stopped.", ") A line."]),
        ("zh", "他走了。）」她留下了。", ["他走了。）」", "她留下了。"]),
        ("en", "", []),
        ("bo", "བོད་ཡིག་འདི་ཡིན། གནམ་བཟང་། །", ["བོད་ཡིག་འདི་ཡིན།", "གནམ་བཟང་། །"]),
        ("am", "አዎ፡፡ ደህና።", ["አዎ፡፡", "ደህና።"]),
    ],
)
def test_sentences_end_where_a_reader_ends_them(language, text, wanted):
    assert split_sentences(text, language) == wanted


@given(TEXTS, st.sampled_from(["en", "zh", "de", "ar"]))
def test_no_letter_is_lost(text, language):
    text = clean(text)
    found = split_sentences(text, language)
    assert "".join("".join(found).split()) == "".join(text.split())
    assert all(sentence and sentence == sentence.strip() for sentence in found)


@given(st.lists(TEXTS, max_size=4))
def test_lines_are_split_one_by_one(texts):
    lines = clean("\n".join(texts)).split("\n")
    assert split_sentences("\n".join(lines), "en") == [s for line in lines for s in split_sentences(line, "en")]


@pytest.mark.parametrize(("letters", "ends"), [("word " * 2000, "d"), ("好" * 50 + "，", "，"), ("x", "x")])
def test_endless_sentences_are_cut_where_it_hurts_least(letters, ends):
    text = (letters * 9000)[:9000].strip()
    found = split_sentences(text, "en")
    assert all(len(piece) <= LONGEST and piece.endswith(ends) for piece in found[:-1])
    assert "".join("".join(found).split()) == "".join(text.split())


def test_a_failure_of_the_library_costs_one_line_only():
    broken = "A\u3000."  # not clean: version 1.0.32 slices inside U+3000 here
    assert split_sentences(f"One. Two.\n{broken}\nThree.", "en") == ["One.", "Two.", broken, "Three."]


@pytest.fixture
def seen(monkeypatch):
    """The lines that the library gets."""
    lines = []

    def segment(language, text):
        lines.extend(text.split("\n"))
        return sentencex.segment(language, text)

    monkeypatch.setattr(sentences, "segment", segment)
    return lines


@pytest.mark.parametrize(
    ("language", "sentence"), [("zh", "今天天气很好。"), ("ja", "「行った！」"), ("zh", "今天好!"), ("my", "ကခ။")]
)
def test_the_library_gets_no_endless_run_of_sentences(language, sentence, seen):
    number = 4 * LONGEST_RUN // len(sentence)
    text = f"One. {sentence * number}\nTwo. Three."
    wanted = ["One.", *[sentence] * number, "Two.", "Three."]
    assert split_sentences(text, language) == wanted
    assert max(map(len, seen)) <= LONGEST_RUN + len(f"One. {sentence}")


@pytest.mark.slow
@pytest.mark.parametrize("sentence", ["»Hej.» sa han till mig.", "„Hallo.” mondta ma neki.", "‚Hallo.‘ sagte er.", "«"])
def test_the_library_gets_no_long_line_of_quotations_that_do_not_end(sentence, seen):
    """It would look for their ends to the end of the line, from each of them."""
    text = " ".join([sentence] * (800_000 // len(sentence)))
    found = split_sentences(text, "de")
    assert max(map(len, seen)) <= LONGEST_RUN + 1  # a space
    assert "".join("".join(found).split()) == "".join(text.split())


LONG = {"今天天气很好。": 1400, "„Ja.“ ": 20_000}
LONG |= dict.fromkeys(("今天天气很好。 ", "He left. ", "x.y!", "今天"), 9000)


@pytest.mark.parametrize(("part", "times"), LONG.items())
def test_other_long_lines_reach_the_library_as_they_are(part, times, monkeypatch):
    seen, text = [], part * times
    monkeypatch.setattr(sentences, "segment", lambda _, text: seen.append(text) or [text])
    split_sentences(text.strip(), "zh")
    assert seen == [text.strip()]


@given(st.lists(st.sampled_from(["今天", "好。", "！”", "“", "?", "x", " ", "\n"]), max_size=40))
def test_breaking_a_run_loses_no_letter(parts):
    text = clean("".join(part * 999 for part in parts))
    found = split_sentences(text, "zh")
    assert "".join("".join(found).split()) == "".join(text.split())
