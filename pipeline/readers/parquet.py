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
from pipeline.readers.io import byte_ranges, row_fields
from pipeline.storage import budget, placeholders, places

ROWS = 256  # held in memory as Python objects at once
LARGEST_GROUP = 2**36  # bytes of a row group; a file may claim any number
_DICTIONARY = re.compile(rb"\x15\x04\x15([\x80-\xff]{0,4}[\x00-\x7f])")  # its size follows


class Reader(row_fields.RowReader):
    """Reader of columns; a file range is a range of row groups."""

    def splits(self, split_bytes: int) -> FileRanges:
        """Cut between row groups, sized by the uncompressed bytes of the selected columns."""
        files = files_of(self.corpus, self.source, (".parquet",))
        found = FileRanges(notes=files.notes)
        for path in files:
            with self._open(str(path)) as file:
                found += byte_ranges.cut(str(path), self._numbered(str(path), file), split_bytes)
        return found

    def read(self, file_range: FileRange, log: ReadLog) -> Documents:
        """Yield the documents of the row groups that begin in the file range.

        Raises:
            InputError: the file was changed or is damaged.
        """
        with self._open(file_range.path) as file:
            for group, first in byte_ranges.items_in_range(self._numbered(file_range.path, file), file_range, log):
                number = first
                try:
                    count = self._rows_at_once(file_range.path, file, group)
                    batches = file.iter_batches(count, [group], self._columns(file))
                    for row in (row for batch in batches for row in rows(batch)):
                        number += 1
                        where = f"{file_range.path} row {number}"
                        try:
                            if isinstance(row, UnicodeDecodeError):
                                raise row_fields.not_utf8(row)
                            document = self.document(row, where, log)
                        except ValueError as error:
                            log.reject(str(error), where)
                            continue
                        if document is not None:
                            yield document
                except (OSError, ValueError, pa.ArrowException) as error:
                    raise InputError(
                        f"row group {group} is damaged, after row {number} ({error}); download the file again",
                        path=file_range.path,
                    ) from error

    def _open(self, path: str) -> Any:
        place = places.at(path)
        try:
            # A name need not be text; pyarrow would read some as a URI.
            source = pa.OSFile(os.fsencode(path)) if isinstance(place, Path) else place.open()
            # Pages are decompressed one by one: a row group of 1 GB does not need 1 GB of memory.
            file = pq.ParquetFile(source, buffer_size=1 << 20, pre_buffer=False)
        except (OSError, ValueError, pa.ArrowException) as error:
            stand_in = placeholders.of_file(place) if place.is_file() else None
            why = stand_in or f"not a complete Parquet file ({error}); download the file again"
            raise InputError(why, path=path) from error
        self._check(path, file)
        return file

    def _check(self, path: str, file: Any) -> None:
        """Raise InputError unless the selected columns exist and hold text."""
        schema = file.schema_arrow
        for name, top in zip(self.names(), self._columns(file), strict=True):
            if top not in schema.names:
                key = self.key(name)
                if f"/{top}=" in path:  # as Hive has it
                    part = re.match(f".*?/{re.escape(top)}=[^/]*", path)
                    problem = f"{top} is in the names of folders, not a column; remove it and set corpus.path="
                    raise InputError(f"{problem}{part and part[0]}, or another such folder", key, path=path)
                raise InputError(f"column {name} not found among {', '.join(schema.names)}; set {key}", key, path=path)
            if schema.names.count(top) > 1:
                raise InputError(
                    f"has {schema.names.count(top)} columns named {top}; rename the others", self.key(name), path=path
                )
        for name in self.text:
            kind = schema.field(name).type if name in schema.names else pa.string()
            if not holds_text(kind):
                raise InputError(
                    f"column {name} holds {kind}, not text; set corpus.options.text", "corpus.options.text", path=path
                )

    def _columns(self, file: Any) -> list[str]:
        """Return the selected top-level columns; selecting one selects all fields nested in it."""
        names = file.schema_arrow.names
        return [name if name in names else name.partition(".")[0] for name in self.names()]

    def _chunks(self, file: Any, group: int) -> list[Any]:
        """Return what the file says of the selected columns in a row group."""
        wanted = {column.partition(".")[0] for column in self._columns(file)}
        paths = [file.schema.column(index).path for index in range(len(file.schema))]
        meta = file.metadata.row_group(group)
        return [meta.column(index) for index, path in enumerate(paths) if path.partition(".")[0] in wanted]

    def _rows_at_once(self, path: str, file: Any, group: int) -> int:
        """Return how many rows fit in memory: each may repeat a dictionary's largest value.

        They are in memory twice, as are those read before them.
        """
        with places.at(path).open("rb") as source:
            sizes = [dictionary_size(source, chunk) for chunk in self._chunks(file, group)]
        return max(1, min(ROWS, budget.DOCUMENT // 4 // max(1, sum(sizes))))

    def _numbered(self, path: str, file: Any) -> list[byte_ranges.Marked[tuple[int, int]]]:
        """Return each row group with the number of rows before it, a mark, and its size."""
        before, found = 0, []
        mark, _ = places.mark_and_size(places.at(path))
        check_footer(path, mark, tuple(self._columns(file)))
        for group in range(file.metadata.num_row_groups):
            size = sum(chunk.total_uncompressed_size for chunk in self._chunks(file, group))
            found.append(((group, before), f"{mark}\x1f{group}", min(size, LARGEST_GROUP)))
            before += file.metadata.row_group(group).num_rows
        return found


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
    if (found := _DICTIONARY.match(head)) is None:
        return int(chunk.total_uncompressed_size)
    size: int = sum((byte & 0x7F) << 7 * place for place, byte in enumerate(found[1])) >> 1
    return size


def holds_text(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are texts, lists of texts or null."""
    types = pa.types
    if types.is_list(kind) or types.is_large_list(kind):
        kind = kind.value_type
    if types.is_dictionary(kind):
        kind = kind.value_type
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    binary = (types.is_binary, types.is_large_binary, types.is_binary_view)
    return any(is_text(kind) for is_text in (*texts, *binary))


def rows(batch: Any) -> list[dict[str, Any] | UnicodeDecodeError]:
    """Return the rows of a batch; for one whose text is not UTF-8 the error."""
    for number, field in enumerate(batch.schema):
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":  # Python's have no nanoseconds
            cut = batch.column(number).cast(pa.timestamp("us", field.type.tz), safe=False)
            batch = batch.set_column(number, field.name, cut)
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError as error:  # Parquet files need not be valid: find the rows
        if batch.num_rows == 1:
            return [error]
    return [row for at in range(batch.num_rows) for row in rows(batch.slice(at, 1))]
