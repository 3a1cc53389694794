"""Rows are UTF-8 whatever the locale, and do not begin with the mark that some editors write."""

import csv
import gzip
import io
import json
import os
import sys

import pytest

from pipeline.config import PredictConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation.input_rows import open_rows, rows_of
from tests.support import forked
from tests.support.refusals import refused

ROWS = "from pipeline.evaluation.input_rows import open_rows as f; print(ascii([*f(None)]))"


def piped(root, data, locale):
    """Read rows from standard input in a process of its own."""
    env = {**os.environ, "LC_ALL": locale, "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    return forked.fresh("-c", ROWS, input=data, text=False, env=env)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_standard_input_is_utf_8_in_any_locale(root, locale):
    assert piped(root, "é\r a\nb".encode(), locale).stdout == b"['\\xe9\\r a\\n', 'b']\n"
    broken = piped(root, b"a\n\xff\n", locale)
    assert (broken.returncode, broken.stdout) == (1, b"")
    assert b"UnicodeDecodeError" in broken.stderr


def test_a_byte_order_mark_is_not_text(root, tmp_path):
    path = tmp_path / "rows.txt"
    path.write_bytes(b"\xef\xbb\xbfa\nb\n")
    with open_rows(str(path)) as stream:
        assert list(stream) == ["a\n", "b\n"]
    assert piped(root, path.read_bytes(), "C").stdout == b"['a\\n', 'b\\n']\n"


def rows(path, **settings):
    place = None if path is None else str(path)
    return list(rows_of(PredictConfig(pretrained="x", input=place, **settings)))


@pytest.mark.parametrize("place", ["file", "standard input"])
def test_only_line_feeds_end_lines(tmp_path, monkeypatch, place):
    file = tmp_path / "in.txt"
    file.write_bytes("the\rcat\u2028sat\na dog\r\n\n\rmat".encode())
    with open(file, encoding="utf-8") as stream:  # as Python opens standard input
        monkeypatch.setattr(sys, "stdin", stream)
        found = rows(file if place == "file" else None)
    assert [row.text for row in found] == ["the\rcat\u2028sat", "a dog", "", "\rmat"]
    file.write_bytes(b"the cat\r\ra dog\r")  # no other line ends
    assert [(row.number, row.text) for row in rows(file)] == [(1, "the cat"), (2, ""), (3, "a dog")]
    assert [row.columns for row in rows(file, columns=["the cat"])] == [[""], ["a dog"]]
    assert [row.number for row in found] == [1, 2, 3, 4]
    assert found[-1].where.endswith("line 4")


TABLE = [("7", 'a, "b"', "yes"), ("x9", "c\td\ne", "no")]
NAMES = ("id", "câu", "chủ đề")


def files():
    """Return one table in the formats that evaluate reads."""
    found = {}
    for name, separator in (("a.csv", ","), ("semicolons.csv", ";")):
        csv.writer(made := io.StringIO(), delimiter=separator).writerows([NAMES, *TABLE])
        found[name] = "\ufeff".encode() + made.getvalue().encode()
    found["excel.csv"] = found["semicolons.csv"].replace(b"\xef\xbb\xbf", b"\xef\xbb\xbfsep=;\r\n")
    objects = [dict(zip(NAMES, row, strict=True)) for row in TABLE]
    found["a.jsonl"] = "".join(json.dumps(one) + "\n" for one in objects).encode()
    found["a.json"] = json.dumps(objects, ensure_ascii=False).encode()
    return found | {"a.csv.gz": gzip.compress(found["a.csv"])}


@pytest.mark.parametrize("name", files())
def test_tables_are_read_as_evaluate_reads_them(name, tmp_path):
    path = tmp_path / name
    path.write_bytes(files()[name])
    found = rows(path, columns=["câu"], label="chủ đề")
    assert [row.columns for row in found] == [[text] for _, text, _ in TABLE]
    assert [row.about for row in found] == [{"id": number, "gold": gold} for number, _, gold in TABLE]
    assert [row.number for row in found] == [1, 2]
    pairs = rows(path, columns=["{câu}?", "id"], id="chủ đề")
    assert (pairs[0].columns, pairs[1].about) == (['a, "b"?', "7"], {"id": "no"})
    with refused(InputError, "columns", key="columns") as caught:
        rows(path)
    assert "câu" in str(caught.value)


@pytest.mark.parametrize("key", ["id", "label"])
def test_lines_have_no_columns_to_be_named_by(key, tmp_path):
    (tmp_path / "a.txt").write_text("One line.\n")
    with refused(ConfigError, key=key):
        rows(tmp_path / "a.txt", **{key: "ref"})


@pytest.mark.parametrize("name", ["a.csv", "excel.csv", "a.jsonl"])
def test_tables_of_standard_input_are_told_by_their_first_line(name, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO(files()[name].decode("utf-8-sig")))
    assert [row.columns for row in rows(None, columns=["câu"])] == [[text] for _, text, _ in TABLE]


def test_a_gold_label_is_written_as_the_labels_of_a_task_are(tmp_path):
    (tmp_path / "a.tsv").write_text('sentence\tlabel\n"a\tca\u0302u\n')
    (row,) = rows(tmp_path / "a.tsv", columns=["sentence"])
    assert (row.columns, row.about) == (['"a'], {"gold": "c\xe2u"})


TAGGED = ["-DOCSTART- -X- O\n\nEU NNP O\n", "EU\tB-ORG\nsays\tO\n\nHe\tO\n", "EU U-ORG\nsays O\n", "a M-X\nb E-X\n"]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ('<doc id="1" url="u" title="t">\nt\n\nIt is.\n</doc>\n', "WikiExtractor"),
        *((text, "tagged words") for text in TAGGED),
        ("WEBVTT\n\n", "subtitles"),
        ("1\tEU\t_\tN\t_\t_\t0\troot\t_\t_\n" * 3, "CoNLL-U"),
    ],
)
def test_what_is_no_text_in_lines_is_refused_by_its_beginning(text, kind, tmp_path):
    (tmp_path / "in.txt").write_text(text)
    with refused(InputError, kind, line=1):
        rows(tmp_path / "in.txt")


