"""Readers of text in lines and rows: every document once, whatever the cut, packing or encoding."""

import bz2
import gzip
import itertools
import json
import lzma
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

import pipeline.readers
from pipeline.config import CorpusConfig
from pipeline.errors import ConfigError, InputError
from pipeline.readers import FileRange, ReadLog, open_corpus
from pipeline.text.clean import clean
from tests.pipeline.readers.reading import config, read
from tests.support.refusals import refused

TEXTS = [f"Document {n} has a début.\nIt ends with {'x' * (n * 7 % 31)} number {n}." for n in range(9)]


def as_lines(texts):
    return "\n\n".join(texts) + "\n"


def as_objects(texts):
    return "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts)


def as_articles(texts):
    docs = (f'<doc id="{n}" title="T">\nT\n\n{text}\n</doc>\n' for n, text in enumerate(texts))
    return "".join(docs)


def as_rows(texts):
    pq.write_table(pa.table({"text": texts}), sink := pa.BufferOutputStream())
    return sink.getvalue().to_pybytes()


FORMS = {"lines": (".txt", as_lines, {}), "text": (".txt", as_lines, {"document": "paragraph"})}
FORMS |= {"jsonl": (".jsonl", as_objects, {}), "wikiextractor": ("", as_articles, {})}
SKIPPED = b"\x50\x2a\x4d\x18\4\0\0\0skip"
PACKERS = {
    "": bytes,
    ".gz": gzip.compress,
    ".bz2": lambda raw: bz2.compress(raw[:150]) + bz2.compress(raw[150:]),
    ".xz": lzma.compress,
    ".zst": zstandard.ZstdCompressor().compress,
    # As pzstd writes it: a frame that is skipped comes first.
    "2.zst": lambda raw: SKIPPED + zstandard.ZstdCompressor().compress(raw),
}


def write(folder, reader, packing="", texts=TEXTS):
    suffix, form, options = FORMS[reader]
    path = folder / f"wiki_00{suffix}{packing}"
    path.write_bytes(PACKERS[packing](form(texts).encode()))
    return config(reader, path, options=options)


@pytest.mark.parametrize("packing", PACKERS)
@pytest.mark.parametrize("reader", FORMS)
def test_every_document_is_read_whole_from_every_packing(reader, packing, tmp_path):
    found, tally = read(write(tmp_path, reader, packing))
    assert [d.text for d in found] == TEXTS
    assert [d.sentence_lines for d in found] == [reader == "lines"] * len(TEXTS)
    assert not tally
    assert not tally.notes


@pytest.mark.parametrize("packing", ["", ".bz2"])
@pytest.mark.parametrize("reader", FORMS)
@given(cuts=st.lists(st.integers(0, 10_000), max_size=8))
def test_each_document_comes_out_once_for_any_cuts(reader, packing, cuts, tmp_path_factory):
    corpus = write(tmp_path_factory.getbasetemp(), reader, packing)
    assert corpus.path is not None
    size = Path(corpus.path).stat().st_size
    bounds = sorted({0, size, *(cut % size for cut in cuts)})
    opened = open_corpus(corpus, "")
    splits = [FileRange(corpus.path, start, end) for start, end in itertools.pairwise(bounds)]
    assert [d.text for s in splits for d in opened.read(s, ReadLog())] == TEXTS


@pytest.mark.parametrize("split_bytes", [100, 1 << 20])
def test_line_ends_and_encodings_do_not_change_documents(split_bytes, tmp_path):
    text = as_lines(TEXTS)
    codecs = {"bom": "utf-8-sig", "utf16": "utf-16", "cp1252": "cp1252"}
    writings = {name: text.encode(codec) for name, codec in codecs.items()}
    writings |= {name: text.replace("\n", end).encode() for name, end in (("crlf", "\r\n"), ("mac", "\r"))}
    for name, raw in writings.items():
        path = tmp_path / f"{name}.txt"
        path.write_bytes(raw)
        found, tally = read(config("lines", path), split_bytes)
        assert [d.text for d in found] == TEXTS, name
        assert bool(tally.notes) == (name != "bom"), (name, tally.notes)


