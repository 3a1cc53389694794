"""Files that a reader reads, and all that it reads of them."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.config import CorpusConfig
from pipeline.readers import ReadLog, notes_of, open_corpus


def config(reader, path, **settings):
    return CorpusConfig(name="c", reader=reader, path=str(path), **settings)


def read(corpus, split_bytes=1 << 20):
    reader, log = open_corpus(corpus, ""), ReadLog(corpus.on_error)
    ranges = reader.splits(split_bytes)
    log.notes.update(notes_of(ranges))
    return [document for each in ranges for document in reader.read(each, log)], log


def rows_in(folder, reader, rows):
    """Write rows as the reader `jsonl` or `parquet` wants them; return the file."""
    path = folder / f"a.{reader}"
    if reader == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    else:
        pq.write_table(pa.Table.from_pylist(rows), path)
    return path
