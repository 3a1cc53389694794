"""Files that a reader reads, and all that it reads of them."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import CorpusConfig
from pipeline.readers import Document, ReadLog, notes_of, open_corpus


def config(reader: str, path: Path, **settings: object) -> CorpusConfig:
    return CorpusConfig(name="c", reader=reader, path=str(path), **settings)  # type: ignore[arg-type]


def read(corpus: CorpusConfig, split_bytes: int = 1 << 20) -> tuple[list[Document], ReadLog]:
    reader, log = open_corpus(corpus, ""), ReadLog(corpus.on_error)
    ranges = reader.splits(split_bytes)
    log.notes.update(notes_of(ranges))
    return [document for each in ranges for document in reader.read(each, log)], log


def rows_in(folder: Path, reader: str, rows: list[dict[str, Any]]) -> Path:
    """Write rows as the reader `jsonl` or `parquet` wants them; return the file."""
    path = folder / f"a.{reader}"
    if reader == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path
