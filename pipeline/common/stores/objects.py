"""Objects of a store, written, fetched and removed, whichever store it is.

Every store takes conditions: an object is written only where it is missing, or only over the
version that was read. It compares what arrives with a checksum; a fetched file is compared with its
sha256 here.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Protocol

from pipeline.common import parallel
from pipeline.common.atomic import atomic_path
from pipeline.common.errors import StoreError
from pipeline.common.manifest import sha256
from pipeline.common.stores import azure_blob, azure_transfer, gs, gs_transfer, s3, s3_transfer
from pipeline.common.stores.remote_file import LARGEST, Info, Reader

PART = 2**25  # bytes of one range that is fetched


class Writer(Protocol):
    """A module that reads and writes whole objects; its functions do what those below do."""

    def read(self, address: str) -> tuple[bytes, str] | None: ...  # noqa: D102
    def age(self, address: str) -> float | None: ...  # noqa: D102
    def put(  # noqa: D102
        self, address: str, data: bytes, *, absent: bool = False, etag: str | None = None
    ) -> str | None: ...
    def put_file(  # noqa: D102
        self, address: str, path: Path, checksum: str, *, absent: bool = False, etag: str | None = None
    ) -> str | None: ...
    def delete(self, address: str) -> None: ...  # noqa: D102


_CLIENTS: dict[str, tuple[Reader, Writer]] = {
    "s3": (s3, s3_transfer),
    "gs": (gs, gs_transfer),
    "abfs": (azure_blob, azure_transfer),
    "abfss": (azure_blob, azure_transfer),
}
SCHEMES = tuple(f"{scheme}://" for scheme in _CLIENTS)


class _Damaged(Exception):
    """The bytes that arrived are not those of the checksum."""


def _reader(address: str) -> Reader:
    return _CLIENTS[address.partition("://")[0].lower()][0]


def _writer(address: str) -> Writer:
    return _CLIENTS[address.partition("://")[0].lower()][1]


def head(address: str) -> Info | None:
    """Return what the store says of an object; None if it is missing.

    Raises:
        StoreError: the store refuses.
        Restart: it does not answer.
    """
    return _reader(address).head(address)


def below(address: str) -> list[Info]:
    """List all objects below a folder, or whose keys begin as a prefix ending in `*` does.

    Raises:
        StoreError, Restart: as `head`.
    """
    return _reader(address).below(address)


def read(address: str) -> tuple[bytes, str] | None:
    """Return the bytes of a small object and its ETag; None if it is missing.

    Raises:
        StoreError, Restart: as `head`.
    """
    return _writer(address).read(address)


def age(address: str) -> float | None:
    """Return for how many seconds an object has not changed, by the clock of the store."""
    return _writer(address).age(address)


def put(address: str, data: bytes, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a small object; return its ETag, or None where the condition does not hold.

    The condition is that the object is missing (`absent`), or that it still is that of `etag`.

    Raises:
        StoreError, Restart: as `head`.
    """
    return _writer(address).put(address, data, absent=absent, etag=etag)


def put_file(address: str, path: Path, checksum: str, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a file of the sha256 `checksum` (hex) as an object, on the conditions of `put`.

    Raises:
        StoreError: the store refuses; also where the file has another checksum.
        Restart: it does not answer.
    """
    return _writer(address).put_file(address, path, checksum, absent=absent, etag=etag)


def delete(addresses: Iterable[str]) -> None:
    """Remove objects, those of them that are there."""
    parallel.each(lambda address: _writer(address).delete(address), addresses)


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
            found = sha256(temporary)
            if checksum not in (None, found):
                raise _Damaged
            return found
    raise StoreError("does not have the checksum that its manifest says; make it again with force=true", path=address)


def _fetch_ranges(address: str, info: Info, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(info.size)
        handle = file.fileno()

        def get(start: int) -> None:
            with _reader(address).opened(address, info) as source:
                source.seek(start)
                end = min(start + PART, info.size)
                while start < end:
                    data = source.read(min(LARGEST, end - start))
                    assert data
                    start += os.pwrite(handle, data, start)

        parallel.each(get, range(0, info.size, PART))
