"""CPU time of `prepare` per megabyte, for the same text in a growing number of splits and shards.

`python -m benchmarks.scale` repeats the sample corpus up to `--megabytes` and splits it into
`--cuts` splits and about as many shards. If the cost depends only on the corpus, all rows show the
same value. Each row is measured in a separate process with its children. Shards are buckets of
documents and differ between rows; the tests compare their bytes.
"""

import argparse
import math
import sys
import tempfile
from pathlib import Path

from benchmarks.prepare import Cost, learn, measure, write


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", type=Path, help="a folder of WikiExtractor's output")
    parser.add_argument("--megabytes", type=float, default=200)
    parser.add_argument("--cuts", nargs="+", type=int, default=[5, 100, 400, 1600, 6400])
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--passes", type=int, default=1, help="runs per row; the best counts")
    options = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        documents, copies = write(options.text, work / "text.jsonl", options.megabytes * 1e6)
        size = (work / "text.jsonl").stat().st_size
        (work / "tokenizer.json").write_text(learn(work / "text.jsonl"))
        print(f"{size / 1e6:.1f} MB, {documents:,} documents ({copies} copies of the text)\n")
        print("| splits and shards | CPU s | CPU s per MB | vs. the best | s | peak memory, GiB |")
        print("|---:|---:|---:|---:|---:|---:|", flush=True)
        costs: list[Cost] = []
        for cut in options.cuts:
            words = command(work, math.ceil(size / cut), options.workers)
            found = [measure(words) for _ in range(options.passes)]
            costs.append(min(found, key=lambda cost: cost.cpu))
            cost, least = costs[-1], min(each.cpu for each in costs)
            figures = f"{cost.cpu:.1f} | {cost.cpu / size * 1e6:.3f} | {cost.cpu / least:.2f}"
            print(f"| {cut:,} | {figures} | {cost.wall:.0f} | {cost.memory:.2f} |", flush=True)


def command(work: Path, part: int, workers: int) -> list[str]:
    return [
        sys.executable, "-m", "pipeline.prepare", "+corpus=jsonl", f"corpus.path={work}/text.jsonl",
        f"vocab={work}/tokenizer.json", f"out={work}/out", "force=true",
        f"runner.workers={workers}", f"split_bytes={part}", f"shard_bytes={part}",
    ]  # fmt: skip


if __name__ == "__main__":
    main()
