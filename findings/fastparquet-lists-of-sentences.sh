#!/usr/bin/env bash
# fastparquet 2026.9.0 (ParquetFile, pandas' and dask's engine "fastparquet"), beside pyarrow 25.0.1.
#
# Guess: a column that holds a list of strings for each document (its sentences, tags, addresses), written by pyarrow as
#   it does unless told, is read as it was written, or refused: the documentation names lists among what it reads.
# Seen: as long as the strings are few, it is. Once a column chunk's dictionary has more than 1 MB pyarrow writes the
#   rest as plain strings, and from that page on each row is None: of 20,000 rows the second half. Nothing is said. With
#   use_dictionary=False all rows are None. Lists of int32, and columns of single strings, are right. Lists of float16,
#   as vectors are kept, come back as lists of strings of two characters.
# What follows: a small sample of a corpus is whole, the corpus is not. Read it by pyarrow; in pandas and dask, do not
#   set engine="fastparquet".
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check fastparquet==2026.9.0 pyarrow==25.0.1 pandas==3.1.1
cd "$place"
cat > try.py <<'PYTHON'
import hashlib
import sys

import pyarrow as pa
import pyarrow.parquet as pq
from fastparquet import ParquetFile


def sentences(row: int) -> list[str]:
    return [hashlib.sha1(f"{row} {number}".encode()).hexdigest() for number in range(1 + row % 4)]


def read(values: pa.Array, **options: bool) -> list[object]:
    pq.write_table(pa.table({"column": values}), "rows.parquet", **options)
    assert pq.read_table("rows.parquet")["column"].to_pylist() == values.to_pylist()
    return ParquetFile("rows.parquet").to_pandas()["column"].tolist()


lost = []
for rows, options in ((2000, {}), (20000, {}), (2000, {"use_dictionary": False})):
    written = [sentences(row) for row in range(rows)]
    got = read(pa.array(written), **options)
    lost.append(sum(value is None for value in got))
    right = sum(value == row for value, row in zip(got, written, strict=True))
    print(f"{rows} lists of strings {options}: {right} right, {lost[-1]} None")
ids = [list(range(row % 500)) for row in range(20000)]
same = [list(value) for value in read(pa.array(ids, pa.list_(pa.int32())))] == ids
halves = read(pa.array([[1.0, 2.0], [3.0]], pa.list_(pa.float16())))
print(f"lists of int32 right: {same}; float16 [[1, 2], [3]]: {halves}")
seen = lost[0] == 0 and 5000 < lost[1] < 15000 and lost[2] == 2000 and same
sys.exit(not (seen and isinstance(halves[0][0], str | bytes)))
PYTHON
venv/bin/python try.py
