"""Tokens per second of a training step: our encoder, Hugging Face's, and a textbook implementation.

    python -m benchmarks.model.train --size base --precision bf16
    python -m benchmarks.model.train --size base --precision bf16 --ablate

Every peer is a separate process with the same number of threads, number format, optimizer, memory
settings and batches. Without `--batch`, a step has 4,096 positions; 77 % of its samples are full, the
other lengths are uniform. Lengths of documents have a median of a quarter of the longest. Peers alternate, one pass
over the batches each, so that other load affects all of them, and the best pass counts. A step is
forward, backward and a fused AdamW update. Padding does not count: tokens are real tokens, and
FLOP/s are the published count for them (model/training/cost.py), whatever a peer computes. MFU is
relative to the rate of a matrix product of a shape that occurs in the model, measured in the same
run.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.shared import heading, keep

WITHOUT = {
    "masked-head": "scores at every position, not only masked ones",
    "each": "attention over padded sequences",
    "dropout": "PyTorch's dropout",
}
PEERS = {
    "ours": "ours",
    "ours-compiled": "ours, compiled",
    "hf": "Hugging Face, eager",
    "hf-compiled": "Hugging Face, compiled",
    "textbook": "textbook, padded",
    "ours-roberta": "ours, RoBERTa",
    "hf-roberta": "Hugging Face's RoBERTa, eager",
    "engine": "ours, in DeepSpeed's engine, ZeRO 1",
    **{f"without-{trick}": f"ours, with {instead}" for trick, instead in WITHOUT.items()},
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="tiny", help="a name of conf/model")
    parser.add_argument("--precision", default="fp32", choices=["fp32", "bf16"])
    parser.add_argument("--length", type=int, default=128)
    parser.add_argument("--lengths", default="pairs", choices=["pairs", "documents"])
    parser.add_argument("--batch", type=int, help="samples per step; default: 4096 tokens")
    parser.add_argument("--batches", type=int, default=2, help="batches per pass")
    parser.add_argument("--passes", type=int, default=4, help="the best pass counts")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--attention", default="auto", help="our backend")
    parser.add_argument("--peers", nargs="+", default=[*list(PEERS)[:5], "engine"], choices=list(PEERS))
    parser.add_argument("--ablate", action="store_true", help="ours without one trick at a time")
    parser.add_argument("--out", type=Path, help="append the results to this JSON-lines file")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.batch = options.batch or max(1, 4096 // options.length)
    if options.worker:
        from benchmarks.model import train_worker

        train_worker.serve(options)
        return
    peers = ["ours", *(f"without-{trick}" for trick in WITHOUT)] if options.ablate else options.peers
    with tempfile.TemporaryDirectory() as folder:
        report(options, measure(options, peers, folder))


def measure(options: argparse.Namespace, peers: list[str], folder: str) -> dict[str, Any]:
    """Return the results by peer; `ratio` is the speed-up of the first one, ours, over it."""
    make_data(options, folder)
    if not options.ablate:
        return race(options, peers, folder)
    rows: dict[str, Any] = {}
    for variant in peers[1:]:  # to save memory, one variant at a time against ours
        pair = race(options, [peers[0], variant], folder)
        rows = {peers[0]: pair[peers[0]], **rows, variant: pair[variant]}
    return rows


def race(options: argparse.Namespace, peers: list[str], folder: str) -> dict[str, Any]:
    """Return the best pass of each peer; peers alternate."""
    best: dict[str, Any] = {}
    workers: dict[str, subprocess.Popen[str]] = {}
    try:
        for peer in peers:
            pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
            worker = subprocess.Popen(worker_command(peer, folder), text=True, env=environment(options), **pipes)
            if ask(worker) is None:  # else built, compiled and warmed up
                print(f"{PEERS[peer]}: failed, see its error above; skipped")
                continue
            workers[peer] = worker
        for _ in range(options.passes):
            for peer, worker in workers.items():
                row = ask(worker)
                if row is None:
                    raise SystemExit(f"{PEERS[peer]}: failed, see its error above")
                if peer not in best or row["seconds"] < best[peer]["seconds"]:
                    best[peer] = row
    finally:
        for worker in workers.values():
            worker.kill()
            worker.wait()
    first = best[next(iter(best))]
    for row in best.values():
        row["ratio"] = first["tokens"] / first["seconds"] / (row["tokens"] / row["seconds"])
    return best


def make_data(options: argparse.Namespace, folder: str) -> None:
    """Write the shards that every worker reads."""
    from benchmarks.data.samples import make_shards, make_vocab

    make_vocab(Path(folder))
    rows = 4 * options.batch * options.batches
    make_shards(Path(folder), rows, 1, options.length, options.lengths)


def worker_command(peer: str, folder: str) -> list[str]:
    """Return the command line of one worker."""
    command = [sys.executable, "-m", "benchmarks.model.train", *sys.argv[1:]]
    return [*command, "--worker", peer, "--folder", folder]


def environment(options: argparse.Namespace) -> dict[str, str]:
    """Return the environment of all workers."""
    return {
        **os.environ,
        "OMP_NUM_THREADS": str(options.threads),
        "TOKENIZERS_PARALLELISM": "false",
        # Huge pages for large tensors, as in `model`, and freed memory is kept: fastest for every
        # peer, especially for those that allocate large logits in each step.
        "THP_MEM_ALLOC_ENABLE": "1",
        "MALLOC_MMAP_MAX_": "0",
        "MALLOC_TRIM_THRESHOLD_": str(1 << 34),
    }


def ask(worker: "subprocess.Popen[str]") -> Any:
    """Run one pass of a worker; return its JSON answer, or None if it has ended."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    try:
        worker.stdin.write("pass\n")
        worker.stdin.flush()
    except BrokenPipeError:  # killed: not enough memory for all peers
        return None
    for line in worker.stdout:
        if line.startswith("{"):
            return json.loads(line)
    return None


def report(options: argparse.Namespace, rows: dict[str, Any]) -> None:
    """Print the table; ratios are ours over the others'."""
    from benchmarks.model import train_worker

    product = train_worker.product(options)
    print(
        f"\n{options.size}, {options.precision}, sequence length {options.length}, "
        f"{options.batch} samples per step, dropout {options.dropout}, "
        f"{next(iter(rows.values()))['device']}, {options.threads} thread(s); matrix product {product / 1e9:,.0f} "
        f"GFLOP/s\n"
    )
    print(heading("| tokens/s | speed-up of ours | model GFLOP/s | MFU | peak memory | recompiled"))
    for peer, row in rows.items():
        if peer.startswith("hf"):
            keep(f"step, {options.size}: {PEERS[peer]}", row["ratio"])
        rate, flops = row["tokens"] / row["seconds"], row["flops"] / row["seconds"]
        print(
            f"| {PEERS[peer]} | {rate:,.0f} | {row['ratio']:.2f} x | {flops / 1e9:,.0f} "
            f"| {flops / product:.0%} | {row['memory'] / 2**30:.2f} GiB | {row['recompiled']} |"
        )
        if options.out:
            figures = vars(options) | row | {"peer": peer, "product": product}
            with options.out.open("a", encoding="utf-8") as file:
                file.write(json.dumps(figures, default=str) + "\n")


if __name__ == "__main__":
    main()
