"""Documents from the columns of Arrow's tables."""

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from pipeline.errors import InputError
from pipeline.readers.base import Documents, ReadLog
from pipeline.readers.io import row_fields, table_logs

ROWS = 256  # held in memory as Python objects at once
_LISTS = (pa.ListType, pa.LargeListType, pa.FixedSizeListType, pa.ListViewType, pa.LargeListViewType)


class ColumnReader(row_fields.RowReader):
    """Reader of columns."""

    def check(self, path: str, schema: Any, keys: Mapping[bytes, bytes]) -> None:
        """Raise InputError unless the selected columns exist and hold text."""
        for sign, known, why in (
            ("_hoodie_commit_time", schema.names, table_logs.HUDI),
            (b"iceberg.schema", keys, table_logs.ICEBERG),
        ):
            if sign in known:
                raise InputError(why, path=path)
        self.check_names(self.columns(schema), schema.names, path)
        for name in self.text:
            kind = schema.field(name).type if name in schema.names else pa.string()
            if not holds_text(kind):
                within = f"={name}.FIELD, FIELD one of these" if pa.types.is_struct(kind) else ""
                why = f"column {name} holds {kind}, not text; set corpus.options.text{within}"
                raise InputError(why, "corpus.options.text", path=path)

    def columns(self, schema: Any) -> list[str]:
        """Return the selected top-level columns; selecting one selects all fields nested in it."""
        return [name if name in schema.names else name.partition(".")[0] for name in self.names()]

    def read_columns(self, schema: Any) -> list[str]:
        """Return these and the column of titles, if there is one, each once."""
        titles = ["title"] if schema.names.count("title") == 1 else []
        return list(dict.fromkeys([*self.columns(schema), *titles]))

    def documents(self, batch: Any, path: str, before: int, log: ReadLog) -> Documents:
        """Yield the documents of the rows of a batch; `before` are those before it in the file."""
        for number, row in enumerate(rows(batch), before + 1):
            where = f"{path} row {number}"
            try:
                if isinstance(row, UnicodeDecodeError):
                    raise row_fields.not_utf8(row)
                yield from self.documents_of(row, where, log)
            except ValueError as error:
                log.reject(str(error), where)


def holds_text(kind: pa.DataType) -> bool:
    """Return whether the values of an Arrow type are texts, lists of texts or null."""
    types = pa.types
    while isinstance(kind, (*_LISTS, pa.DictionaryType, pa.RunEndEncodedType)):
        kind = kind.value_type
    texts = (types.is_string, types.is_large_string, types.is_string_view, types.is_null)
    return any(is_text(kind) for is_text in (*texts, types.is_binary, types.is_large_binary, types.is_binary_view))


def rows(batch: Any) -> list[dict[str, Any] | UnicodeDecodeError]:
    """Return the rows of a batch; for one whose text is not UTF-8 the error."""
    for number, field in enumerate(batch.schema):
        column = batch.column(number)
        if pa.types.is_timestamp(field.type) and field.type.unit == "ns":  # Python's have no nanoseconds
            column = column.cast(pa.timestamp("us", field.type.tz), safe=False)
        elif pa.types.is_float32(field.type):  # as it is shown: 0.7, not the 0.699999988 nearest to it
            column = column.cast(pa.string()).cast(pa.float64())
        else:
            continue
        batch = batch.set_column(number, field.name, column)
    try:
        return list(batch.to_pylist())
    except UnicodeDecodeError as error:  # Parquet files need not be valid: find the rows
        if batch.num_rows == 1:
            return [error]
    return [row for at in range(batch.num_rows) for row in rows(batch.slice(at, 1))]
