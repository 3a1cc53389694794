#!/usr/bin/env bash
# duckdb 2.0.1 (COPY to Parquet), beside pyarrow 25.0.1 and polars 2.1.0.
#
# Guess: a column of vectors, FLOAT[384] as its type for embeddings is written, with some rows NULL is a Parquet file
#   that all readers open; DuckDB reads it back.
# Seen: one NULL, and pyarrow refuses the column ("Length spanned by list offsets (7) larger than values array"), and
#   so does all that reads by it, as datasets and pandas do. DuckDB and polars read the same file, so that nothing
#   shows where it is written. A length of 1, no NULL, and the type FLOAT[] are right.
# What follows: cast to FLOAT[] in COPY, or leave rows without a vector out.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check duckdb==2.0.1 pyarrow==25.0.1 polars==2.1.0
cd "$place"
cat > try.py <<'PYTHON'
import sys

import duckdb
import polars
import pyarrow
import pyarrow.parquet as parquet

ROWS = "FROM range(4) numbers(i)"


def written(vector: str, null: str = "i = 1") -> list[list[float] | None]:
    """What DuckDB holds, and writes to a file."""
    query = f"SELECT CASE WHEN {null} THEN NULL ELSE {vector} END AS vector {ROWS}"
    duckdb.sql(f"COPY ({query}) TO 'it.parquet' (FORMAT parquet)")
    return [None if row is None else list(row) for (row,) in duckdb.sql(query).fetchall()]


def readers(rows: list[list[float] | None]) -> dict[str, bool | str]:
    """Of each reader whether it gives the rows, or what it says."""
    found = {
        "duckdb": duckdb.sql("FROM 'it.parquet'").fetchall() == [(row,) for row in rows],
        "polars": polars.read_parquet("it.parquet")["vector"].to_list() == rows,
    }
    try:
        return found | {"pyarrow": parquet.read_table("it.parquet")["vector"].to_pylist() == rows}
    except pyarrow.ArrowInvalid as error:
        return found | {"pyarrow": str(error)}


seen = {
    "FLOAT[2], a NULL": readers(written("[i, i + 0.5]::FLOAT[2]")),
    "FLOAT[2], no NULL": readers(written("[i, i + 0.5]::FLOAT[2]", "false")),
    "FLOAT[1], a NULL": readers(written("[i]::FLOAT[1]")),
    "FLOAT[], a NULL": readers(written("[i, i + 0.5]::FLOAT[]")),
}
for name, found in seen.items():
    print(f"{name}: {found}")
first, *others = seen.values()
refused = "Length spanned by list offsets" in str(first["pyarrow"])
right = all(set(found.values()) == {True} for found in others)
sys.exit(not (refused and first["duckdb"] is first["polars"] is True and right))
PYTHON
venv/bin/python try.py
