"""A file of a remote store to read in any order, by requests for ranges of bytes."""

import io
from abc import abstractmethod
from typing import Any


class RemoteFile(io.RawIOBase):
    """The position in a file whose bytes `_next` requests."""

    def __init__(self, address: str, size: int):
        super().__init__()
        self.address, self.size = address, size
        self._at = 0

    @abstractmethod
    def _next(self, wanted: int) -> bytes:
        """Return one to `wanted` bytes from the position on."""

    def readable(self) -> bool:
        """Return true: that is what it is for."""
        return True

    def seekable(self) -> bool:
        """Return true: another request begins anywhere."""
        return True

    def tell(self) -> int:
        """Return the position, in bytes."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self.size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read up to `len(buffer)` bytes.

        Raises:
            StoreError: the store refuses, or the file changed.
            Restart: the store does not answer.
        """
        wanted = min(len(buffer), self.size - self._at)
        if wanted <= 0:
            return 0
        data = self._next(wanted)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)
