"""A program that serves on a port of this machine, and the environment that names it, for the time of a test."""

import contextlib
import subprocess

import pytest

from pipeline.common.ports import free_port
from tests.support import objects
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


@contextlib.contextmanager
def pointed(scheme, variables):
    """Set what names a server to the clients of a scheme, which are made anew."""
    with pytest.MonkeyPatch.context() as patch:
        for key, value in variables.items():
            patch.setenv(key, value)
        objects.CLIENTS[scheme].made.clear()
        yield
    objects.CLIENTS[scheme].made.clear()
