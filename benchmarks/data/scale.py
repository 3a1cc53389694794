"""Cost of `prepare` for the same text in a growing number of splits and shards.

`python -m benchmarks.data.scale` repeats the sample corpus up to `--megabytes` and splits it into
`--cuts` splits and about as many shards. If the cost depends only on the corpus, all rows show the
same CPU time, that of the system included. Each row is measured in a separate process with its
children; what the driver does before any work, planning and building the graph, in another one.
Shards are buckets of documents and differ between rows; the tests compare their bytes.

    --megabytes 6 --cuts 100 200 --workers 1    the small form, in half a minute
"""

import argparse
import math
import multiprocessing
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from benchmarks.data.prepare import make_inputs, measure, stage
from benchmarks.shared import heading
from pipeline.preparation.plan import make_plan


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, help="a folder of WikiExtractor's output")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--cuts", nargs="+", type=int, default=[5, 100, 400, 1600, 6400])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=1, help="runs per row; the best counts")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        size = make_inputs(options.text, work, options.megabytes)
        columns = (
            "splits and shards | CPU s | CPU s per MB | vs. 100 | s | peak memory, GiB | driver: s | GiB | graph, MB"
        )
        print(heading(columns), flush=True)
        base = None
        for cut in sorted(options.cuts, key=lambda cut: (cut != 100, cut)):  # 100 first
            part = math.ceil(size / cut)
            more = (f"runner.workers={options.workers}", f"split_bytes={part}", f"shard_bytes={part}")
            found = [measure(stage(work, "text", *more)) for _ in range(options.passes)]
            cost = min(found, key=lambda cost: cost.cpu)
            base = base or cost.cpu
            figures = f"{cost.cpu:.1f} | {cost.cpu / size * 1e6:.3f} | {cost.cpu / base:.2f}"
            seconds, memory, graph = driver(work, part)
            print(
                f"| {cut:,} | {figures} | {cost.wall:.0f} | {cost.memory:.2f} "
                f"| {seconds:.1f} | {memory:.2f} | {graph / 1e6:.2f} |",
                flush=True,
            )


def driver(work: Path, part: int) -> tuple[float, float, int]:
    """Return CPU seconds and GiB of planning and building the graph, and the graph's bytes."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        return pool.submit(build, str(work), part).result()


def build(work: str, part: int) -> tuple[float, float, int]:
    from pipeline.beam import steps
    from pipeline.beam.fast_import import beam
    from pipeline.config import CorpusConfig, PrepareConfig, RunnerConfig

    corpus = CorpusConfig(name="jsonl", reader="jsonl", path=f"{work}/text.jsonl")
    config = PrepareConfig(
        corpus=corpus, runner=RunnerConfig(), source="s", vocab=work, out="out", split_bytes=part, shard_bytes=part
    )
    plan = make_plan(config, Path(work, "planned"))
    pipeline = beam.Pipeline()
    steps.build(pipeline, plan)
    graph = pipeline.to_runner_api().ByteSize()
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20, graph


if __name__ == "__main__":
    main()
