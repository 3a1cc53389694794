"""Waiting for what another process does."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable

Process = subprocess.Popen[str] | subprocess.Popen[bytes]


def wait_for(true: Callable[[], object], what: str = "it", seconds: float = 600, by: Process | None = None) -> None:
    """Wait until it is true; a test fails where it never is, or where who should do it has ended."""
    until = time.monotonic() + seconds
    while not true():
        assert by is None or by.poll() is None, f"{what}: who should do it has ended"
        assert time.monotonic() < until, f"{what}: not within {seconds:.0f} s"
        time.sleep(0.05)


def listens(port: int) -> bool:
    """Whether somebody takes connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("localhost", port), 1):
        return True
    return False
