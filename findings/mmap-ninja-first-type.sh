#!/usr/bin/env bash
# mmap-ninja 0.9.0 (RaggedMmap: rows of different lengths, as token ids, spans or labels of texts), numpy 2.4.6.
#
# Guess: a row comes back with the numbers that were written, or is refused where the store's type cannot hold it; numpy
#   itself refuses 70,000 as uint16.
# Seen: the first row decides on the type of all, and each later one is cast to it without a word. Where the first text
#   has hard labels, [0, 1], the soft labels after it, [0.25, 0.75], are [0, 0]. To a store of uint16 ids that is
#   extended after the vocabulary has grown, 70,000 is added as 4,464, the id of another word. from_lists,
#   from_generator, append and extend do the same.
# What follows: give each row the type that the largest needs, np.asarray(row, dtype=...), before it is written.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check mmap-ninja==0.9.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

import numpy as np
from mmap_ninja import RaggedMmap

LABELS = [[0, 1], [0.25, 0.75], [0.9, 0.1]]
IDS = [np.array(row, dtype=np.uint16) for row in ([1, 2, 3], [60000])]


def rows(folder: str) -> list[list[float]]:
    return [row.tolist() for row in RaggedMmap(folder)]


RaggedMmap.from_lists("listed", LABELS)
RaggedMmap.from_generator("made", (np.asarray(row) for row in LABELS), batch_size=2)
store = RaggedMmap.from_lists("ids", IDS)
store.append(np.array([7, 70000]))
store.extend([np.array([70001])])
listed, made, ids = rows("listed"), rows("made"), rows("ids")
print(f"labels {LABELS}: from_lists {listed}, from_generator {made}")
print(f"ids [1, 2, 3], [60000], then [7, 70000], [70001]: {ids}")
zeros = [[0, 1], [0, 0], [0, 0]]
sys.exit(not (listed == made == zeros and ids == [[1, 2, 3], [60000], [7, 4464], [4465]]))
PYTHON
venv/bin/python try.py
