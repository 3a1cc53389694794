"""A program that serves on a port of this machine, for the time of a test."""

import contextlib
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pipeline.common.ports import free_port


@contextlib.contextmanager
def serving(words_for: Callable[[int], list[str]], folder: Path | None = None) -> Iterator[tuple[str, int]]:
    """Run the program of a free port in `folder`, until it accepts connections on 127.0.0.1."""
    port = free_port()
    process = subprocess.Popen(words_for(port), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + 60
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
                break
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
        yield "127.0.0.1", port
    finally:
        process.kill()
        process.wait()
