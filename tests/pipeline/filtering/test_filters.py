"""Each filter takes what it should; the account says how many, and why."""

import bz2
import gzip
import itertools
import json
import lzma
import re
import unicodedata
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline import prepare
from pipeline.config import CorpusConfig, FiltersConfig
from pipeline.errors import ConfigError, InputError
from pipeline.filtering import filters, ngrams
from pipeline.shards import holdout
from pipeline.stages import fingerprints
from pipeline.text import clean
from tests.support.preparing import settings, vocabulary
from tests.support.refusals import refused

TOWN = "river mill road rain roof town letter supper clock hall apple bread market"
WORDS = TOWN.split()


def story(seed, words=40):
    """A text that shares few runs of words with those of other seeds."""
    drawn = np.random.default_rng(seed).choice(WORDS, words)
    return " ".join(drawn) + f" {seed}."


def test_tagged_sentences_are_found_without_their_tags(tmp_path):
    words = story(1).split()
    lines = [f"{word}\tO" for word in words[:20]] + ["", "short\tB-person", ""]
    (tmp_path / "dev.conll").write_text("\n".join(lines))
    for place in (tmp_path, tmp_path / "dev.conll"):
        (taken,) = filters.build(FiltersConfig(decontaminate=[str(place)]))
        assert taken.check(" ".join(words))
        assert not taken.check(story(2))


@pytest.mark.parametrize(
    ("text", "share"), [("abc def", 0), ("12 34", 1), ("a1 b2", 0.5), ("हिन्दी", 0), ("北京", 0), ("…", 1), ("", 1)]
)
def test_letters_and_their_marks_are_letters(text, share):
    assert filters.non_letter_share(text) == share


def test_patterns_are_found_on_any_line(tmp_path):
    (tmp_path / "p.txt").write_text("# comment\n\n^DRAFT\n")
    (banned,) = filters.build(FiltersConfig(banned=["(?i)lorem ipsum"], banned_file=str(tmp_path / "p.txt")))
    assert banned.check("Then Lorem Ipsum.")
    assert banned.check("One\nDRAFT two")
    assert not banned.check("A DRAFT # comment")
    with refused(ConfigError, r"'\('", key="filters.banned"):
        filters.build(FiltersConfig(banned=["("]))
    (tmp_path / "p.txt").write_text("# comment\n[\n")
    with refused(ConfigError, r"'\['", path=str(tmp_path / "p.txt"), line=2):
        filters.build(FiltersConfig(banned_file=str(tmp_path / "p.txt")))


@pytest.mark.parametrize("name", ["dev.jsonl", "dev.tsv"])
def test_an_evaluation_text_may_hold_any_separator_but_a_line_feed(tmp_path, name):
    text = "one line\u2028and the same\x85still"
    line = json.dumps({"text": text}, ensure_ascii=False) if name.endswith("jsonl") else text
    (tmp_path / name).write_bytes(f"{line}\r\n".encode())
    assert text in list(filters.evaluation_texts(tmp_path / name))


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("क्षेत्र की राजधानी", ["क्षेत्र", "की", "राजधानी"]),
        ("தமிழ் மொழி", ["தமிழ்", "மொழி"]),
        ("בְּרֵאשִׁית בָּרָא", ["בְּרֵאשִׁית", "בָּרָא"]),
        ("İzmir’de x̌ast", ["i̇zmir", "de", "x̌ast"]),
        ("東京がx_y2", ["東", "京", "が", "x", "y2"]),
        ("ภาษาไทยดีมาก", ["ภาษาไทยดี", "มาก"]),
        ("\u0301 a \u0301", ["a"]),
    ],
)
def test_marks_belong_to_their_words(text, wanted):
    assert ngrams.words(text) == [unicodedata.normalize("NFC", word) for word in wanted]
    for form in ("NFC", "NFD"):
        assert ngrams.words(unicodedata.normalize(form, text)) == ngrams.words(text)


