"""Accounts of Azure Blob Storage: which one an address is in, and with what right it is read.

An address is `abfs://CONTAINER/KEY`, in the account that the environment names, or
`abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`; `abfss://` is the same. Environment variables
are those of Azure's command line: AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with
AZURE_STORAGE_KEY. Without a key, the identity of a pod or a machine, or the user's login, is found
as Azure's own tools find it.
"""

import functools
import logging
import os
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from pipeline.common.errors import ConfigError, StoreError, first_line
from pipeline.common.stores import patience

CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


def place(address: str) -> tuple[str, str, str]:
    """Return the account's host, the container and the key; no host: the environment names it.

    Raises:
        StoreError: it names no container.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    container, at, host = bucket.partition("@")
    if not container or (at and not host):
        raise StoreError(f"does not name a container; write {scheme}://CONTAINER/…", path=address)
    return host, container, key


def own_account() -> str:
    """Return the account of the addresses that name none: its name, or its URL; empty if none."""
    settings = _connection()
    return settings.get("BLOBENDPOINT") or settings.get("ACCOUNTNAME") or os.environ.get("AZURE_STORAGE_ACCOUNT", "")


def _connection() -> dict[str, str]:
    """Return the settings of the connection string, by their names in capital letters."""
    pairs = (part.partition("=") for part in os.environ.get(CONNECTION, "").split(";"))
    return {name.strip().upper(): value for name, _, value in pairs}


_making = threading.Lock()


@functools.lru_cache(maxsize=16)
def _client(process: int, host: str) -> Any:
    """Make the client of an account, once per process."""
    try:
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.storage.blob import BlobServiceClient
    except ImportError as error:
        raise ConfigError(f"abfs:// addresses need azure-storage-blob ({error}): pip install -e '.[azure]'") from error
    # The client logs what is raised, too, and azure-identity each source that it has tried.
    logging.getLogger("azure").setLevel(logging.CRITICAL)
    settings: dict[str, Any] = {
        "retry_total": 0,
        "connection_timeout": 10,
        "read_timeout": 20,
        "connection_data_block_size": 2**16,
        "raw_response_hook": _watch,
    }
    connection = _connection()
    name = host.partition(".")[0]
    end = urlsplit(connection.get("BLOBENDPOINT", "")).hostname or ""
    if os.environ.get(CONNECTION) and (not host or name == connection.get("ACCOUNTNAME", end.partition(".")[0])):
        return BlobServiceClient.from_connection_string(os.environ[CONNECTION], **settings)
    own, key = os.environ.get("AZURE_STORAGE_ACCOUNT", ""), os.environ.get("AZURE_STORAGE_KEY")
    if not (host or own):
        raise ValueError("no account: neither the address nor the environment names one")
    host = host if "." in host else f"{host or own}.blob.core.windows.net"
    credential = AzureNamedKeyCredential(own, key) if key and name in ("", own) else _identity()
    url = f"https://{host.replace('.dfs.', '.blob.', 1)}"
    return BlobServiceClient(url, credential=credential, **settings)


def _identity() -> Any:
    """Return the credential of a pod, a machine, or the user's login."""
    try:
        from azure.identity import DefaultAzureCredential, WorkloadIdentityCredential
    except ImportError as error:
        raise ConfigError(f"abfs:// without a key needs azure-identity ({error}): pip install -e '.[azure]'") from error
    # Of a pod of AKS. By itself: a chain calls a network that is away a wrong credential.
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return WorkloadIdentityCredential(retry_total=0)
    return DefaultAzureCredential()


def _watch(answer: Any) -> None:
    """Look at the bytes of an answer as they come: they may be cut off, or come too slowly.

    The client itself would ask again at once, without a word and without an end in sight.
    """
    from urllib3.exceptions import HTTPError

    raw = getattr(answer.http_response, "internal_response", answer.http_response).raw
    whole = raw.stream

    def stream(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        pace = patience.Pace()
        try:
            for part in whole(*args, **kwargs):
                pace.add(len(part))
                yield part
        except (HTTPError, ConnectionError) as error:
            raise patience.Again(first_line(error), answered=True) from error

    raw.stream = stream


def client(address: str) -> Any:
    """Return this process's client of the account of an address.

    Raises:
        ConfigError: azure-storage-blob or azure-identity is not installed.
        StoreError: the environment names no account, or its settings are not valid.
    """
    host = place(address)[0]
    try:
        with _making:
            return _client(os.getpid(), host)
    except ConfigError:
        raise
    except Exception as error:
        raise unusable(address, error) from error


def unusable(address: str, error: Exception) -> StoreError:
    """Return the error for credentials that are missing or wrong."""
    return StoreError(
        f"no usable credentials ({first_line(error)}); set {CONNECTION}, or AZURE_STORAGE_ACCOUNT and "
        "AZURE_STORAGE_KEY, or run az login",
        path=address,
    )
