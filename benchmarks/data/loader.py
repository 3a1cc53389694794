"""Samples per second on one core: our loader and Hugging Face's collator.

`python -m benchmarks.data.loader` makes shards of random tokens with realistic lengths (77 % full, the
rest uniform), reads the same samples both ways in one process, and prints rates and ratios in CPU
time, which other load hardly affects. Both produce torch tensors of masked tokens; only ours
also reads them from disk, in shuffled order.
"""

import argparse
import itertools
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["OMP_NUM_THREADS"] = "1"

import torch
from transformers import BertTokenizerFast, DataCollatorForLanguageModeling

from benchmarks.data.samples import make_shards, make_vocab, tokenizer_of
from benchmarks.shared import heading, keep, timed
from model.config import DataConfig, ObjectiveConfig
from model.loader.loader import Loader

LENGTH, BATCH = 128, 256


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--shards", type=int, default=4)
    parser.add_argument("--repeats", type=int, default=5, help="the best counts")
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        vocab = make_vocab(folder)
        for name in ("shards", "more"):
            (folder / name).mkdir()
            make_shards(folder / name, options.rows, options.shards, LENGTH)
        measure(folder, vocab, options.repeats)


def measure(folder: Path, vocab: list[str], repeats: int) -> None:
    tokenizer = tokenizer_of(vocab)

    def loader(more: int = 0, **masks: Any) -> Loader:
        objective = ObjectiveConfig(name="benchmark", **masks)
        others = [str(folder / "more")] * more
        data = DataConfig(dir=str(folder / "shards"), vocab="v", more=others, weights=[3.0] * more + [1.0] * more)
        return Loader(data, objective, tokenizer, 0, "train")

    began = time.perf_counter()
    ours, whole = loader(), loader(whole_word=True)
    spans, mixed = loader(whole_word=True, span=10), loader(more=1)
    print(f"opening and ordering {5 * ours.samples:,} rows: {time.perf_counter() - began:.3f} s\n")
    samples = [sample for _, sample in zip(range(16 * BATCH), unmasked(ours), strict=False)]
    hugging_face = BertTokenizerFast(vocab_file=str(folder / "vocab.txt"))
    collator = DataCollatorForLanguageModeling(hugging_face, mlm_probability=0.15)
    runs: list[tuple[str, Callable[[], Any], int]] = [
        ("this loader", lambda: read(ours, 400, 1), 400 * BATCH),
        ("this loader, micro-batches of 32", lambda: read(ours, 400, 8), 400 * BATCH),
        ("this loader, two folders by weight", lambda: read(mixed, 400, 1), 400 * BATCH),
        ("this loader, whole words", lambda: read(whole, 100, 1), 100 * BATCH),
        ("this loader, spans of whole words", lambda: read(spans, 100, 1), 100 * BATCH),
        ("Hugging Face collator", lambda: by_batches(samples, collator), len(samples)),
    ]
    rates = {}
    for name, run, count in runs:
        run()
        rates[name] = count / min(timed(run)[1] for _ in range(repeats))
    print(heading(f"{BATCH} x {LENGTH}, one core | samples/s of CPU time | speed-up of this loader"))
    for name, rate in rates.items():
        if not name.startswith("this"):
            keep(f"loader: {name}", rates["this loader"] / rate)
        print(f"| {name} | {rate:,.0f} | {rates['this loader'] / rate:.1f} x |")


def read(loader: Loader, steps: int, parts: int) -> None:
    for step in range(steps):
        loader.batch(step * BATCH, BATCH, micro_batch=BATCH // parts)


def unmasked(loader: Loader) -> Iterator[dict[str, list[int]]]:
    """Yield the loader's samples as lists without masks, as from a tokenized data set."""
    start = 0
    while True:
        batch = loader.batch(start, BATCH).batches[0]
        batch.input_ids[batch.masked_positions] = batch.masked_labels
        edges = batch.cu_seqlens.tolist()
        for first, last in itertools.pairwise(edges):
            yield {
                "input_ids": batch.input_ids[first:last].tolist(),
                "token_type_ids": batch.segment_ids[first:last].tolist(),
                "attention_mask": [1] * (last - first),
            }
        start += BATCH


def by_batches(samples: list[dict[str, list[int]]], collate: Callable[[Any], Any]) -> None:
    for first in range(0, len(samples), BATCH):
        collate(samples[first : first + BATCH])


if __name__ == "__main__":
    main()
