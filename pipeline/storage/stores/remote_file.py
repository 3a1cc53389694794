"""What every client of a remote store has: objects by address, and files to read in any order."""

import dataclasses
import io
from collections.abc import Callable
from datetime import datetime
from typing import Any

from pipeline.errors import StoreError

SMALLEST, LARGEST = 2**18, 2**23  # bytes of one request: doubled while a file is read on


@dataclasses.dataclass(frozen=True)
class Info:
    """What a store says of an object; the ETag changes with the content."""

    key: str
    size: int
    mtime_ns: int
    etag: str

    @classmethod
    def at(cls, key: str, size: int, changed: datetime, etag: str) -> "Info":
        """Return what a store says that states times in milliseconds."""
        return cls(key, size, int(changed.timestamp() * 1000) * 1_000_000, etag)


def parse(address: str) -> tuple[str, str]:
    """Return the bucket and the key of `SCHEME://BUCKET/KEY`; a bucket may be `CONTAINER@ACCOUNT`.

    Raises:
        StoreError: it names no bucket.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, key = rest.partition("/")
    if "" in bucket.split("@", 1):
        word = "container" if scheme.startswith("abfs") else "bucket"
        raise StoreError(f"does not name a {word}; write {scheme}://{word.upper()}/…", path=address)
    return bucket, key


def key_prefix(key: str) -> str:
    """Return what the keys below a folder begin with."""
    return f"{key.rstrip('/')}/" if key else ""


def listed_prefix(key: str) -> str:
    """Return what the keys below a folder begin with, or those of a prefix ending in `*`."""
    return key[:-1] if key.endswith("*") else key_prefix(key)


class RemoteFile(io.RawIOBase):
    """A file whose requests are for longer ranges the longer it is read on.

    The bytes of one request are in memory; `read_range` returns those from one position to before another.
    """

    def __init__(self, address: str, info: Info, read_range: Callable[[int, int], bytes]):
        super().__init__()
        self.address, self.size = address, info.size
        self._range, self._at = read_range, 0
        self._part, self._part_start, self._asked = b"", 0, SMALLEST

    def readable(self) -> bool:
        """Return true: that is what it is for."""
        return True

    def seekable(self) -> bool:
        """Return true: another request begins anywhere."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; elsewhere, requests are for short ranges again."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        before, self._at = self._at, max(0, start + offset)
        if self._at != before:
            self._asked = SMALLEST
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read up to `len(buffer)` bytes.

        Raises:
            StoreError: the store refuses, or the file changed.
            Restart: the store does not answer.
        """
        length = min(len(buffer), self.size - self._at)
        if length <= 0:
            return 0
        offset = self._at - self._part_start
        if not 0 <= offset < len(self._part):
            stop = min(self._at + max(self._asked, length), self.size)
            self._asked = min(2 * self._asked, LARGEST)
            self._part, self._part_start, offset = self._range(self._at, stop), self._at, 0
        data = self._part[offset : offset + length]
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
