#!/usr/bin/env bash
# datasets 5.2.0 (IterableDataset.map and filter with with_indices=True).
#
# Guess: the index of a row of a stream is its place in the data set, and no two rows have the same; ids and a
#   held-out share made by it stay what they are when the stream is shuffled or divided afterwards.
# Seen: each shard counts from 0 as soon as a shuffle or split_dataset_by_node follows (workers of a DataLoader do the
#   same): ids of eight rows in four shards are 0 and 1, four times each, and a filter that holds out "every fourth
#   row" holds out others, or none: rows are in training and test. Unshuffled, undivided all is right. No warning.
# What follows: write ids into the data, or make them of the text (a hash), before it becomes a stream.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check datasets==5.2.0
cd "$place"
export HF_HOME="$place/home"
cat > try.py <<'PYTHON'
import sys

from datasets import Dataset, IterableDataset
from datasets.distributed import split_dataset_by_node

stream = Dataset.from_dict({"row": list(range(8))}).to_iterable_dataset(num_shards=4)
marked = stream.map(lambda _, index: {"id": index}, with_indices=True)
train = stream.filter(lambda _, index: index % 4 != 3, with_indices=True)
test = stream.filter(lambda _, index: index % 4 == 3, with_indices=True)


def column(rows: IterableDataset, name: str) -> list[int]:
    return sorted(row[name] for row in rows)


def nodes(rows: IterableDataset, name: str) -> list[int]:
    return sorted(sum((column(split_dataset_by_node(rows, rank, 2), name) for rank in range(2)), []))


def shuffled(rows: IterableDataset, name: str) -> list[int]:
    return column(rows.shuffle(seed=1, buffer_size=2), name)


ids = {way.__name__: way(marked, "id") for way in (column, shuffled, nodes)}
held = {way.__name__: way(test, "row") for way in (column, shuffled, nodes)}
both = {way.__name__: sorted(set(way(train, "row")) & set(column(test, "row"))) for way in (column, shuffled, nodes)}
print("ids:", ids, "held out:", held, "in training and in the plain test:", both, sep="\n")
right = ids["column"] == list(range(8)) and held["column"] == [3, 7] and not both["column"]
repeated = ids["shuffled"] == [0, 0, 0, 0, 1, 1, 1, 1] and ids["nodes"] == [0, 0, 1, 1, 2, 2, 3, 3]
sys.exit(not (right and repeated and held["shuffled"] == [] and both["shuffled"] == [3, 7] and both["nodes"]))
PYTHON
venv/bin/python try.py
