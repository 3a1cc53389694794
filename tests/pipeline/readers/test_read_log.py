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
from pipeline.readers import ReadLog, open_corpus

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
def test_the_position_moves_within_a_file_range(corpus: str, tmp_path: Path) -> None:
    reader, name = corpus.split()
    (tmp_path / name).write_bytes(CORPORA[corpus]())
    opened = open_corpus(CorpusConfig(name="c", reader=reader, path=str(tmp_path / name)), "")
    (file_range,) = opened.splits(1 << 30)
    seen: list[int] = []
    assert len(list(opened.read(file_range, ReadLog(progress=seen.append)))) == len(TEXTS)
    assert seen == sorted(seen)
    assert 0 <= seen[0] < file_range.size / 2 < seen[-1] <= file_range.size
    assert len(set(seen)) >= 4


def test_progress_counts_from_the_beginning_of_a_file_range(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(LINES)
    opened = open_corpus(CorpusConfig(name="c", reader="lines", path=str(tmp_path)), "")
    _, second, *_ = opened.splits(len(LINES) // 3)
    seen: list[int] = []
    list(opened.read(second, ReadLog(progress=seen.append)))
    assert seen[0] == 0
    assert seen[-1] <= second.size
