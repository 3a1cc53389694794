#!/usr/bin/env bash
# mosaicml-streaming 0.13.0 (StreamingDataLoader), torch 2.13.0, transformers 4.57.6. (Installs 5 GB.)
#
# Guess: a training that was stopped within an epoch and resumed by state_dict reads each sample of that epoch once,
#   whatever the collate function makes of a batch: the loader knows its batch_size.
# Seen: it counts what the batch looks like: the length of the first value of a dict, or of the first item of a list. So
#   a dict with a list for each field is right. Packed rows are counted instead of samples: of three batches of four
#   documents that fill one row each, 3 are counted, and nine documents come twice. A list of pairs counts 2 a batch, a
#   list of texts, which is the default where a data set gives texts, the letters of the first: the state is then too
#   far ahead, and documents are left out, or beyond the end, a ValueError.
# What follows: count samples in the loop, and save dataset.state_dict(samples, False), which is right.
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/pip" install --quiet --disable-pip-version-check uv
"$place/venv/bin/uv" pip install --quiet --python "$place/venv/bin/python" \
    mosaicml-streaming==0.13.0 torch==2.13.0 transformers==4.57.6
cd "$place"
cat > try.py <<'PYTHON'
import sys
import warnings

import torch
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset

warnings.simplefilter("ignore")
TOTAL, BATCH, DONE, ROW = 64, 4, 3, 8
with MDSWriter(out="shards", columns={"text": "str", "number": "int"}) as writer:
    for number in range(TOTAL):
        writer.write({"text": f"{number}" + " word" * 2, "number": number})


class Texts(StreamingDataset):
    def __getitem__(self, at: int) -> str:
        return super().__getitem__(at)["text"]


def pack(samples: list[dict]) -> dict[str, torch.Tensor]:
    ids = torch.full((-(-len(samples) // ROW), ROW), -1)
    ids.view(-1)[: len(samples)] = torch.tensor([sample["number"] for sample in samples])
    return {"input_ids": ids}


CASES = {
    "a dict of lists": (StreamingDataset, None, lambda batch: batch["number"].tolist()),
    "packed rows": (StreamingDataset, pack, lambda batch: [n for n in batch["input_ids"].flatten().tolist() if n >= 0]),
    "pairs": (
        StreamingDataset,
        lambda samples: [(sample["text"], sample["number"]) for sample in samples],
        lambda batch: [number for _, number in batch],
    ),
    "texts": (Texts, None, lambda batch: [int(text.split()[0]) for text in batch]),
}


def resumed(kind, collate, numbers, counted: bool) -> tuple[int, str]:
    """Stop after some batches, go on, and tell what was counted and what became of the samples."""

    def loader() -> StreamingDataLoader:
        dataset = kind(local="shards", batch_size=BATCH, shuffle=True, shuffle_seed=1, num_canonical_nodes=1)
        return StreamingDataLoader(dataset, batch_size=BATCH, collate_fn=collate)

    first = loader()
    batches = iter(first)
    seen = [number for _ in range(DONE) for number in numbers(next(batches))]
    state = first.dataset.state_dict(BATCH * DONE, False) if counted else first.state_dict()
    del batches, first
    second = loader()
    second.load_state_dict(state)
    try:
        seen += [number for batch in second for number in numbers(batch)]
    except ValueError as error:
        return state["sample_in_epoch"], f"ValueError: {error}"
    return state["sample_in_epoch"], f"{len(seen) - len(set(seen))} twice, {TOTAL - len(set(seen))} never"


found = {name: resumed(*case, counted=False) for name, case in CASES.items()}
for name, (count, fate) in found.items():
    print(f"{name}: {BATCH * DONE} samples given, {count} counted, {fate}")
cured = {name: resumed(*case, counted=True) for name, case in CASES.items()}
print("counted in the loop:", cured)
right = (BATCH * DONE, "0 twice, 0 never")
seen = found["a dict of lists"] == right and found["packed rows"] == (3, "9 twice, 0 never")
seen = seen and found["pairs"] == (6, "6 twice, 0 never") and set(cured.values()) == {right}
sys.exit(not (seen and found["texts"][0] > BATCH * DONE and found["texts"][1] != right[1]))
PYTHON
venv/bin/python try.py
