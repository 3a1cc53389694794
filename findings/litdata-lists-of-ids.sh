#!/usr/bin/env bash
# litdata 0.2.76 (optimize, StreamingDataset), torch 2.13.0. (Installs 5 GB.)
#
# Guess: a function that gives optimize a list of token ids for each text, as tokenizers do, stores lists; or is
#   refused.
# Seen: each row comes back with the length of the first: shorter texts end with ids 0 that nobody wrote, longer ones
#   are cut, without a word. Where the first is empty all are. As a value of a dict ({"input_ids": [...]}), as an
#   array or a tensor, each keeps its length. bytes come back as memoryview.
# What follows: give it numpy arrays or tensors, and compare a few rows with what was written.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" litdata==0.2.76 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import json
import sys
from pathlib import Path

import litdata
import numpy as np

TEXTS = [[101, 7, 102], [101, 102], [101, 7, 8, 9, 102]]


def as_list(row: str) -> list[int]:
    return json.loads(row)


def as_dict(row: str) -> dict[str, list[int]]:
    return {"input_ids": json.loads(row)}


def as_array(row: str) -> np.ndarray:
    return np.array(json.loads(row))


def stored(function, out: str) -> litdata.StreamingDataset:
    rows = [json.dumps(ids) for ids in TEXTS]
    litdata.optimize(fn=function, inputs=rows, output_dir=out, num_workers=1, chunk_size=8, verbose=False)
    return litdata.StreamingDataset(out)


if __name__ == "__main__":
    lists = [list(row) for row in stored(as_list, "lists")]
    dicts = [list(row["input_ids"]) for row in stored(as_dict, "dicts")]
    arrays = [row.tolist() for row in stored(as_array, "arrays")]
    Path("seen").write_text(f"written {TEXTS}\nlists {lists}\nin a dict {dicts}\narrays {arrays}\n")
    sys.exit(not (dicts == arrays == TEXTS and lists == [[101, 7, 102], [101, 102, 0], [101, 7, 8]]))
PYTHON
export DATA_OPTIMIZER_CACHE_FOLDER="$place/cache" DATA_OPTIMIZER_DATA_CACHE_FOLDER="$place/data" HOME="$place"
venv/bin/python try.py > log 2>&1 || { cat log seen; exit 1; }
cat seen
