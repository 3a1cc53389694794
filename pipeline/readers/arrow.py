"""Arrow's files and streams: datasets.save_to_disk, Feather, polars.

Source: https://arrow.apache.org/docs/format/Columnar.html
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from pipeline.errors import InputError, first_line
from pipeline.readers.base import Documents, FileRange, FileRanges, ReadLog
from pipeline.readers.files import files_of
from pipeline.readers.io import byte_ranges, columns, compressed
from pipeline.storage import placeholders, places, strict_json
from pipeline.storage.places import File

_FILE = b"ARROW1"
_BROKEN = (OSError, ValueError, MemoryError, pa.ArrowException)


class Reader(columns.ColumnReader):
    """Reader of columns; a range of a file is one of batches, a stream is one range."""

    members = (".arrow", ".feather", ".ipc")

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut files between batches."""
        files = files_of(self.corpus, self.source, self.members, saved, rows=True)
        found = list[FileRange]()
        for path in files:
            with self._opened(str(path)) as reader:
                if isinstance(reader, pa.ipc.RecordBatchFileReader):
                    found += byte_ranges.cut(str(path), _batches(str(path), reader), split_bytes)
                else:
                    found.append(compressed.CompressedFile(path).whole())
        ranges = files.cut(found)
        above = {str(path.parent.parent) for path in files}
        of_splits = {folder for folder in above if places.at(f"{folder}/dataset_dict.json").is_file()}
        splits = (path.parent.name for path in files if str(path.parent.parent) in of_splits)
        ranges.notes.update(f"files of the split {split}, which is a folder that can be named" for split in splits)
        return ranges

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of the batches that begin in the file range.

        Raises:
            InputError: the file was changed or is damaged.
        """
        path, number = file_range.path, 0
        with self._opened(path) as reader:
            try:
                for number, batch in self._batches(reader, file_range, log):
                    chosen = batch.select(self.read_columns(batch.schema))
                    chosen.validate(full=True)  # what is damaged would end the process
                    for start in range(0, chosen.num_rows, columns.ROWS):
                        place = f"{path} batch {number + 1}"
                        yield from self.documents(chosen.slice(start, columns.ROWS), place, start, log)
            except _BROKEN as error:
                why = f"batch {number + 1} or the next is damaged ({first_line(error)}); download the file again"
                raise InputError(why, path=path) from error

    def _batches(self, reader: Any, file_range: FileRange, log: ReadLog) -> Iterator[tuple[int, Any]]:
        """Yield the batches of a range with their numbers."""
        if isinstance(reader, pa.ipc.RecordBatchFileReader):
            for number in byte_ranges.items_in_range(_batches(file_range.path, reader), file_range, log):
                yield number, reader.get_batch(number)
        else:
            compressed.CompressedFile(file_range.path).check(file_range)
            yield from enumerate(reader)

    @contextlib.contextmanager
    def _opened(self, path: str) -> Iterator[Any]:
        place, head = places.at(path), b""
        try:
            with place.open("rb") as file:
                head = file.read(len(_FILE))
            source = pa.memory_map(path) if isinstance(place, Path) else place.open()
            reader = pa.ipc.open_file(source) if head == _FILE else pa.ipc.open_stream(source)
        except _BROKEN as error:
            why = f"not a complete file or stream of Arrow ({first_line(error)}); download the file again"
            why = "is Feather of version 1; write it again by pyarrow.feather" if head[:4] == b"FEA1" else why
            raise placeholders.error_of(place, why) from error
        self.check(path, reader.schema, reader.schema.metadata or {})
        yield reader


def saved(found: list[File]) -> list[File]:
    """Return the files of data sets, without the caches that `datasets` puts next to them.

    Raises:
        InputError: a data set lacks a file.
    """
    named, here = dict[str, set[str]](), {*map(str, found)}  # a store is asked for the others alone
    for folder in {str(file.parent) for file in found}:
        state = strict_json.own(places.at(f"{folder}/state.json"))
        with contextlib.suppress(KeyError, TypeError):
            named[folder] = {each["filename"] for each in state["_data_files"]}
        for name in sorted(named.get(folder, ())):
            if (path := f"{folder}/{name}") not in here and not places.at(path).is_file():
                raise InputError(f"lacks {name}, which its state.json has; copy the whole folder", path=folder)
    return [file for file in found if file.name in named.get(str(file.parent), {file.name})]


def _batches(path: str, reader: Any) -> list[byte_ranges.Marked[int]]:
    return byte_ranges.even(path, range(reader.num_record_batches))
