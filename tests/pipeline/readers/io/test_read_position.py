"""Readers say how far they are within a file, however it is packed."""

import bz2
import gzip
import io
import json
import lzma
import random
import tarfile
import zipfile
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.config import CorpusConfig
from pipeline.readers import SkipCounts, open_corpus
from pipeline.readers.io import read_position

# Numbers do not pack well: each file is of many chunks.
DRAW = random.Random(0)
TEXTS = [" ".join(str(DRAW.random()) for _ in range(3000)) for _ in range(50)]
LINES = "\n\n".join(TEXTS).encode()
OBJECTS = "".join(json.dumps({"text": text}) + "\n" for text in TEXTS).encode()
PAGES = "".join(
    f"<page><title>T{n}</title><ns>0</ns><id>{n}</id><revision><id>1</id><text>{text}</text></revision></page>"
    for n, text in enumerate(TEXTS)
)


def members(kind: str) -> bytes:
    packed = io.BytesIO()
    if kind == "zip":
        with zipfile.ZipFile(packed, "w") as archive:
            for number, text in enumerate(TEXTS):
                archive.writestr(f"{number}.txt", text)
    else:
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            for number, text in enumerate(TEXTS):
                info = tarfile.TarInfo(f"{number}.txt")
                info.size = len(text)
                archive.addfile(info, io.BytesIO(text.encode()))
    return packed.getvalue()


def table() -> bytes:
    packed = io.BytesIO()
    pq.write_table(pa.table({"text": TEXTS}), packed, row_group_size=10)
    return packed.getvalue()


CORPORA = {
    "lines a.txt": lambda: LINES,
    "lines a.txt.gz": lambda: gzip.compress(LINES, 1),
    "jsonl a.jsonl": lambda: OBJECTS,
    "jsonl a.jsonl.xz": lambda: lzma.compress(OBJECTS, preset=0),
    "jsonl a.jsonl.bz2": lambda: bz2.compress(OBJECTS),
    "wikipedia a.xml.bz2": lambda: bz2.compress(f"<mediawiki>{PAGES}</mediawiki>".encode()),
    "text a.zip": lambda: members("zip"),
    "books a.tar.gz": lambda: members("tar"),
    "parquet a.parquet": table,
}


@pytest.mark.parametrize("corpus", CORPORA)
def test_the_position_moves_within_a_split(corpus: str, tmp_path: Path) -> None:
    reader, name = corpus.split()
    (tmp_path / name).write_bytes(CORPORA[corpus]())
    opened = open_corpus(CorpusConfig(name="c", reader=reader, path=str(tmp_path / name)), "")
    (split,) = opened.splits(1 << 30)
    seen: list[int] = []
    with read_position.followed(split, seen.append):
        assert len(list(opened.read(split, SkipCounts()))) == len(TEXTS)
    assert seen == sorted(seen)
    size = split.end - split.start
    assert 0 <= seen[0] < size / 2 < seen[-1] <= size
    assert len(set(seen)) >= 4
    heard = len(seen)
    list(opened.read(split, SkipCounts()))
    assert len(seen) == heard, "nobody listens any more"


def test_only_the_split_that_is_followed_is_heard(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(LINES)
    opened = open_corpus(CorpusConfig(name="c", reader="lines", path=str(tmp_path)), "")
    first, second, *_ = opened.splits(len(LINES) // 3)
    seen: list[int] = []
    with read_position.followed(second, seen.append):
        list(opened.read(first, SkipCounts()))
        assert not seen
        list(opened.read(second, SkipCounts()))
    assert seen[0] == 0
    assert seen[-1] <= second.end - second.start
