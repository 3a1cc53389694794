"""Share of a training's time that waits for data: shards on a disk, and in an object store.

`python -m benchmarks.data.data_wait RUN` takes `prepare` and `vocab` of a run, puts them into the bucket
S3_BUCKET of the store to which the AWS_ variables point, and trains with each: from the disk, and
through `data.cache` with room for `--room` of the shards. The share is that of all steps between
two lines of `metrics.jsonl`, the first line apart, which has the start in it.
"""

import argparse
import math
import os
import secrets
import shlex
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.data.store import empty
from benchmarks.shared import heading, read
from pipeline.common import parallel
from pipeline.common.manifest import sha256
from pipeline.common.stores import objects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, help="a folder with prepare and vocab")
    parser.add_argument("--bucket", default=os.environ.get("S3_BUCKET", "benchmark"))
    parser.add_argument("--size", default="tiny", help="of the model")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--window", type=int, default=4096, help="rows that are shuffled together")
    parser.add_argument("--room", type=float, default=0.7, help="of the shards, in the cache")
    options = parser.parse_args()

    shards = (options.run / "prepare").rglob("*.arrow")
    room = math.ceil(options.room * sum(path.stat().st_size for path in shards))
    address = f"s3://{options.bucket}/benchmark-{secrets.token_hex(4)}"
    with tempfile.TemporaryDirectory() as place:
        for name in ("prepare", "vocab"):
            put(options.run / name, f"{address}/{name}")
        stored = [f"data.cache={place}/cache", f"data.cache_size={room}", f"mirror={place}/mirror"]
        print(heading("shards in | median of waiting | greatest"), flush=True)
        for name, source, keys in (("a folder", str(options.run), []), ("a store", address, stored)):
            out = Path(place) / name.replace(" ", "-")
            train(source, out, options.size, options.steps, options.window, keys)
            shares = waits(out / "metrics.jsonl")
            print(f"| {name} | {statistics.median(shares):.2%} | {max(shares):.2%} |", flush=True)
    empty(address, options.bucket)


def put(folder: Path, address: str) -> None:
    """Put the files of a stage's folder."""
    files = [path for path in folder.iterdir() if path.is_file()]
    parallel.each(lambda path: objects.client(address).put_file(f"{address}/{path.name}", path, sha256(path)), files)


def train(source: str, out: Path, size: str, steps: int, window: int, keys: list[str]) -> None:
    """Train on the shards of a run, without checkpoints."""
    words = [
        *shlex.split(
            f"-m pipeline.train model={size} data.dir={source}/prepare data.vocab={source}/vocab "
            f"data.window_rows={window} log_every=25 steps={steps} save_every={steps} evaluate_every={steps} "
            f"out={out}"
        ),
        *keys,
    ]
    subprocess.run([sys.executable, *words], check=True, stdout=subprocess.DEVNULL)


def waits(metrics: Path) -> list[float]:
    """Return the share of waiting of each line of a training but the first."""
    return [row["data_wait_share"] for row in read(metrics) if row["kind"] == "train"][1:]


if __name__ == "__main__":
    main()