@pytest.mark.parametrize("place", ["", "*.txt"])
def test_the_input_is_one_file_or_piped(place, tmp_path):
    (tmp_path / "in.txt").write_text("Words.\n")
    with refused(InputError, r"cat FILES \|", key="input"):
        rows(tmp_path / place)


NAMED = ["text,label\na,b\n", "id\tsentence1\tsentence2\n1\ta\tb\n", "sentence\na b\nc\n", "nr;worte\n1;a\n2;b\n"]
NAMED += ['{"text": "a"}\n{"text": "b"}\n', "mã,câu\n1,a b c d e\n2,b\n", '[\n{"text": "a"}\n]\n', '{ "text" : "a"}\n']
NAMED += ["mã,câu\na1,thể thao\na2,thể thao\na3,x\na4,thể thao\n", "id|text\n1|a\n", "\ufeffText\tLabel\r\na\tb\r\n"]
NAMED.append("number of row;the whole text\n1;a\n2;b\n")


@pytest.mark.parametrize("text", NAMED)
def test_a_first_line_that_names_columns_is_a_question(text, tmp_path):
    (tmp_path / "in.txt").write_text(text, encoding="utf-8")
    with refused(InputError, key="columns", line=1):
        rows(tmp_path / "in.txt")


PLAIN = ["the cat\tsat\na dog\tran\n", "the text is long, and has commas\nb, c\n", "a\n1\n2\n", "{curly}\nb\n"]
PLAIN += ["From 9 to 5 since 2009\nx\n", "Subject: refund\nDate: tomorrow\n"]
PLAIN += ["Hello, world\nGood, bye\n", "text\n", "1,2\n3,4\n", 'a "quoted\nb"\n', "of type O\n", "an I-95\na B-1\n"]


