"""Profile of our training step, by type of operation."""

import argparse
import time
from collections import Counter
from typing import Any

import torch

from benchmarks.model import train_worker
from model.training import cost

# An operation belongs to the first type with a word that its name contains.
KINDS = {
    "matrix products of attention": ("bmm", "baddbmm"),
    "matrix products": ("mm", "linear", "mkldnn"),
    "activation (GELU)": ("gelu",),
    "layer norms": ("layer_norm",),
    "softmax and losses": ("softmax", "logsumexp", "amax", "exp", "log"),
    "dropout": ("random_", "ge", "bernoulli", "native_dropout", "lt"),
    "optimizer": ("adamw",),
    "copies and number formats": ("copy_", "cat", "clone", "fill_", "zero_", "embedding", "index"),
    "element-wise sums and products": ("add", "mul", "sub", "div", "sum"),
}
OTHER = "everything else"


def kind_of(name: str) -> str:
    """Return the type of an operation, given its name."""
    name = name.removeprefix("aten::").removeprefix("mkldnn::")
    return next((kind for kind, words in KINDS.items() if any(w in name for w in words)), OTHER)


def show(options: argparse.Namespace) -> None:
    """Print the time of one step by type of operation, and the bound by matrix products."""
    torch.set_num_threads(options.threads)
    torch.set_flush_denormal(True)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = train_worker.model_config(options)
    batches = [batch.to(device) for batch in train_worker.read(options)][:1]
    run, (item, *_) = train_worker.build(options, config, batches, device)
    for _ in range(5):
        run(item)
    seconds = min(timed(run, item) for _ in range(3))
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run(item)
    spent: Counter[str] = Counter()
    for event in profile.key_averages():
        spent[kind_of(event.key)] += event.self_cpu_time_total / 1e6
    total = sum(spent.values())
    lengths = batches[0].cu_seqlens.diff().tolist()
    ideal = cost.operations(config, lengths) / train_worker.product(options)
    print(
        f"\n{options.size}, {options.precision}, {sum(lengths):,} tokens: {seconds:.2f} s per step "
        f"({total:.2f} s under the profiler); the model's FLOPs at the rate of the measured matrix "
        f"product would take {ideal:.2f} s\n\n| | share of a step |\n|---|---:|"
    )
    for kind, part in spent.most_common():
        print(f"| {kind} | {part / total:.0%} |")


def timed(run: Any, item: Any) -> float:
    """Return the seconds of one step."""
    began = time.perf_counter()
    run(item)
    return time.perf_counter() - began
