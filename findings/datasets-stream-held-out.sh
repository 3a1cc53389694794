#!/usr/bin/env bash
# datasets 5.2.0 (IterableDataset.take and skip), torch 2.13.0. (Installs 5 GB.)
#
# Guess: take(4) and skip(4) divide a stream in two parts, as the documentation shows for validation and training:
#   no row is in both, whatever reads them.
# Seen: so it is in one process. Each worker of a DataLoader, and each node of split_dataset_by_node, takes and skips
#   its share of the four in its own shards. A validation set that was taken at once, and a training by two workers
#   have half of its rows in common, with four workers three quarters; the rows skipped instead are trained on by
#   nobody. Taken and skipped by the same number of workers the parts fit. No warning.
# What follows: rows that were held out are in the training, and a loss on them looks too good. Divide by files
#   (data_files=), or by a filter on the text's hash.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" datasets==5.2.0 torch==2.13.0 numpy==2.4.6
cd "$place"
cat > try.py <<'PYTHON'
import sys

from datasets import Dataset, IterableDataset
from datasets.distributed import split_dataset_by_node
from torch.utils.data import DataLoader

ROWS, SHARDS, HELD = 16, 4, 4


def by_workers(stream: IterableDataset, workers: int) -> set[int]:
    return {int(row["row"]) for row in DataLoader(stream, batch_size=None, num_workers=workers)}


def by_nodes(stream: IterableDataset, nodes: int) -> set[int]:
    return {row["row"] for rank in range(nodes) for row in split_dataset_by_node(stream, rank=rank, world_size=nodes)}


if __name__ == "__main__":
    stream = Dataset.from_dict({"row": list(range(ROWS))}).to_iterable_dataset(num_shards=SHARDS)
    held = {row["row"] for row in stream.take(HELD)}
    print(f"held out by take({HELD}): {sorted(held)}")
    both = []
    for name, read in (("workers", by_workers), ("nodes", by_nodes)):
        for count in (1, 2, 4):
            trained = read(stream.skip(HELD), count)
            lost = set(range(ROWS)) - trained - held
            both.append((len(trained & held), len(lost)))
            print(f"{count} {name}: held out and trained on {sorted(trained & held)}, in neither {sorted(lost)}")
            assert not read(stream.take(HELD), count) & trained
    sys.exit(both != [(0, 0), (2, 2), (3, 3)] * 2)
PYTHON
venv/bin/python try.py 2> log || { cat log; exit 1; }
