"""What `prepare` costs when it is done again: after a kill, for a corpus that grew, for other settings.

`python -m benchmarks.data.again` prints processor seconds of all tries over those of one undisturbed
run, orphans of a killed one included, and whether the shards are the same bytes. Kills are of the
whole process group, at `--moments` even times. Rows about what changed keep the reading of the run before.

    --megabytes 10 --moments 2 --workers 1    the small form, in a minute
    --engine flink                            on a cluster on this machine, whose own time is counted too
"""

import argparse
import contextlib
import ctypes
import os
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import psutil

from benchmarks.data import engines
from benchmarks.data.prepare import make_inputs, measure, sums
from benchmarks.shared import heading
from tests.pipeline.beam.engines import Cluster

FILES = 100
SUBREAPER = 36  # of prctl: orphans become children of this process, and their time is counted


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a folder of WikiExtractor's output")
    parser.add_argument("--megabytes", type=float, default=100)
    parser.add_argument("--moments", type=int, default=20)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--engine", choices=list(engines.CLUSTERS))
    parser.add_argument("--near", action="store_true", help="leave out near duplicates too")
    options = parser.parse_args()
    ctypes.CDLL(None).prctl(SUBREAPER, 1)

    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        work = Path(folder)
        make_inputs(options.text, work, options.megabytes)
        divide(work / "text.jsonl", work / "corpus")
        cluster = stack.enter_context(engines.started(options.engine, work / "engine")) if options.engine else None
        runner = engines.words_of(cluster) if cluster else [f"runner.workers={options.workers}"]
        common = [*runner, *["filters.near_duplicates=0.8"] * options.near]

        def run(out: str, *more: str, kill: float | None = None) -> tuple[float, float]:
            words = f"+corpus=jsonl corpus.path={work}/corpus vocab={work}/tokenizer.json out={work}/{out}"
            return cost([sys.executable, "-m", "pipeline.prepare", *words.split(), *common, *more], kill, cluster)

        spare = work / "corpus" / f"{FILES - 1:04}.jsonl"
        spare.rename(work / "spare.jsonl")
        whole, wall = run("whole")
        print(f"{FILES} files; undisturbed: {whole:.1f} CPU s, {wall:.1f} s\n")
        print(heading("again | CPU s of all tries / CPU s from scratch | the same bytes"), flush=True)
        ratios, equal = [], True
        for moment in range(options.moments):
            killed, _ = run("killed", kill=wall * (moment + 0.5) / options.moments)
            ratios.append((killed + run("killed")[0]) / whole)
            equal &= sums(work / "killed") == sums(work / "whole")
            shutil.rmtree(work / "killed")
        said = f"{statistics.mean(ratios):.2f} (most {max(ratios):.2f})"
        print(f"| killed at {options.moments} moments | {said} | {equal} |", flush=True)

        (work / "removed.txt").write_text(f"{work}/corpus/0000.jsonl line 3\n")
        run("kept", "keep_reading=true")
        (work / "spare.jsonl").rename(spare)
        for name, more in (
            (f"{100 / FILES:.0f} % more files", []),
            ("another sequence length", ["sequence_length=256"]),
            ("another seed and more validation", ["seed=7", "validation_share=0.05"]),
            ("a removed document", [f"filters.remove={work}/removed.txt"]),
        ):
            again, _ = run("kept", "keep_reading=true", *more)
            scratch, _ = run("scratch", *more)
            print(f"| {name} | {again / scratch:.2f} | {sums(work / 'kept') == sums(work / 'scratch')} |", flush=True)
            shutil.rmtree(work / "scratch")


def divide(text: Path, folder: Path) -> None:
    """Divide the lines of a file among `FILES` files of a folder."""
    folder.mkdir()
    lines = text.read_bytes().splitlines(keepends=True)
    for number in range(FILES):
        part = lines[len(lines) * number // FILES : len(lines) * (number + 1) // FILES]
        (folder / f"{number:04}.jsonl").write_bytes(b"".join(part))


def cost(command: list[str], kill: float | None, cluster: Cluster | None) -> tuple[float, float]:
    """Run a command, and kill its processes after some seconds; return CPU seconds, orphans' too, and seconds."""
    engine, before = {each.pid for each in cluster.processes.values()} if cluster else set(), used(cluster)
    found = measure(command, kill)
    cpu = found.cpu
    while orphans := {each.pid for each in psutil.Process().children()} - engine:
        for orphan in orphans:
            _, _, its = os.wait4(orphan, 0)
            cpu += its.ru_utime + its.ru_stime
    return cpu + used(cluster) - before, found.wall


def used(cluster: Cluster | None) -> float:
    """Return the CPU seconds of an engine's processes so far, of their workers too."""
    tops = [psutil.Process(each.pid) for each in cluster.processes.values()] if cluster else []
    return sum(sum(one.cpu_times()[:4]) for top in tops for one in [top, *top.children(recursive=True)])


if __name__ == "__main__":
    main()
