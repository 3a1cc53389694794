"""Rows, tables, vocabularies and manifests of strangers: read, or one error that names the file."""

import json
import zipfile
from collections import Counter

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import CorpusConfig, TaskConfig
from pipeline.errors import InputError
from pipeline.evaluation import examples
from pipeline.readers import ReadLog, open_corpus
from pipeline.records.manifest import Manifest
from pipeline.text import epub
from pipeline.tokenization.wordpiece import SPECIAL, WordPiece, build
from tests.security.hostile import damaged, hammer, soup
from tests.support import finished, formats

pytestmark = pytest.mark.fuzz

ROWS = [{"text": "Words of a text.", "meta": {"id": n}} for n in range(5)]
LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
JSON = [b"null", b"{}", b"[]", b'"', b"\\ud800", b"\\u0000", b"1e999", b"\n", b"[" * 5000, b"\xff"]
TSV = b"sentence\tlabel\n" + b"Some words.\tno\nOther words.\tyes\n" * 3


def documents(reader, path):
    """Every document of a corpus is text; errors name the file."""
    for on_error in ("fail", "skip"):
        corpus = CorpusConfig(name=reader, reader=reader, path=str(path), on_error=on_error)
        try:
            made = open_corpus(corpus, "")
            for split in made.splits(1 << 20):
                for document in made.read(split, ReadLog(on_error)):
                    document.text.encode("utf-8", "surrogatepass")
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017


@pytest.mark.parametrize("reader", ["jsonl", "lines", "text", "wikiextractor"])
def test_a_damaged_text_file_is_read_or_named(tmp_path, reader):
    names = {"jsonl": "a.jsonl", "lines": "a.txt", "text": "a.txt", "wikiextractor": "wiki_00"}
    path = tmp_path / names[reader]
    pages = b'<doc id="1" url="u" title="T">\nT\n\nWords.\n</doc>\n' * 3

    def check(data):
        path.write_bytes(data)
        documents(reader, path)

    hammer(check, damaged([LINES, pages, LINES.decode().encode("utf-16")], JSON), examples=60)


@pytest.mark.parametrize("form", formats.MANY | formats.ONE)
def test_a_damaged_file_of_any_format_is_read_or_named(tmp_path, form):
    path = formats.write(tmp_path, form, formats.TEXTS[:3])
    whole = path.read_bytes()

    def check(data):
        path.write_bytes(data)
        documents((formats.MANY | formats.ONE)[form][0], path)

    marks = [b"\xff" * 4, b"\0" * 8, b"<", b'"', b"\t", b"\n", b"<!--", b"&x;", b"]]>", b"WARC/1.0\r\n", b"99999999999"]
    hammer(check, damaged([whole], marks), examples=60)


def test_a_damaged_parquet_file_is_read_or_named(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.Table.from_pylist(ROWS), path)
    whole = path.read_bytes()

    def check(data):
        path.write_bytes(data)
        documents("parquet", path)

    hammer(check, damaged([whole], [b"PAR1", b"\x00" * 8, b"\xff" * 4]), examples=60)


def test_a_damaged_table_of_a_task_is_read_or_named(tmp_path):
    task = TaskConfig(name="t", folder="T", columns=["sentence"], labels=["no", "yes"], metrics=["accuracy"])
    (tmp_path / "T").mkdir()

    def check(data):
        (tmp_path / "T" / "dev.tsv").write_bytes(data)
        try:
            examples.read_examples(tmp_path, task, "dev.tsv")
        except InputError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

    hammer(check, damaged([TSV], [b"\t", b"\n", b"\r", b"label", b"\xef\xbb\xbf", b"\x00", b'"']))


def test_a_damaged_archive_of_a_task_is_read_or_named(tmp_path):
    task = TaskConfig(name="t", folder="T", columns=["sentence"], labels=["no", "yes"], metrics=["accuracy"])
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("T/dev.tsv", TSV)
    whole = path.read_bytes()

    def check(data):
        path.write_bytes(data)
        try:
            examples.read_examples(tmp_path, task, "dev.tsv")
        except InputError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

    hammer(check, damaged([whole], [b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06"]))


def test_a_book_of_any_tags_is_read_or_broken():
    def check(page):
        try:
            assert all(epub.paragraphs(page, Counter()))
        except (AssertionError, ValueError) as error:
            assert "marked section" in str(error) or "declaration" in str(error)  # noqa: PT017

    plain_tags = "<a <p> </p> <!-- --> <![CDATA[ ]]> <![x[ <? <script> &# <!DOCTYPE > = <nav> </nav>"
    tags = [*plain_tags.split(), '"']
    hammer(check, soup(tags))


def test_a_damaged_vocabulary_is_read_or_named(tmp_path):
    path = tmp_path / "tokenizer.json"
    whole = build([*SPECIAL, "words", "##s", "."], lowercase=True).encode()

    def check(data):
        path.write_bytes(data)
        try:
            WordPiece.load(path).encode(["Words, words."])
        except InputError as error:
            assert str(path) in str(error)  # noqa: PT017

    hammer(check, damaged([whole], JSON))


def test_a_manifest_of_brackets_is_named(tmp_path):
    (tmp_path / "manifest.json").write_text("[" * 100_000)
    with pytest.raises(InputError, match="not a manifest"):
        Manifest.read(tmp_path)


def test_a_damaged_manifest_is_read_or_named(tmp_path):
    finished.manifest("vocab").write(tmp_path)
    whole = (tmp_path / "manifest.json").read_bytes()

    def check(data):
        (tmp_path / "manifest.json").write_bytes(data)
        try:
            assert isinstance(Manifest.read(tmp_path), Manifest)
        except InputError as error:
            assert str(tmp_path) in str(error)  # noqa: PT017

    hammer(check, damaged([whole], JSON))
