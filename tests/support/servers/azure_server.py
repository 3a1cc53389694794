"""Azure Blob Storage on this machine: Azurite, Microsoft's own, which `make test-store` installs.

It has no hierarchical namespace, no limits of rate, and the account's name is part of the path.
"""

import contextlib
import os

import pytest

from tests.support.servers.server_program import pointed, serving

PROGRAM = "AZURITE"  # environment: the program of Azurite
ACCOUNT = "devstoreaccount1"
# Published, and the same in each Azurite.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


def need():
    """Skip a test where the server or Azure's client is missing."""
    if PROGRAM not in os.environ:
        pytest.skip("Azurite is not here: see make test-store")
    pytest.importorskip("azure.storage.blob", reason="its client is missing: see make test-store")


@contextlib.contextmanager
def server(folder):
    """Serve an empty store on 127.0.0.1, in memory."""

    def words(port):
        quiet = ["--inMemoryPersistence", "--silent", "--disableTelemetry", "--skipApiVersionCheck"]
        return [os.environ[PROGRAM], "--blobHost", "127.0.0.1", "--blobPort", str(port), *quiet]

    with serving(words, folder) as place:
        yield place


def connection(url):
    """Return the connection string of a server."""
    return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={url}/{ACCOUNT};"


def environment(url):
    """Point the environment to a server."""
    return pointed("abfs", {"AZURE_STORAGE_CONNECTION_STRING": connection(url), "BERT_STORE_TIMEOUT": "60"})


def service(url):
    """Return a client of its own."""
    from azure.storage.blob import BlobServiceClient

    return BlobServiceClient.from_connection_string(connection(url))


def make_bucket(url, name):
    """Make a container."""
    service(url).create_container(name)
