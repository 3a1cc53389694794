"""Bytes a second to and from an object store: a run's folder of ours, and `aws s3 cp`.

`python -m benchmarks.data.store` puts a folder of random files into the bucket S3_BUCKET of the store to
which the AWS_ variables point, and fetches it again; ours with sha256 of every file on both ways.
The two take turns, and the best of the rounds counts. `aws` must be in PATH, or is left out.
"""

import argparse
import os
import resource
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from benchmarks.shared import heading
from pipeline.common import parallel
from pipeline.storage.cached_folders import CachedFolder
from pipeline.storage.checksums import sha256
from pipeline.storage.stores import objects


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bucket", default=os.environ.get("S3_BUCKET", "benchmark"))
    parser.add_argument("--megabytes", type=int, default=256)
    parser.add_argument("--files", type=int, nargs="+", default=[1, 8, 256], help="of a folder")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    print(heading("files | | MB/s | CPU s a GB"))
    for files in options.files:
        with tempfile.TemporaryDirectory() as place:
            measure(Path(place), options.bucket, files, options.megabytes, options.rounds)


def measure(top: Path, bucket: str, files: int, megabytes: int, rounds: int) -> None:
    address = f"s3://{bucket}/benchmark-{secrets.token_hex(4)}"
    size = megabytes * 1_000_000 // files
    best: dict[str, tuple[float, float]] = {}
    for number in range(rounds):
        ours = CachedFolder(top / "ours", f"{address}/ours-{number}")
        ours.path.mkdir(parents=True)
        for file in range(files):
            (ours.path / f"{file:05}").write_bytes(os.urandom(size))
        sums: dict[str, str | None] = {n: sha256(p) for n, p in ours.files().items()}
        again = CachedFolder(top / "again", ours.address)
        steps: dict[str, Callable[[], object]] = {
            "ours, to": lambda: parallel.each(lambda n: ours.put(n, sums[n]), sums),  # noqa: B023
            "ours, from": lambda: again.fetch(sums, again.listed()),  # noqa: B023
        }
        if shutil.which("aws"):
            theirs, back = f"{address}/theirs-{number}", str(top / "back")
            steps |= {
                "aws s3 cp, to": lambda: aws(str(ours.path), theirs),  # noqa: B023
                "aws s3 cp, from": lambda: aws(theirs, back),  # noqa: B023
            }
        for name, step in steps.items():
            spent = timed(step)
            best[name] = min(best.get(name, spent), spent)
        assert {n: sha256(p) for n, p in again.files().items()} == sums
        for folder in top.iterdir():
            shutil.rmtree(folder)
    empty(address, bucket)
    for name, (seconds, cpu) in best.items():
        print(f"| {files} | {name} | {megabytes / seconds:.0f} | {cpu * 1000 / megabytes:.1f} |")


def empty(address: str, bucket: str) -> None:
    """Delete what is below an address."""
    store = objects.client(address)
    parallel.each(lambda info: store.delete(f"s3://{bucket}/{info.key}"), store.below(address))


def aws(source: str, target: str) -> None:
    subprocess.run(["aws", "s3", "cp", "--recursive", "--quiet", source, target], check=True)


def timed(step: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of a step, and those of the processor, children's too."""

    def cpu() -> float:
        parts = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        return sum(part.ru_utime + part.ru_stime for part in parts)

    began, before = time.perf_counter(), cpu()
    step()
    return time.perf_counter() - began, cpu() - before


if __name__ == "__main__":
    main()
