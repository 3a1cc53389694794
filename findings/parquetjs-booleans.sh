#!/usr/bin/env bash
# @dsnp/parquetjs 1.8.8 (npm, Node 20), beside pyarrow 21.0.0 (PyPI).
#
# Guess: it reads the values that pyarrow has written, with pages of version 1 and of version 2.
# Seen: pages of version 2 have booleans run-length encoded, which it takes for its plain form: all of them are false.
#   uint32 and uint64 of the upper half are negative in both versions. Texts, int64, float32 and nulls are right.
# What follows: filters by a flag ("duplicate", "keep") leave out all rows or none; hashes of texts match no others.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
cd "$place"
python3 -m venv env
env/bin/pip install --quiet --disable-pip-version-check pyarrow==21.0.0
npm install --silent --no-audit --no-fund @dsnp/parquetjs@1.8.8 > log 2>&1 || { cat log; exit 1; }
env/bin/python - <<'PYTHON'
import json

import pyarrow
from pyarrow import parquet

ROWS = 40
columns = {
    "text": [f"text {n} é" if n % 7 else None for n in range(ROWS)],
    "id": pyarrow.array(range(-1, ROWS - 1), pyarrow.int64()),
    "score": pyarrow.array([n / 4 for n in range(ROWS)], pyarrow.float32()),
    "keep": [n % 3 != 0 for n in range(ROWS)],
    "all": [True] * ROWS,
    "hash": pyarrow.array([2**31 + n for n in range(ROWS)], pyarrow.uint32()),
}
table = pyarrow.table(columns)
for version in ("1.0", "2.0"):
    parquet.write_table(table, f"pages-{version}.parquet", data_page_version=version)
    assert parquet.read_table(f"pages-{version}.parquet").equals(table)
with open("rows.json", "w", encoding="utf-8") as file:
    json.dump(table.to_pylist(), file)
PYTHON
cat > try.mjs <<'JS'
import assert from "node:assert";
import { readFileSync } from "node:fs";
import parquetjs from "@dsnp/parquetjs";

const rows = JSON.parse(readFileSync("rows.json"));
const expected = { "1.0": ["hash"], "2.0": ["keep", "all", "hash"] };
for (const [version, columns] of Object.entries(expected)) {
  const reader = await parquetjs.ParquetReader.openFile(`pages-${version}.parquet`);
  const cursor = reader.getCursor();
  const found = [];
  for (let row = await cursor.next(); row; row = await cursor.next()) found.push(row);
  await reader.close();
  const differs = (name) => rows.some((row, n) => String(row[name]) !== String(found[n][name]));
  const wrong = Object.keys(rows[0]).filter(differs);
  console.log(`pages of version ${version}: wrong are ${wrong}; row 1 is`, found[1]);
  assert.deepStrictEqual(wrong, columns);
  assert(version === "1.0" || found.every((row) => row.keep === false && row.all === false));
  assert(found.every((row, n) => row.hash === rows[n].hash - 2 ** 32));
}
JS
node try.mjs
