"""A stage that saves checkpoints as training does, for `test_store_kill.py`: `OUT MIRROR STEPS`.

A checkpoint's bytes are a function of its step, so a resumed run must end as an undisturbed one.
"""

import hashlib
import random
import sys
from pathlib import Path

from pipeline.config import CorpusConfig, DownloadConfig
from pipeline.records.manifest import Result
from pipeline.stages import stage
from pipeline.stages.fingerprints import fingerprint
from pipeline.storage.checksums import sha256
from pipeline.storage.uploads import BackgroundUpload

SIZE = 700_000  # bytes of a file
NAMES = ("model.safetensors", "optimizer.safetensors", "state.json")


def content(step: int, name: str) -> bytes:
    return random.Random(f"{step} {name}").randbytes(SIZE)


def newest(folder: Path) -> int:
    """Return the step of the last whole checkpoint."""
    for path in sorted(folder.glob("step-*"), reverse=True):
        if (path / "SHA256SUMS").exists():
            sums = dict(line.split()[::-1] for line in (path / "SHA256SUMS").open())
            assert all(sha256(path / name) == sums[name] for name in NAMES), path
            return int(path.name.removeprefix("step-"))
    return 0


def save(folder: Path, step: int) -> None:
    away = folder / f".step-{step:08d}.tmp"
    away.mkdir(parents=True)
    for name in NAMES:
        (away / name).write_bytes(content(step, name))
    lines = (f"{hashlib.sha256(content(step, n)).hexdigest()}  {n}\n" for n in NAMES)
    (away / "SHA256SUMS").write_text("".join(lines))
    away.rename(folder / f"step-{step:08d}")
    for path in sorted(folder.glob("step-*"))[:-1]:
        gone = path.with_name(f".{path.name}.old.tmp")
        path.rename(gone)


def main() -> None:
    out, mirror, steps = sys.argv[1:]
    corpus = CorpusConfig(name="c", reader="books", path="/nowhere")
    config = DownloadConfig(corpus=corpus, out=out, mirror=mirror)
    uploads = BackgroundUpload()

    def make(local: DownloadConfig, folder: Path) -> Result:
        run = folder / "checkpoints" / fingerprint("train", config)[0][:12]
        first = newest(run)
        print(f"resumed after {first}", flush=True)
        for step in range(first + 1, int(steps) + 1):
            uploads.wait()
            save(run, step)
            uploads.saved()
        return Result(summary="whole", figures={})

    stage.run("train", config, make, in_place=True, uploads=uploads)


if __name__ == "__main__":
    main()