@given(st.text("aΩ9中か_ .\u0301\u0942\u093e\u0e01\u0e35\u0e48\u0e33\u17b6\u05b0", max_size=12))
def test_words_are_what_their_grammar_says(text):
    """Of letters, with marks on and between them; vowels of Thai and Khmer end a word."""
    letters, marks, last = r"[^\W_\u3040-\u9fff]+", "[\u0301\u0942\u093e\u05b0]+", "[\u0e35\u0e48\u17b6]*"
    text = unicodedata.normalize("NFC", text.lower())
    grammar = rf"[\u3040-\u9fff]|{letters}(?:{marks}(?:{letters})?)*{last}"
    assert ngrams.words(text) == re.findall(grammar, text)


def test_no_letter_and_no_mark_is_left_out():
    """The table of kinds reads ranges of code points only, as all are many."""
    for code in range(0x110000):
        char = chr(code)
        if char.isalnum() or (unicodedata.category(char) in ("Mn", "Mc") and code < 0xE0000):
            assert ngrams._kinds()[code] != ngrams.SEPARATOR, hex(code)


@given(st.text("aΣσ\u0301中\n .ก็", max_size=40), st.integers(1, 9))
def test_a_long_text_has_the_words_of_its_lines(text, block):
    """A text is read in blocks, so that its words are never in memory at once."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ngrams, "BLOCK", block)
        found = ngrams.numbers_of([text, text])
    assert [list(each) for each in found] == 2 * [[number(word) for word in ngrams.words(text)]]


def number(word):
    return ngrams.numbers_of([word])[0][0]


def test_words_have_different_numbers():
    found = ngrams.numbers_of([" ".join(map("".join, itertools.product("abc", repeat=9)))])[0]
    assert len(set(found.tolist())) == 3**9


@given(st.lists(st.sampled_from("abc"), max_size=30), st.integers(1, 6))
def test_ngrams_are_equal_where_their_words_are(words, n):
    grams = [tuple(words[k : k + n]) for k in range(len(words) - n + 1)]
    hashes = ngrams.hashes(ngrams.numbers_of([" ".join(words)])[0], n).tolist()
    assert len(hashes) == len(grams)
    for (a, left), (b, right) in itertools.combinations(zip(grams, hashes, strict=True), 2):
        assert (a == b) == (left == right)


EVALUATION = {
    "QNLI/dev.tsv": 'index\tquestion\tlabel\n0\tWho "said that the river was old?\tno\n',
    "a/dev.jsonl": "\x1e" + json.dumps({"x": ["y", {"z": "她说那条河很老了"}]}) + "\n",  # RFC 7464
    "b/dev.tsv": 'question\tlabel\n"Is it ""near\na quiet\tgreen"" valley?"\tno\n',
    "a/train.tsv": "to learn from this is fair play\n",
}


def evaluation(folder):
    for name, text in EVALUATION.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def test_documents_with_a_passage_of_an_evaluation_file_are_found(tmp_path):
    config = FiltersConfig(decontaminate=[str(evaluation(tmp_path))], ngram=5)
    (taken,) = filters.build(config)
    texts = ["He said: that -- The RIVER was here.", "然后她说那条河。"]  # case and marks apart
    texts.append("It was near a quiet green valley.")  # over two lines of a quoted field
    found = [drop for text in texts if (drop := taken.check(text))]
    assert not taken.check("He said that the mill was old.")
    assert not taken.check("To learn from this is fair play.")  # of training data
    assert {drop.file for drop in found} == {str(tmp_path / name) for name in EVALUATION if "dev" in name}
    assert found[0].passage == "said that the river was"
    with refused(InputError, key="filters.decontaminate", value=str(tmp_path / "nowhere")):
        filters.build(FiltersConfig(decontaminate=[str(tmp_path / "nowhere")]))


@pytest.mark.parametrize("mark", ["\u200c", "\u200b", "\u00ad", "\x01"])
def test_invisible_characters_hide_no_passage(tmp_path, mark):
    passage = f"the ri{mark}ver be{mark}hind our old mill"
    (tmp_path / "dev.tsv").write_text(f"{passage}\n")
    (taken,) = filters.build(FiltersConfig(decontaminate=[str(tmp_path)], ngram=6))
    assert taken.check(clean.clean(f"She saw {passage}."))
    assert not taken.check(clean.clean(f"She saw {passage[5:]}."))


@pytest.mark.parametrize(("name", "pack"), [("dev.tsv.gz", gzip.compress), ("dev.TSV.bz2", bz2.compress)])
def test_compressed_evaluation_files_are_read(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(EVALUATION["QNLI/dev.tsv"].encode()))
    for place in (tmp_path / name, tmp_path):
        (taken,) = filters.build(FiltersConfig(decontaminate=[str(place)], ngram=5))
        assert taken.check("He said that the river was here.")
        assert not taken.check("He said that the mill was old.")


NO_TEXT = {"dev.tsv": bytes(range(256)) * 9, "dev.parquet": b"PAR1" + bytes(range(32)) * 9, "dev.tsv.gz": b""}
NO_TEXT |= {"dev.zip": b"PK\x03\x04" + bytes(99), "dev.tsv.xz": lzma.compress(b"a text of a few words")[:-9]}


@pytest.mark.parametrize("name", NO_TEXT)
def test_an_evaluation_file_that_is_not_text_is_refused(tmp_path, name):
    (tmp_path / name).write_bytes(NO_TEXT[name])
    for place in (tmp_path / name, tmp_path):
        with refused(InputError, path=str(tmp_path / name)):
            filters.build(FiltersConfig(decontaminate=[str(place)], ngram=2))


def test_the_evaluation_files_of_a_folder_are_those_of_its_fingerprint(tmp_path):
    names = ("dev.tsv", ".dev.tsv", ".old/dev.tsv", "~dev.tsv", "~$dev.tsv", "a/.dev.tsv", "a/~dev.tsv")
    before = fingerprints.fingerprint_files(tmp_path)
    for name in names:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("said that the river was old\n")
        read = tmp_path / name in filters.evaluation_files([str(tmp_path)])
        after = fingerprints.fingerprint_files(tmp_path)
        assert read == (after != before) == (name in ("dev.tsv", "~dev.tsv", "a/~dev.tsv"))
        before = after


def test_a_folder_with_evaluation_data_of_an_unknown_type_is_refused(tmp_path):
    config = FiltersConfig(decontaminate=[str(evaluation(tmp_path))], ngram=5)
    (tmp_path / ".git/objects").mkdir(parents=True)
    about = ("README.md", "LICENSE", ".gitattributes", ".git/objects/00", "glue.py", "paper.pdf")
    for name in (*about, "train.parquet"):
        (tmp_path / name).write_text("about the data, or training data\n")
    (tmp_path / "Icon\r").touch()  # in GLUE's own archive
    (tmp_path / "._dev.tsv").write_bytes(bytes(99))  # of macOS
    filters.build(config)
    (tmp_path / "a/test.csv").write_text("x,y\n")
    with refused(InputError, key="filters.decontaminate", path=str(tmp_path / "a/test.csv")):
        filters.build(config)


def test_evaluation_files_that_no_document_can_match_are_refused(tmp_path):
    (tmp_path / "short.tsv").write_text("four words of text\n")
    filters.build(FiltersConfig(decontaminate=[str(tmp_path)], ngram=4))
    with refused(InputError, key="filters.decontaminate"):
        filters.build(FiltersConfig(decontaminate=[str(tmp_path)], ngram=5))


@pytest.fixture(scope="module")
def vocab(tmp_path_factory):
    return vocabulary(tmp_path_factory.mktemp("vocab"), [*WORDS, "."])


def made(path, vocab, out, corpus, **more):
    """The account of `prepare` over JSON lines."""
    cut = {"split_bytes": 2000, "shard_bytes": 20_000}
    config = settings("jsonl", path, vocab, out=str(out), pairs="none", filters=FiltersConfig(**more), **cut, **corpus)
    out.mkdir()
    return prepare.make(config, out).figures


def test_every_fate_is_counted(vocab, tmp_path):
    rows = [*(story(k) for k in range(100)), "", "Hello.", story(3), story(1, 900), "1 2 3 " * 40]
    rows += [story(2) + " Lorem ipsum.", "x " * 30 + "said that the river was old"]
    rows.append(story(5).replace("apple", "bread", 1))
    path = tmp_path / "a.jsonl"
    lines = [json.dumps({"text": text}) for text in rows]
    path.write_text("\n".join([*lines, '{"texts": "other"}', "not JSON"]) + "\n")
    limits = {"maximum_characters": 3000, "maximum_non_letters": 0.5, "banned": ["(?i)lorem"], "ngram": 5}
    near = {"near_duplicates": 0.6, "shingle": 3, "decontaminate": [str(evaluation(tmp_path / "glue"))]}
    figures = made(path, vocab, tmp_path / "out", {"on_error": "skip"}, **limits, **near)
    assert figures["documents"] == {"read": 108, "empty": 1, "short": 1, "duplicate": 1, "filtered": 5, "written": 100}
    assert figures["filtered"] == {"long": 1, "non-letters": 1, "banned": 1, "contaminated": 1, "near duplicate": 1}
    assert figures["skipped"] == {"broken": 2}
    assert [len(figures["named"][key]) for key in ("broken", "contaminated")] == [2, 1]
    assert f"{path}, line 109: " in figures["named"]["broken"][0]


def test_a_mix_repeats_documents_in_training_alone(vocab, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text("\n".join(json.dumps({"text": story(k, 300)}) for k in range(200)))
    once = made(path, vocab, tmp_path / "once", {})
    parts = {"p": {"reader": "jsonl", "path": str(path), "weight": 3}}
    corpus = CorpusConfig(name="m", reader="mix", parts=parts)
    config = settings("", "", vocab, corpus=corpus, out=str(tmp_path / "thrice"), validation_share=0.2)
    Path(config.out).mkdir()
    thrice = prepare.make(config, Path(config.out)).figures
    assert (thrice["documents"], thrice["totals"]["repeats"]) == (once["documents"], 2 * (200 - held_out(path)))
    assert thrice["totals"]["train"] > 2 * once["totals"]["train"]


def held_out(path):
    """How many of the texts are kept for validation at a share of 0.2."""
    texts = (json.loads(line)["text"] for line in path.read_text().splitlines())
    return sum(holdout.is_held_out(holdout.document_hash(text), 0.2) for text in texts)


def test_an_evaluation_file_that_no_document_can_match_is_named(vocab, tmp_path):
    (tmp_path / "glue").mkdir()
    (tmp_path / "glue/long.jsonl").write_text(json.dumps({"text": story(100)}))
    for number in range(5):
        (tmp_path / f"glue/short{number}.jsonl").write_text('{"text": "the mill was old"}\n')
    (tmp_path / "glue/empty.tsv").touch()
    (tmp_path / "a.jsonl").write_text("\n".join(json.dumps({"text": story(k)}) for k in range(100)))
    glue = str(tmp_path / "glue")
    figures = made(tmp_path / "a.jsonl", vocab, tmp_path / "out", {}, decontaminate=[glue])
    (warning,) = figures["warnings"]
    assert warning.startswith("filters.decontaminate: 5 of 7 files ")
    assert f"{glue}/short0.jsonl" in warning
    assert "filters.ngram" in warning
    named = figures["named"][filters.SHORT]
    assert [line.partition(": ")[0] for line in named] == [f"{glue}/short{number}.jsonl" for number in range(5)]
    figures = made(tmp_path / "a.jsonl", vocab, tmp_path / "4", {}, decontaminate=[glue], ngram=4)
    assert figures["warnings"] == []
