"""Time and memory of `prepare` on cluster engines, and locally with as many worker processes.

`python -m benchmarks.data.engines --text FOLDER` repeats a text up to `--megabytes`, starts each engine
on this machine as the tests do, and runs the same job on all of them, once on a megabyte and once
on all. The difference is compared with the local one: starting a job takes seconds on any engine,
however large the corpus. All shards must have the same bytes. Prism has one worker process, Flink
and Spark have two.

Memory is the greatest sum of unshared and proportionally shared pages (PSS) of the processes of
each kind, looked at twice per second.

    --megabytes 4 --engines prism    the small form, in a minute
"""

import argparse
import contextlib
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from benchmarks.data.prepare import make_inputs, stage, sums, write
from benchmarks.shared import heading
from tests.pipeline.beam.engines import Cluster, Flink, Prism, Spark

ROOT = Path(__file__).resolve().parents[2]
CLUSTERS = {cluster.runner: cluster for cluster in (Prism, Flink, Spark)}
STEP = 0.5  # seconds between two looks at the memory


@dataclass
class Run:
    """What a run took."""

    seconds: float = 0.0
    memory: dict[str, float] = field(default_factory=lambda: defaultdict(float))  # kind: GiB


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a folder of WikiExtractor's output")
    parser.add_argument("--megabytes", type=float, default=1000)
    parser.add_argument("--engines", nargs="+", default=list(CLUSTERS), choices=list(CLUSTERS))
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write(options.text, work / "small.jsonl", 1e6)
        make_inputs(options.text, work, options.megabytes)
        print(
            heading("engine | workers | 1 MB: s | all: s | difference: s | vs. local | GiB: driver | engine | workers"),
            flush=True,
        )
        workers = {name: 1 if name == "prism" else 2 for name in options.engines}
        local = {
            count: row(work, "local", count, None, [f"runner.workers={count}"])
            for count in sorted(set(workers.values()))
        }
        expected = sums(work / "out", "*.arrow")
        for name in options.engines:
            with started(name, work / name) as cluster:
                row(work, name, workers[name], cluster, words_of(cluster), local[workers[name]])
            if sums(work / "out", "*.arrow") != expected:
                raise SystemExit(f"{name}: the shards have other bytes than the local ones")


@contextlib.contextmanager
def started(name: str, folder: Path) -> Iterator[Cluster]:
    """Yield a running engine."""
    cluster = CLUSTERS[name](ROOT, folder)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def words_of(cluster: Cluster) -> list[str]:
    """Return the overrides for a cluster."""
    given = (f"runner.options.{key}={value}" for key, value in cluster.options.items())
    return [f"runner={cluster.runner}", "runner.start_timeout=240", *given]


def row(
    work: Path, name: str, workers: int, cluster: Cluster | None, words: list[str], local: float | None = None
) -> float:
    """Print the figures of an engine; return the seconds that the text adds to a start."""
    small, whole = (run(work, text, cluster, words) for text in ("small", "text"))
    added = whole.seconds - small.seconds
    ratio = f"{added / local:.2f}" if local else "1.00"
    memory = " | ".join(f"{whole.memory[kind]:.2f}" for kind in ("driver", "engine", "worker"))
    seconds = f"{small.seconds:.1f} | {whole.seconds:.1f} | {added:.1f}"
    print(f"| {name} | {workers} | {seconds} | {ratio} | {memory} |", flush=True)
    return added


def run(work: Path, text: str, cluster: Cluster | None, words: list[str]) -> Run:
    """Run `prepare` on `text.jsonl` to its end."""
    command = stage(work, text, *words)
    found, began = Run(), time.monotonic()
    with (work / "prepare.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=log)
    while process.poll() is None:
        for kind, size in memory(process.pid, cluster).items():
            found.memory[kind] = max(found.memory[kind], size / 2**30)
        time.sleep(STEP)
    found.seconds = time.monotonic() - began
    if process.returncode:
        raise SystemExit(f"{' '.join(command)}\n{(work / 'prepare.log').read_text()[-2000:]}")
    return found


def memory(driver: int, cluster: Cluster | None) -> dict[str, int]:
    """Return the bytes that the processes of each kind have now."""
    starts = [driver, *(each.pid for each in (cluster.processes if cluster else {}).values())]
    found: dict[str, int] = defaultdict(int)
    seen = set()
    for start in starts:
        try:
            top = psutil.Process(start)
            tree = [top, *top.children(recursive=True)]
        except psutil.Error:
            continue
        for process in tree:
            try:
                size, words = process.memory_full_info().pss, " ".join(process.cmdline())
            except psutil.Error:  # it has just ended
                continue
            if process.pid not in seen:
                seen.add(process.pid)
                found[kind_of(process.pid, driver, words)] += size
    return found


def kind_of(process: int, driver: int, words: str) -> str:
    """Return what a process is: the driver, a worker, or the engine."""
    if process == driver:
        return "driver"
    return "worker" if sys.executable in words and "pipeline.beam.pool" not in words else "engine"


if __name__ == "__main__":
    main()
