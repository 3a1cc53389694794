"""Parquet files, as published on the Hugging Face hub."""

import functools
import os
import re
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.errors import InputError
from pipeline.readers.base import Documents, FileRange, FileRanges, ReadLog
from pipeline.readers.files import files_of
from pipeline.readers.io import byte_ranges, columns
from pipeline.storage import budget, placeholders, places

LARGEST_GROUP = 2**36  # bytes of a row group; a file may claim any number
_DICTIONARY = re.compile(rb"\x15\x04\x15([\x80-\xff]{0,4}[\x00-\x7f])")  # its size follows


class Reader(columns.ColumnReader):
    """Reader of columns; a file range is a range of row groups."""

    members = (".parquet", ".parq", ".pq")

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut between row groups, sized by the uncompressed bytes of the selected columns."""
        files = files_of(self.corpus, self.source, self.members, rows=True)
        ranges = list[FileRange]()
        for path in files:
            with self._open(str(path)) as file:
                ranges += byte_ranges.cut(str(path), self._numbered(str(path), file), split_bytes)
        return files.cut(ranges)

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of the row groups that begin in the file range.

        Raises:
            InputError: the file was changed or is damaged.
        """
        with self._open(file_range.path) as file:
            for group, number in byte_ranges.items_in_range(self._numbered(file_range.path, file), file_range, log):
                try:
                    count = self._rows_at_once(file_range.path, file, group)
                    for batch in file.iter_batches(count, [group], self.read_columns(file.schema_arrow)):
                        yield from self.documents(batch, file_range.path, number, log)
                        number += batch.num_rows
                except (OSError, ValueError, pa.ArrowException) as error:
                    why = f"row group {group} is damaged, after row {number} ({error}); download the file again"
                    raise InputError(why, path=file_range.path) from error

    def _open(self, path: str) -> Any:
        place = places.at(path)
        try:
            # A name need not be text; pyarrow would read some as a URI.
            source = pa.OSFile(os.fsencode(path)) if isinstance(place, Path) else place.open()
            # Pages are decompressed one by one: a row group of 1 GB does not need 1 GB of memory.
            file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            why = f"not a complete Parquet file ({error}); download the file again"
            raise placeholders.error_of(place, why) from error
        self.check(path, file.schema_arrow, file.metadata.metadata or {})
        return file

    def _chunks(self, file: Any, group: int) -> list[Any]:
        """Return what the file says of the selected columns in a row group."""
        wanted = {column.partition(".")[0] for column in self.columns(file.schema_arrow)}
        paths = [file.schema.column(index).path for index in range(len(file.schema))]
        meta = file.metadata.row_group(group)
        return [meta.column(index) for index, path in enumerate(paths) if path.partition(".")[0] in wanted]

    def _rows_at_once(self, path: str, file: Any, group: int) -> int:
        """Return how many rows fit in memory: each may repeat a dictionary's largest value.

        They are in memory twice, as are those read before them.
        """
        with places.at(path).open("rb") as source:
            sizes = [dictionary_size(source, chunk) for chunk in self._chunks(file, group)]
        return max(1, min(columns.ROWS, budget.DOCUMENT // 4 // max(1, sum(sizes))))

    def _numbered(self, path: str, file: Any) -> list[byte_ranges.Marked[tuple[int, int]]]:
        """Return each row group with the number of rows before it, a mark, and its size."""
        before, groups = 0, []
        mark, _ = places.mark_and_size(places.at(path))
        check_footer(path, mark, tuple(self.read_columns(file.schema_arrow)))
        for group in range(file.metadata.num_row_groups):
            size = sum(chunk.total_uncompressed_size for chunk in self._chunks(file, group))
            groups.append(((group, before), f"{mark}\x1f{group}", min(size, LARGEST_GROUP)))
            before += file.metadata.row_group(group).num_rows
        return groups


@functools.lru_cache(256)
def check_footer(path: str, mark: str, columns: tuple[str, ...]) -> None:
    """Have the library check what a file says of these columns; asked for their sizes, it would end the process.

    Raises:
        InputError: it is damaged.
    """
    with places.at(path).open("rb") as source:
        file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
    for group in range(file.num_row_groups):
        try:
            next(file.iter_batches(1, [group], list(columns)), None)
        except (OSError, pa.ArrowException) as error:
            raise InputError(f"row group {group} is damaged ({error}); download the file again", path=path) from error
        except ValueError:  # right so far: rows would be read now, but the file is closed
            pass


def dictionary_size(source: BinaryIO, chunk: Any) -> int:
    """Return the size of a column's dictionary, by the Thrift header of its first page."""
    starts = (chunk.dictionary_page_offset or 0, chunk.data_page_offset)
    source.seek(min(start for start in starts if start > 0))
    head = source.read(16)
    if head.startswith((b"\x15\x00", b"\x15\x06")):  # a page of data, without a dictionary
        return 0
    if (match := _DICTIONARY.match(head)) is None:
        return int(chunk.total_uncompressed_size)
    size: int = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(match[1])) >> 1
    return size
