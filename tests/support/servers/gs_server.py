"""Google Cloud Storage on this machine: fake-gcs-server, which `make test-store` builds."""

import contextlib
import os

import pytest
import requests

from tests.support.servers.server_program import pointed, serving

PROGRAM = "FAKE_GCS"  # environment: the program of fake-gcs-server


def need():
    """Skip a test where the server or Google's client is missing."""
    if PROGRAM not in os.environ:
        pytest.skip("fake-gcs-server is not here: see make test-store")
    pytest.importorskip("google.cloud.storage", reason="its client is missing: see make test-store")


@contextlib.contextmanager
def server(folder):
    """Serve an empty store on 127.0.0.1, in memory."""

    def words(port):
        place = ["-host", "127.0.0.1", "-port", str(port), "-external-url", f"http://127.0.0.1:{port}"]
        return [os.environ[PROGRAM], "-scheme", "http", "-backend", "memory", *place]

    with serving(words, folder) as place:
        yield place


def environment(url):
    """Point the environment to a server."""
    return pointed("gs", {"STORAGE_EMULATOR_HOST": url, "BERT_STORE_TIMEOUT": "60"})


def make_bucket(url, name):
    """Make a bucket."""
    requests.post(f"{url}/storage/v1/b?project=p", json={"name": name}).raise_for_status()
