"""File heartbeats for a liveness probe.

Each rank touches its file in a local folder whenever it makes progress. The probe,
`python -m model.resilience.heartbeat FOLDER SECONDS`, fails when a file is older than SECONDS.
"""

import argparse
import sys
import time
from pathlib import Path

INTERVAL = 1.0  # minimum seconds between two touches


class Heartbeat:
    """Heartbeat file of one rank."""

    def __init__(self, folder: Path, rank: int):
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._last = folder / f"rank-{rank}", 0.0
        self.beat()

    def beat(self) -> None:
        """Touch the file, at most once per INTERVAL."""
        now = time.monotonic()
        if now - self._last >= INTERVAL:
            self._path.touch()
            self._last = now

    def close(self) -> None:
        """Remove the file, so that the probe ignores a rank that is done."""
        self._path.unlink(missing_ok=True)


def stale(folder: Path, seconds: float) -> list[str]:
    """Return the ranks without a heartbeat for `seconds`; ignores ranks that have not started."""
    limit = time.time() - seconds
    return [path.name for path in sorted(folder.glob("rank-*")) if path.stat().st_mtime < limit]


def main() -> None:
    """Run the probe: exit with 0 while every rank makes progress, else with 1."""
    parser = argparse.ArgumentParser(
        "python -m model.resilience.heartbeat",
        description="Check that all ranks of this node make progress.",
    )
    parser.add_argument("folder", type=Path, help="heartbeat= of the training")
    parser.add_argument("seconds", type=float, help="highest age of a heartbeat")
    options = parser.parse_args()
    folder, seconds = options.folder, options.seconds
    silent = stale(folder, seconds)
    if silent:
        sys.exit(f"no heartbeat of {', '.join(silent)} for {seconds:g} s")


if __name__ == "__main__":
    main()