@pytest.mark.parametrize("text", PLAIN)
def test_texts_are_no_question(text, tmp_path):
    (tmp_path / "in.txt").write_text(text)
    assert [row.text for row in rows(tmp_path / "in.txt")] == text.split("\n")[:-1]


BROKEN = [("a.csv", content, "text") for content in ("text,text\na,b\n", "text\n", "")]
BROKEN += [("a.tsv", "text\tb\na\n", "text"), ("a.jsonl", '{"text": "a"}\n{"b": 1}\n', "text")]
BROKEN += [("a.csv", "text,b\na,b\n", "c"), ("a.jsonl", '{"tokens": ["a", "b"]}\n', "tokens")]
BROKEN += [("a.jsonl", '{"text": "a", "b": 2}\n{"b": 1}\n', "{b}: {text}")]


@pytest.mark.parametrize(("name", "content", "column"), BROKEN)
def test_tables_that_cannot_be_read_whole_are_refused(name, content, column, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError):
        rows(tmp_path / name, columns=[column])


@pytest.mark.parametrize(
    ("content", "why", "names"),
    [
        ("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 1\n", "Git LFS", ["a.csv", "a.json"]),
        ("<!DOCTYPE html>\n<html><head><title>Sign in</title></head></html>\n", "HTML page", ["a.csv", "a.json"]),
        ("\0\1" * 50, "binary, not text", []),
        ("%PDF-1.4\na\n", "of another format", []),
    ],
)
def test_a_file_that_is_no_text_has_no_rows(content, why, names, tmp_path):
    for path in (tmp_path / name for name in ["a.txt", *names]):
        path.write_text(content)
        for columns in ([], ["0"]):
            with refused(InputError, why, path=str(path)):
                rows(path, columns=columns)


def test_a_short_text_that_is_typed_is_read(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("Access denied\n"))
    assert [row.text for row in rows(None)] == ["Access denied"]


@pytest.mark.parametrize(
    ("name", "text", "columns", "found"),
    [
        ("a.CSV", '"a, b",pos\nc,neg\n', ["0"], [["a, b"], ["c"]]),
        ("a.Tsv", '"a\tpos\nc\tneg\n', ["0"], [['"a'], ["c"]]),
        ("a.csv", "0,1\na,5\n", ["0"], [["a"]]),  # names as pandas writes them
        ("a.csv", "a,5\nb,1\n", ["0"], [["a"], ["b"]]),
        ("a.csv", "a b;pos\nc;neg\n", ["0"], [["a b"], ["c"]]),
        ("a.csv", "a b; c\nc\n", ["0"], [["a b; c"], ["c"]]),
        ("a.txt", "a,b\nc,d\n", ["1"], [["b"], ["d"]]),
        ("a.txt", "a;b\nc;d\n", ["0", "1"], [["a", "b"], ["c", "d"]]),
        ("a.txt", "a, b\nc\n", ["0"], [["a, b"], ["c"]]),  # a text, as a question has it
        ("a.txt", "text\na\nb\n", ["0"], [["text"], ["a"], ["b"]]),
        ("a.csv", "good,pos\nbad,neg\nfine,pos\nbetter,pos\n", ["0"], [["good"], ["bad"], ["fine"], ["better"]]),
    ],
)
def test_a_table_is_told_from_lines(name, text, columns, found, tmp_path):
    (tmp_path / name).write_text(text)
    assert [row.columns for row in rows(tmp_path / name, columns=columns)] == found


@pytest.mark.parametrize(
    "text",
    [
        "sentence,label\na b,yes\n",
        "review,stars\nfine film,5\nbad film,1\n",
        "sentence\na b\nc\n",
        "film,mood\na,pos\nb,pos\nc,neg\nd,neg\n",
    ],
)
def test_a_header_of_a_table_is_no_text(text, tmp_path):
    (tmp_path / "a.csv").write_text(text)
    with refused(InputError, "seems to name the columns", key="columns"):
        rows(tmp_path / "a.csv", columns=["0"])
