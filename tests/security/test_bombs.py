"""Small files that unpack or parse to gigabytes are refused in a line, in four times the budget.

To take less time, that is a fourth of the real one.
"""

import gzip
import io
import json
import struct
import tarfile
import tempfile
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support import forked, formats

MUCH = 512  # MiB of each bomb
CAP = 2**28  # bytes that a reader may take beside its imports
HEAD = b"<mediawiki><siteinfo><dbname>x</dbname></siteinfo>"
PAGE = HEAD + b"<page><title>T</title><ns>0</ns><id>1</id><revision><id>2</id><text>"
DOC = b'<doc id="1" url="u" title="T">\n'


def gz(unit, head=b""):
    """Pack `head` and `MUCH` MiB of `unit`, as members of gzip, which read as one."""
    piece = gzip.compress(unit * (2**26 // len(unit)))
    return gzip.compress(head) + piece * (MUCH // 64)


def deflated(unit):
    """Pack `MUCH` MiB of `unit` as a raw stream, for zip."""
    packer = zlib.compressobj(9, zlib.DEFLATED, -15)
    piece = packer.compress(unit * (2**26 // len(unit))) + packer.flush(zlib.Z_FULL_FLUSH)
    return piece * (MUCH // 64) + packer.flush()


def zipped(name, packed, size, method=8):
    """Return a zip archive of one member that claims a size."""
    common = struct.pack("<HHHHHIIIHH", 20, 0, method, 0, 0, 0, len(packed), size, len(name), 0)
    start = b"PK\3\4" + common + name + packed
    entry = b"PK\1\2" + b"\x14\0" + common + struct.pack("<HHHII", 0, 0, 0, 0, 0) + name
    sizes = struct.pack("<HHHHIIH", 0, 0, 1, 1, len(entry), len(start), 0)
    return start + entry + b"PK\5\6" + sizes


def zstd():
    """Return a frame of blocks that each repeat one byte 2**17 times."""
    block = (2**17 << 3 | 1 << 1).to_bytes(3, "little") + b"x"
    return b"\x28\xb5\x2f\xfd\x00\x38" + block * (8 * MUCH) + b"\x01\x00\x00"


def tarred(kind):
    """Return the beginning of a tar archive whose header says that names of `MUCH` MiB follow."""
    header = tarfile.TarInfo("a.txt")
    header.type, header.size = kind, MUCH * 2**20
    return gz(b"x", header.tobuf())


def parquet(size):
    """Return a file of rows with one text of `size` bytes, stored once."""
    column = pa.DictionaryArray.from_arrays(pa.array([0] * 256, pa.int32()), ["x" * size])
    held = io.BytesIO()
    pq.write_table(
        pa.table({"text": column}), held, compression="zstd", store_schema=False, dictionary_pagesize_limit=2**31 - 1
    )
    return held.getvalue()


def record(size):
    """Return the header of a record of a web archive."""
    kind = b"WARC-Type: conversion\r\nWARC-Record-ID: <urn:x>"
    return b"WARC/1.0\r\n%b\r\nContent-Length: %d\r\n\r\n" % (kind, size)


def batch():
    """Return a stream of Arrow whose one batch unpacks to `MUCH` MiB."""
    held, table = io.BytesIO(), pa.table({"text": ["x" * (2**20)] * MUCH})
    with pa.ipc.new_stream(held, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return held.getvalue()


def zim():
    """Return a file of Kiwix with a page that is one byte too large."""
    with tempfile.TemporaryDirectory() as folder:
        return formats.write(Path(folder), "zim", ["x" * (CAP // 4 + 1)]).read_bytes()


DOCUMENTS = {
    "a page": ("wikipedia", "a.xml.gz", lambda: gz(b"x", PAGE)),
    "a page of lines": ("wikipedia", "a.xml.gz", lambda: gz(b"ab\n", PAGE)),
    "a page of entities": ("wikipedia", "a.xml.gz", lambda: gz(b"&lt;", PAGE)),
    "a page of elements": ("wikipedia", "a.xml.gz", lambda: gz(b'<a b=""/>', PAGE)),
    "a page of one tag": ("wikipedia", "a.xml.gz", lambda: gz(b"x", PAGE + b"<")),
    "a header": ("wikipedia", "a.xml.gz", lambda: gz(b"<a/>", b"<mediawiki><siteinfo>")),
    "blanks between pages": ("wikipedia", "a.xml.gz", lambda: gz(b" ", HEAD + b"<page></page>")),
    "a text": ("text", "a.txt.gz", lambda: gz(b"x")),
    "a text of zstd": ("text", "a.txt.zst", zstd),
    "a member": ("text", "a.zip", lambda: zipped(b"a.txt", deflated(b"x"), MUCH << 20)),
    "a member that lies": ("text", "a.zip", lambda: zipped(b"a.txt", deflated(b"x"), 9)),
    "a member of any size": ("text", "a.zip", lambda: zipped(b"a.txt", b"", 2**32 - 1)),
    "a name in tar": ("text", "a.tar.gz", lambda: tarred(tarfile.GNUTYPE_LONGNAME)),
    "a header in tar": ("text", "a.tar.gz", lambda: tarred(tarfile.XHDTYPE)),
    "one line": ("jsonl", "a.jsonl.gz", lambda: gz(b"x")),
    "one line of zstd": ("jsonl", "a.jsonl.zst", zstd),
    "lists in lists": ("jsonl", "a.jsonl.gz", lambda: gzip.compress(b"[" + b"[]," * 20_000_000)),
    "lines without a blank one": ("lines", "a.txt.gz", lambda: gz(b"a\n")),
    "an article without end": ("wikiextractor", "wiki_00.gz", lambda: gz(b"a\n", DOC)),
    "a book": ("books", "a.epub", lambda: zipped(b"META-INF/container.xml", deflated(b"x"), 9)),
    "a book of elements": (
        "books",
        "a.epub",
        lambda: zipped(b"META-INF/container.xml", zlib.compress(b"<a>" + b"<a/>" * 12_500_000, 1)[2:-4], 50_000_003),
    ),
    "a quoted field": ("csv", "a.csv.gz", lambda: gz(b"a\n", b'text\n"')),
    "a treebank without documents": ("conllu", "a.conllu.gz", lambda: gz(b"# a\n")),
    "a line of an index": ("cirrussearch", "a.json.gz", lambda: gz(b"x")),
    "a post": ("stackexchange", "Posts.xml.gz", lambda: gz(b"x", b"<row ")),
    "a record": ("pubmed", "a.xml.gz", lambda: gz(b"x", b"<PubmedArticleSet><PubmedArticle>")),
    "a record of elements": ("pubmed", "a.xml.gz", lambda: gz(b"<a/>", b"<PubmedArticleSet><PubmedArticle>")),
    "an article": ("jats", "a.xml.gz", lambda: gz(b"x", b"<article>")),
    "an article of elements": ("jats", "a.xml.gz", lambda: gzip.compress(b"<article>" + b"<a/>" * 12_500_000)),
    "a work of elements": ("tei", "a.xml.gz", lambda: gzip.compress(b"<TEI>" + b"<a/>" * 12_500_000)),
    "a page of HTML": ("html", "a.html.gz", lambda: gz(b"x")),
    "a page of tags": ("html", "a.html.gz", lambda: gzip.compress(b"<b></b>" * 7_000_000)),
    "a web archive's record": ("warc", "a.warc.gz", lambda: gz(b"x", record(MUCH << 20))),
    "a web archive's header": ("warc", "a.warc.gz", lambda: gz(b"a: b\r\n", b"WARC/1.0\r\n")),
    "a batch": ("arrow", "a.arrow", batch),
    "a page of Kiwix": ("zim", "a.zim", zim),
    "an archive of lines": ("jsonl", "a.tar.gz", lambda: tarred(tarfile.GNUTYPE_LONGNAME)),
    "a dictionary": ("parquet", "a.parquet", lambda: parquet(2**22)),
}
TABLES = {
    "a table": ("dev.tsv.gz", lambda: gz(b"a\tb\n")),
    "a table of zstd": ("dev.tsv.zst", zstd),
    "a table in a zip": ("a.zip", lambda: zipped(b"T/dev.tsv", deflated(b"x"), MUCH << 20)),
    "a table that lies": ("a.zip", lambda: zipped(b"T/dev.tsv", deflated(b"x"), 9)),
    "a table of rows": ("dev.tsv.gz", lambda: gzip.compress(b"a\tb\n" * 15_000_000)),
    "a table of fields": ("dev.csv.gz", lambda: gzip.compress(b"a;" * 30_000_000)),
    "a table of lists": ("dev.json.gz", lambda: gzip.compress(b"[" + b"[]," * 20_000_000)),
}
MODELS = {
    "a model's lists": ("config.json", lambda: b'{"a":[' + b"[]," * 20_000_000),
    "a model's objects": ("tokenizer.json", lambda: b'{"a":[' + b"{}," * 20_000_000),
    "a model's numbers": ("config.json", lambda: b'{"a":[' + b"7.5," * 15_000_000),
}
# What is honest, or nothing, is read.
READ = {"a dictionary": str(256 * 2**22), "a member of any size": "0"}
CHILD = """
import json, os, resource, sys
from pathlib import Path
from pipeline.storage import budget, strict_json
from pipeline.errors import InputError
from pipeline.config import CorpusConfig, TaskConfig
from pipeline.evaluation import examples
from pipeline.readers import ReadLog, open_corpus, readers
readers()
budget.DOCUMENT, budget.TABLE, budget.FIELDS = (n // 4 for n in (budget.DOCUMENT, budget.TABLE, budget.FIELDS))

def read(reader, path, name):
    if reader == "model":
        return strict_json.read_object(Path(path))
    if reader == "task":
        labels = ["b", "c"]
        task = TaskConfig(name="t", folder="T", columns=["a"], labels=labels, metrics=["accuracy"])
        return examples.read_examples(path, task, name)
    made = open_corpus(CorpusConfig(name="c", reader=reader, path=path), "")
    return sum(len(d.text) for s in made.splits(2**26) for d in made.read(s, ReadLog()))

size = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (size + int(sys.argv[1]),) * 2)
for reader, path, name in json.load(sys.stdin):
    if os.fork():  # what one leaves is not charged to the next
        os.wait()
        continue
    try:
        told = ["read", str(read(reader, path, name))]
    except BaseException as error:
        told = [type(error).__name__, str(error)]
    print(json.dumps(told), flush=True)
    os._exit(0)
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """What becomes of each bomb, read one after the other by a process of few bytes."""
    asked = {}
    for what, (reader, name, make) in DOCUMENTS.items():
        path = tmp_path_factory.mktemp("corpus") / name
        path.write_bytes(make())
        asked[what] = (reader, str(path), name)
    for what, (name, make) in TABLES.items():
        folder = tmp_path_factory.mktemp("task")
        (folder / "T").mkdir()
        (folder / name if name == "a.zip" else folder / "T" / name).write_bytes(make())
        asked[what] = ("task", str(folder), "dev.tsv" if name == "a.zip" else name)
    for what, (name, make) in MODELS.items():
        path = tmp_path_factory.mktemp("model") / name
        path.write_bytes(make())
        asked[what] = ("model", str(path), name)
    done = forked.fresh("-c", CHILD, CAP, input=json.dumps(list(asked.values())))
    told = list(map(json.loads, done.stdout.splitlines()))
    assert len(told) == len(asked), done.stderr
    return dict(zip(asked, told, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("what", [*DOCUMENTS, *TABLES, *MODELS])
def test_a_bomb_is_refused_in_a_line(outcomes, what):
    kind, message = outcomes[what]
    if what in READ:
        assert (kind, message) == ("read", READ[what])
    else:
        assert kind == "InputError", message
        assert "\n" not in message
