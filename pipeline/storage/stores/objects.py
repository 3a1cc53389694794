"""The clients of all stores, and files that are fetched from them.

Every store takes conditions: an object is written only where it is missing, or only over the
version that was read. It compares what arrives with a checksum; a fetched file is compared with its
sha256 here. Errors are those of `Client`.
"""

import contextlib
import hashlib
import os
from pathlib import Path

from pipeline.common import parallel
from pipeline.errors import BY_FORCE, StoreError
from pipeline.storage.atomic import atomic_path
from pipeline.storage.stores.azure import Azure
from pipeline.storage.stores.client import Client
from pipeline.storage.stores.gs import Gs
from pipeline.storage.stores.remote_file import LARGEST, Info
from pipeline.storage.stores.s3 import S3

PART = 2**25  # bytes of one range that is fetched
_AZURE = Azure()
CLIENTS: dict[str, Client] = {"s3": S3(), "gs": Gs(), "abfs": _AZURE, "abfss": _AZURE}
SCHEMES = tuple(f"{scheme}://" for scheme in CLIENTS)


class _Damaged(Exception):
    """The bytes that arrived are not those of the checksum."""


def client(address: str) -> Client:
    """Return the client of an address's store."""
    return CLIENTS[address.partition("://")[0].lower()]


def fetch(address: str, info: Info, path: Path, checksum: str | None) -> str:
    """Fetch an object as a file, which appears whole; return its sha256.

    Raises:
        StoreError: the object changed meanwhile, or does not have the `checksum` (hex).
        Restart: the store does not answer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):  # bytes may be damaged on the way, where nothing else looks at them
        with contextlib.suppress(_Damaged), atomic_path(path) as temporary:
            _fetch_ranges(address, info, temporary)
            with temporary.open("rb") as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
            if checksum not in (None, digest):
                raise _Damaged
            return digest
    raise StoreError(f"does not have the checksum that its manifest says; make it again {BY_FORCE}", path=address)


def _fetch_ranges(address: str, info: Info, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(info.size)
        handle = file.fileno()

        def get(start: int) -> None:
            with client(address).opened(address, info) as source:
                source.seek(start)
                end = min(start + PART, info.size)
                while start < end:
                    data = source.read(min(LARGEST, end - start))
                    assert data
                    start += os.pwrite(handle, data, start)

        parallel.each(get, range(0, info.size, PART))
