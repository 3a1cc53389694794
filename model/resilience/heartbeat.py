"""File heartbeats for a liveness probe.

Each rank touches its file in a folder of its node whenever it makes progress. The probe,
`python -m model.resilience.heartbeat FOLDER SECONDS`, fails when one of them is older.
"""

import argparse
import sys
import time
from pathlib import Path

INTERVAL = 1.0  # seconds between two signs, at least


class Heartbeat:
    """One rank's file."""

    def __init__(self, folder: Path, rank: int):
        folder.mkdir(parents=True, exist_ok=True)
        self._path, self._last = folder / f"rank-{rank}", 0.0
        self.beat()

    def beat(self) -> None:
        """Show that this rank lives."""
        now = time.monotonic()
        if now - self._last >= INTERVAL:
            self._path.touch()
            self._last = now

    def close(self) -> None:
        """Leave: nobody waits for a rank that is done."""
        self._path.unlink(missing_ok=True)


def stale(folder: Path, seconds: float) -> list[str]:
    """The ranks that have shown no sign for so long; none where none began."""
    limit = time.time() - seconds
    return [path.name for path in sorted(folder.glob("rank-*")) if path.stat().st_mtime < limit]


def main() -> None:
    """The probe: 0 while every rank gets on, 1 otherwise."""
    parser = argparse.ArgumentParser(
        "python -m model.resilience.heartbeat",
        description="Says whether all ranks of this node get on.",
    )
    parser.add_argument("folder", type=Path, help="heartbeat= of the training")
    parser.add_argument("seconds", type=float, help="without a sign, after which a rank is lost")
    options = parser.parse_args()
    folder, seconds = options.folder, options.seconds
    silent = stale(folder, seconds)
    if silent:
        sys.exit(f"no sign of {', '.join(silent)} for {seconds:g} s")


if __name__ == "__main__":
    main()