WRONG_ROWS = {"{not json": "JSON", '["a list"]': "list", '{"body": "x"}': "body", '{"text": 3}': "int"}


@pytest.mark.parametrize(("line", "why"), [*WRONG_ROWS.items(), ("[" * 100_000, "JSON")])
def test_a_broken_object_is_named_and_can_be_skipped(line, why, tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"text": "good"}}\n{line}\n{{"text": "fine"}}\n')
    with refused(InputError, why, path=str(path), line=2):
        read(config("jsonl", path))
    found, tally = read(config("jsonl", path, on_error="skip"))
    assert ([d.text for d in found], tally) == (["good", "fine"], {"broken": 1})
    assert f"{path}, line 2: " in tally.broken[0]
    assert why in tally.broken[0]


def test_a_column_of_numbers_is_no_text(tmp_path):
    pq.write_table(pa.table({"body": TEXTS, "n": range(9)}), tmp_path / "a.parquet")
    with refused(InputError, "int64", key="corpus.options.text"):
        read(config("parquet", tmp_path, options={"text": "n"}))


def test_a_damaged_parquet_file_is_named(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["word " * 999] * 99}), path, compression="gzip")
    raw = path.read_bytes()
    path.write_bytes(raw[: len(raw) // 2])
    with refused(InputError, "complete", path=str(path)):
        read(config("parquet", path))
    path.write_bytes(raw[:40] + b"\0" * 40 + raw[80:])
    with refused(InputError, "row group 0", path=str(path)):
        read(config("parquet", path))
    path.write_bytes(raw.replace(b"\x04text", b"\x04te\xfft"))  # the name of the column
    with refused(InputError, "complete", path=str(path)):
        read(config("parquet", path))


@pytest.mark.parametrize("name", ["text", "other"])
def test_a_damaged_schema_of_a_parquet_file_does_not_end_the_process(name, tmp_path):
    """Levels of nesting that do not fit their histogram: pyarrow lets the C++ exception out."""
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": ["word"], "other": ["word"]}), path)
    optional, required = (bytes([0x25, kind, 0x18, len(name)]) + name.encode() for kind in (2, 0))
    whole = path.read_bytes()
    path.write_bytes(whole.replace(optional, required))
    assert path.read_bytes() != whole
    if name == "other":
        assert read(config("parquet", path))[0][0].text == "word"
        return
    with refused(InputError, "row group 0", path=str(path)):
        read(config("parquet", path))


def test_wikiextractor_text_is_cleaned_of_what_it_leaves(tmp_path):
    (tmp_path / "wiki_00").write_text(
        '<doc id="7" url="u" title="Q &amp; A">\nQ &amp; A\n\nIt (, ) is &lt;b&gt;bold&lt;/b&gt;.\n'
        f"Early life (1900).\n{'x' * 80}\nSection::::History.\nBULLET::::- One\n</doc>\n"
    )
    (tmp_path / "wiki_01").write_text('{"id": "8", "title": "B", "text": "B\\n\\nBody [[of|in]] B."}\n')
    (tmp_path / "wiki_02").write_text('<doc id="9" title=""C" of D">\n"C" of D\n\nE.\n</doc>\n')
    (article, other, quoted), _ = read(config("wikiextractor", tmp_path))
    assert (article.id, article.text) == ("c:7", f"It is bold.\nEarly life (1900)\n{'x' * 80}\nHistory\nOne")
    assert (other.id, other.text) == ("c:8", "Body in B.")
    assert (quoted.id, quoted.text) == ("c:9", "E.")


def test_braces_in_an_article_begin_no_document_for_any_cut(tmp_path):
    texts = [f'Set {n}:\n{{x}} is a set.\n{{"text": "no row"}}\nEnd.' for n in range(5)]
    corpus = write(tmp_path, "wikiextractor", texts=texts)
    assert corpus.path is not None
    size, reader = Path(corpus.path).stat().st_size, open_corpus(corpus, "")
    for cut in range(1, size):
        splits = FileRange(corpus.path, 0, cut), FileRange(corpus.path, cut, size)
        assert [d.text for s in splits for d in reader.read(s, ReadLog())] == texts


@pytest.mark.parametrize(("holes", "left"), [("leave_out", "It is old.\n"), ("keep", None)])
def test_wikiextractor_leaves_holes_too(holes, left, tmp_path):
    text = (
        'If formula_12 is small, use codice_2. It is old.\nIt covers . The (formerly ) "" fell.\nIt is\nwhere x is 1.'
    )
    (tmp_path / "wiki_00").write_text(f'<doc id="7" title="T">\nT\n\n{text}\n</doc>\n')
    (article,), tally = read(config("wikiextractor", tmp_path, options={"holes": holes}))
    assert clean(article.text) == (text if left is None else left.strip())
    assert tally.notes.total() == (0 if left is None else 4)


@pytest.mark.parametrize(
    ("reader", "content", "more", "match", "line"),
    [
        ("wikiextractor", '<doc id="7" title="A">\nA\n\ntext', {}, "</doc>", 1),
        ("wikiextractor", "\nSome other text.\n", {}, "<doc", 2),
        ("lines", b"plain\n\ncaf\xe9\n", {"encoding": "utf-8"}, "utf-8", 3),
        ("csv", "text,n\na\n", {}, None, 2),
        ("csv", 'text\n"a\nb\nc\n', {"on_error": "skip"}, None, 4),
        ("csv", 'text\n"a" b\n', {}, None, 2),
        ("conllu", "1x\tword" + "\t_" * 8, {}, "1x", 1),
        ("conllu", "# global.columns = FORM ID\nword\t1\n\n", {}, "FORM", 1),
        ("html", "<div>" * 200_000, {}, "nested", None),
        ("html", "<div></x>" * 9_000, {}, "nested", None),
    ],
    ids=lambda value: value if isinstance(value, str) and len(value) < 99 else "",
)
def test_what_is_broken_is_named(reader, content, more, match, line, tmp_path):
    suffix = {"lines": ".txt", "wikiextractor": ""}.get(reader, f".{reader}")
    path = tmp_path / f"wiki_00{suffix}"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(InputError, match, path=str(path)) as error:
        read(config(reader, tmp_path, **more))
    assert line in (None, error.value.line)


@pytest.mark.parametrize("reader", ["books", "text", "lines", "jsonl", "parquet"])
def test_files_of_other_endings_are_noted(reader, tmp_path):
    name, form = {"jsonl": ("a.jsonl", as_objects), "parquet": ("a.parquet", as_rows)}.get(reader, ("a.txt", as_lines))
    written = form(["One.", "Two."])
    (tmp_path / name).write_bytes(written if isinstance(written, bytes) else written.encode())
    (tmp_path / "d").mkdir()
    for name in ("b.html", "c.docx", "d/E.HTML", "LICENSE", ".hidden"):
        (tmp_path / name).write_text("Three.")
    for split_bytes in (1, 1 << 20):
        _, tally = read(config(reader, tmp_path), split_bytes)
        assert tally.notes == {".html files left out": 2, ".docx files left out": 1, "other files left out": 1}
    _, tally = read(config(reader, next(tmp_path.glob("a.*"))))
    assert not tally.notes


def test_two_keys_of_one_name_are_a_broken_row_and_names_are_compared_in_nfc(tmp_path):
    rows = ['{"te\u0301": "One."}', '{"t\u00e9": "Two."}', '{"t\u00e9": "Three.", "te\u0301": "Four."}']
    (tmp_path / "a.jsonl").write_text("\n".join(rows), encoding="utf-8")
    for name in ("te\u0301", "t\u00e9"):
        found, tally = read(config("jsonl", tmp_path, options={"text": name}, on_error="skip"))
        assert ([document.text for document in found], tally) == (["One.", "Two."], {"broken": 1})
        assert "two keys of one name" in tally.broken[0]


def test_plain_text_is_a_document_a_file_paragraph_line_or_number_of_lines(tmp_path):
    (tmp_path / "a.txt").write_text("One\ntwo.\n\nThree.\n")
    (tmp_path / "b.txt").write_text("Four.")
    for document, wraps, texts in [
        ("file", False, ["One\ntwo.\n\nThree.\n", "Four."]),
        ("file", True, ["One two.\nThree.", "Four."]),
        ("paragraph", True, ["One two.", "Three.", "Four."]),
        ("line", False, ["One", "two.", "Three.", "Four."]),
        (2, False, ["One\ntwo.", "\nThree.", "Four."]),
        (9, True, ["One two.\nThree.", "Four."]),
    ]:
        options = {"document": document, "hard_wraps": wraps}
        assert [d.text for d in read(config("text", tmp_path, options=options))[0]] == texts
    for wrong in ("page", 0, True, 1.5):
        with refused(ConfigError, key="corpus.options.document"):
            read(config("text", tmp_path, options={"document": wrong}))


def test_names_may_be_in_capitals_and_have_the_characters_of_patterns(tmp_path):
    (tmp_path / "a.txt").write_text("One.")
    (tmp_path / "B.TXT").write_text("Two.")
    (tmp_path / "C.TXT.GZ").write_bytes(gzip.compress(b"Three."))
    found, _ = read(config("text", tmp_path))
    assert {Path(d.id).name: d.text for d in found} == {"a.txt": "One.", "B.TXT": "Two.", "C.TXT.GZ": "Three."}
    (tmp_path / "d [2].txt").write_text("Four.")
    assert [d.text for d in read(config("lines", tmp_path / "d [2].txt"))[0]] == ["Four."]


def test_letters_decoded_twice_are_mended_on_request(tmp_path):
    (tmp_path / "a.txt").write_text("The cafÃ© is open.\n\nNothing wrong.")
    found, tally = read(config("lines", tmp_path, mend=True))
    assert [d.text for d in found] == ["The café is open.", "Nothing wrong."]
    ((note, count),) = tally.notes.items()
    assert "ftfy" in note
    assert count == 1


@pytest.mark.slow
@pytest.mark.shared_data
@pytest.mark.parametrize(("folder", "count"), [("en_2021", 37_225), ("zh_2024", 11_972)])
def test_real_wikiextractor_output(shared_data, folder, count):
    corpus = config("wikiextractor", shared_data / "wiki_text" / folder)
    ids = [d.id for d in read(corpus, 1 << 21)[0]]
    assert len(ids) == len(set(ids)) == count


@pytest.mark.parametrize("language", ["de", "ceb", "simple", "zh-min-nan", "be_x_old", "pt-BR"])
def test_a_code_of_a_language_is_taken(language):
    assert CorpusConfig(name="x", reader="text", language=language).language == language


WRONG = [("language", each) for each in ("vietnamese", "", "English", "v", "de/../x", "de ")]


@pytest.mark.parametrize(("key", "value"), [*WRONG, ("encoding", "utf-9"), ("encoding", "hex"), ("path", "")])
def test_a_corpus_that_cannot_be_is_refused(key, value):
    with pytest.raises(ConfigError, match=rf"corpus\.{key}={value}: ") as caught:
        CorpusConfig(**{"name": "x", "reader": "lines", "path": "p", key: value})
    assert key != "language" or "code" in str(caught.value)


PROSE = [("text", {}), ("text", {"document": "paragraph"}), ("text", {"document": "line"}), ("books", {})]


@pytest.mark.parametrize("split_bytes", [5000, 1 << 20])
@pytest.mark.parametrize("packing", ["", ".gz"])
@pytest.mark.parametrize(("reader", "options"), [*PROSE, ("lines", {}), ("jsonl", {}), ("wikiextractor", {})])
def test_a_file_that_is_no_text_is_named_and_can_be_skipped(reader, options, packing, split_bytes, tmp_path):
    ending, form, _ = FORMS.get(reader, (".txt", as_lines, {}))
    good, bad = tmp_path / f"a{ending}{packing}", tmp_path / f"b{ending}{packing}"
    good.write_bytes(PACKERS[packing](form(TEXTS).encode()))
    expected, _ = read(config(reader, good, options=options))
    bad.write_bytes(PACKERS[packing](random.Random(0).randbytes(30_000)))
    with refused(InputError, "binary", path=str(bad)):
        read(config(reader, tmp_path, options=options), split_bytes)
    found, tally = read(config(reader, tmp_path, options=options, on_error="skip"), split_bytes)
    assert ([d.text for d in found], tally) == ([d.text for d in expected], {"broken": 1})
    assert str(bad) in tally.broken[0]


ARRAYS = ['[{"text": "a"}, {"text": "b"}]', '[\n{"text": "a"}\n]']
OTHERS = [(each, r"jq -c '\.\[\]'") for each in ARRAYS]
OTHERS += [('{\n "text": "a"\n}', r"jq -c \."), ('{"body": "a"}\n{"body": "b"}', "body")]


@pytest.mark.parametrize(("content", "word"), OTHERS)
def test_a_file_of_another_form_is_not_advised_to_be_skipped_whole(content, word, tmp_path):
    (tmp_path / "a.jsonl").write_text(content)
    with pytest.raises(InputError, match=word) as caught:
        read(config("jsonl", tmp_path / "a.jsonl"))
    assert "on_error" not in str(caught.value)
    _, tally = read(config("jsonl", tmp_path / "a.jsonl", on_error="skip"))
    assert tally["broken"] >= 1


@pytest.mark.parametrize(
    ("reader", "place", "message"),
    [
        ("lines", "nowhere", r"nowhere: .*file or folder$"),
        ("lines", "nowhere/*.txt", r"\*\.txt: .*pattern$"),
        ("lines", ".", r": no \.txt, \.sentences file \("),
        ("parquet", ".", r": no \.parquet, \.parq, \.pq file [^(]*$"),
        ("text", ".", r": no \.txt, \.text file \("),
        ("jsonl", ".", r"other names .*/\*\*/\*\.png'"),
        ("wikiextractor", "empty", r"empty: no file "),
    ],
)
def test_a_place_without_files_says_what_is_missing(reader, place, message, tmp_path):
    (tmp_path / "a.png").write_text("")
    (tmp_path / "empty").mkdir()
    with refused(InputError, message, key="corpus.path", value=str(tmp_path / place)):
        read(config(reader, tmp_path / place))


def test_tables_next_to_the_sentences_of_leipzig_are_left_out_and_counted(tmp_path):
    (tmp_path / "a-sentences.txt").write_text("".join(f"{n}\tA lamp shines.\n" for n in range(30)))
    (tmp_path / "a-words.txt").write_text("".join(f"{n}\tlamp\t{n}\n" for n in range(30)))
    (tmp_path / "a-inv_so.txt").write_text("".join(f"{n}\t{n + 1}\n" for n in range(30)))
    found, log = read(config("text", tmp_path, options={"document": "line", "numbered": True}))
    assert {document.text for document in found} == {"A lamp shines."}
    assert (len(found), log.notes) == (30, {"tables of numbered rows left out": 2})


@pytest.mark.parametrize(("code", "said"), [("import not_there", "not_there"), ("X = 1", "class Reader")])
def test_a_reader_of_ones_own_that_cannot_be_used_is_told_why(code, said, tmp_path, monkeypatch):
    monkeypatch.setattr(pipeline.readers, "__path__", [*pipeline.readers.__path__, str(tmp_path)])
    (tmp_path / f"mine_{said[:3]}.py").write_text(code)
    with refused(ConfigError, said, key="corpus.reader"):
        open_corpus(CorpusConfig(name="mine", reader=f"mine_{said[:3]}", path="a"), "")
