"""Google Cloud Storage on this machine: fake-gcs-server, which `make test-store` builds."""

import contextlib
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from pipeline.common import gs

PROGRAM = "FAKE_GCS"  # environment: the program of fake-gcs-server


def need() -> None:
    """Skip a test where the server or Google's client is missing."""
    if PROGRAM not in os.environ:
        pytest.skip("fake-gcs-server is not here: see make test-store")
    pytest.importorskip("google.cloud.storage", reason="its client is missing: see make test-store")


@contextlib.contextmanager
def server(folder: Path) -> Iterator[tuple[str, int]]:
    """Serve an empty store on 127.0.0.1, in memory."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [
        os.environ[PROGRAM], "-scheme", "http", "-host", "127.0.0.1", "-port", str(port),
        "-backend", "memory", "-external-url", f"http://127.0.0.1:{port}",
    ]  # fmt: skip
    process = subprocess.Popen(
        words, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
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


@contextlib.contextmanager
def environment(url: str) -> Iterator[None]:
    """Point the environment to a server."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STORAGE_EMULATOR_HOST", url)
        patch.setenv("STORE_TIMEOUT", "60")
        gs._client.cache_clear()
        yield
    gs._client.cache_clear()


def make_bucket(url: str, name: str) -> None:
    """Make a bucket."""
    requests.post(f"{url}/storage/v1/b?project=p", json={"name": name}).raise_for_status()
