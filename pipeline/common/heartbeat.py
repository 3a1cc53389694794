"""File heartbeats for a liveness probe.

Each rank of a training, and the main process of `prepare` and `evaluate`, touches its file in a
local folder whenever it makes progress. The probe, `python -m pipeline.common.heartbeat FOLDER
SECONDS`, fails when a file is older than SECONDS.
"""

import contextlib
import os
import sys
import time
from pathlib import Path

from pipeline.console.arguments import Arguments
from pipeline.errors import writable

FOLDER = "BERT_HEARTBEAT"  # environment: the folder of the files, set in the pods of a cluster
INTERVAL = 1.0  # minimum seconds between two touches


class Heartbeat:
    """Heartbeat file of one process; without a folder it does nothing."""

    def __init__(self, folder: Path | str | None, name: str):
        self._path, self._last = Path(folder, name) if folder else None, 0.0
        if self._path is not None:
            with writable(self._path.parent, "heartbeat"):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self.beat()

    def beat(self) -> None:
        """Touch the file, at most once per INTERVAL."""
        now = time.monotonic()
        if self._path is not None and now - self._last >= INTERVAL:
            self._path.touch()
            self._last = now

    def close(self) -> None:
        """Remove the file, so that the probe ignores a process that is done."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def during(name: str) -> contextlib.closing[Heartbeat]:
    """Keep a heartbeat in the environment's folder while the body runs."""
    return contextlib.closing(Heartbeat(os.environ.get(FOLDER), name))


def stale(folder: Path, seconds: float) -> list[str]:
    """Return the files older than `seconds`; ignores processes that have not started."""
    limit, names = time.time() - seconds, []
    for path in sorted(folder.glob("*")):
        with contextlib.suppress(FileNotFoundError):  # its process is done
            if path.stat().st_mtime < limit:
                names.append(path.name)
    return names


def main() -> None:
    """Run the probe: exit with 0 while every process makes progress, else with 1."""
    parser = Arguments(prog="python -m pipeline.common.heartbeat", description="Check that a stage makes progress.")
    parser.add_argument("folder", type=Path, help=f"of the files: heartbeat= or {FOLDER}")
    parser.add_argument("seconds", type=float, help="highest age of a heartbeat")
    options = parser.parse_args()
    if silent := stale(options.folder, options.seconds):
        sys.exit(f"no heartbeat of {', '.join(silent)} for {options.seconds:g} s")


if __name__ == "__main__":
    main()
