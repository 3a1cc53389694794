"""A program that serves on a port of this machine, for the time of a test."""

import contextlib
import subprocess

from pipeline.common.ports import free_port
from tests.support.waiting import listens, wait_for


@contextlib.contextmanager
def serving(words_for, folder=None):
    """Run the program of a free port in `folder`, until it accepts connections on 127.0.0.1."""
    port = free_port()
    process = subprocess.Popen(words_for(port), cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(lambda: listens(port), by=process)
        yield "127.0.0.1", port
    finally:
        process.kill()
        process.wait()
