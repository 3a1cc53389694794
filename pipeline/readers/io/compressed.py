"""Bytes of a large text file, plain or compressed, in ranges that workers read independently.

A range of a bzip2 file owns every stream that starts in it. A file of many streams can be cut
anywhere without an index: ten bytes mark the start of a stream.
"""

import bz2
import contextlib
import io
import itertools
import lzma
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

import zstandard
from isal import igzip_lib

from pipeline.errors import InputError, readable
from pipeline.readers.base import FileRange, ReadLog
from pipeline.storage import budget, places
from pipeline.storage.budget import Budget
from pipeline.storage.places import File

Chunks = Iterator[tuple[bytes, bool]]  # of a range: bytes, and whether the range owns them
CHUNK = 1 << 18  # bytes read at once
BEYOND = 2**13  # first bytes read after a range: often no more than the end of a line
_UNPACKED = 1 << 20  # decompressed bytes yielded at once, whatever the compression ratio

# Kinds by their first bytes; of zstd also a frame without data, which other programs may write first
# (RFC 8878, section 3.1.2).
_MAGIC = {
    "zip": rb"PK\x03\x04",
    "7z": rb"7z\xbc\xaf\x27\x1c",
    "lz4": rb"\x04\x22\x4d\x18",
    "rar": rb"Rar!\x1a",
    "gzip": rb"\x1f\x8b",
    "zstd": rb"\x28\xb5\x2f\xfd|[\x50-\x5f]\x2a\x4d\x18",
    "xz": rb"\xfd7zXZ\x00",
    "bzip2": rb"BZh[1-9]",
}
# "BZh", the block size, and the magic number of a block (pi): 2**-77 by chance at a given byte.
_STREAM = re.compile(rb"BZh[1-9]1AY&SY")
_STREAM_LENGTH = 10
_HEADER = 2**10  # bytes of a header of gzip, with its name; igzip fails on a checksum of one in two pieces
# Multistream dumps have 100 pages per stream: a file without a second one in this range has one.
_LOOK = 64 << 20


_WINDOW = 1 << 31  # largest zstd window in bytes, as written by `zstd --long=31`
EMPTY = "is empty; replace or delete the file"
PACKED = (".gz", ".bz2", ".zst", ".xz")  # suffixes of compressed files


def suffixes(*names: str) -> tuple[str, ...]:
    """Return the suffixes, each also with those of compressed files."""
    return tuple(name + packed for name in names for packed in ("", *PACKED))


JSON_LINES = suffixes(".jsonl", ".json", ".ndjson")
TARS = (*suffixes(".tar"), ".tgz", ".tbz2", ".txz", ".tzst")
ARCHIVES = (".zip", *TARS)


class _Zstd:
    """Adapter of zstandard's decompressor; small inputs (`STEP` bytes) bound its output."""

    STEP = 1 << 10  # of blocks that repeat a byte: 32 MiB

    def __init__(self) -> None:
        decompressor = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
        self._inner = decompressor.decompressobj()
        self._waiting = memoryview(b"")

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def needs_input(self) -> bool:
        return not self._waiting

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data + bytes(self._waiting)

    def decompress(self, data: bytes, max_length: int) -> bytes:
        waiting = self._waiting if not data else memoryview(bytes(self._waiting) + data)
        self._waiting = waiting[self.STEP :]
        return self._inner.decompress(waiting[: self.STEP])


# Decompressors of one stream.
_Unpacker = bz2.BZ2Decompressor | lzma.LZMADecompressor | igzip_lib.IgzipDecompressor | _Zstd
_UNPACKERS: dict[str, Callable[[], _Unpacker]] = {
    "gzip": lambda: igzip_lib.IgzipDecompressor(igzip_lib.DECOMP_GZIP),  # three times as fast as zlib
    "bzip2": bz2.BZ2Decompressor,
    "xz": lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=budget.TABLE),
    "zstd": _Zstd,
}
GZIP_ERROR: type[Exception] = igzip_lib.error  # type: ignore[assignment]
_DAMAGE = (OSError, GZIP_ERROR, lzma.LZMAError, zstandard.ZstdError)


def plain_name(name: str) -> str:
    """Return the name of a file without the suffix of a compression."""
    packed = next((end for end in PACKED if name.lower().endswith(end)), "")
    return name[: len(name) - len(packed)]


def _kind(path: File | str, head: bytes) -> str:
    if not head:
        raise InputError(EMPTY, path=path)
    kind = next((name for name, magic in _MAGIC.items() if re.match(magic, head)), "plain")
    if kind not in ("plain", *_UNPACKERS):
        raise InputError(f"{kind} is not supported; extract it, or use gzip or bzip2", path=path)
    return kind


class CompressedFile:
    """A file at a path or an address, plain or compressed; all that is read is of one version of it."""

    def __init__(self, place: File | str):
        self.file = places.at(place)

    @property
    def kind(self) -> str:
        """The compression by the file's first bytes: plain, gzip, bzip2, zstd or xz.

        Raises:
            InputError: the file cannot be read, is empty, or has an unsupported compression.
        """
        with self._opened() as (_, kind):
            return kind

    @property
    def stamp(self) -> str:
        """The file's size and version (or modification time), to detect changes.

        Raises:
            InputError: the file cannot be read.
        """
        with readable(self.file):
            stat = self.file.stat()
            version = "" if isinstance(self.file, Path) else self.file.version
            return f"{stat.st_size} {version or stat.st_mtime_ns}"

    def ranges(self, split_bytes: int, *, seekable_text: bool = True) -> list[FileRange]:
        """Cut the file into ranges of about `split_bytes`, before decompression.

        A gzip, zstd or xz file, a bzip2 file of one stream, and text that must be read from its
        beginning (`seekable_text=False`) are one range.
        """
        size = self.file.stat().st_size
        parts = max(1, round(size / split_bytes))
        if parts > 1:
            with self._opened() as (file, kind):
                many = kind == "plain" or (kind == "bzip2" and _next_stream(file, 1, _LOOK) is not None)
            parts = parts if many and seekable_text else 1
        bounds = [size * part // parts for part in range(parts + 1)]
        mark = self.stamp
        return [FileRange(str(self.file), start, end, mark) for start, end in itertools.pairwise(bounds)]

    def read(self, file_range: FileRange | None = None, log: ReadLog | None = None) -> Chunks:
        """Yield the decompressed bytes of a range, or all, in chunks, each with whether the range owns it.

        Bytes after the range follow, not owned, until the caller stops: a document that starts in
        the range may end after it.

        Raises:
            InputError: the file is truncated or damaged (the message gives the byte), or has
                changed since the file ranges were planned.
        """
        with self._opened() as (file, kind):
            file_range = file_range or FileRange(str(self.file), 0, self.file.stat().st_size)
            self.check(file_range)
            start: int | None = file_range.start
            if kind == "bzip2" and start:
                start = _next_stream(file, start, file_range.end)
            if start is not None:
                file.seek(start)
                log = ReadLog() if log is None else log
                if kind == "plain":
                    yield from _plain(file, start, file_range, log)
                else:
                    yield from _unpack(file, start, file_range, log, _UNPACKERS[kind])

    def check(self, file_range: FileRange) -> None:
        """Raise InputError if the file has changed since the range was planned."""
        if file_range.stamp and file_range.stamp != self.stamp:
            raise InputError("the file was changed during the run; rerun the command", path=file_range.path)

    def whole(self) -> FileRange:
        """Return the range of the whole file."""
        return FileRange(str(self.file), 0, self.file.stat().st_size, self.stamp)

    @contextlib.contextmanager
    def _opened(self) -> Iterator[tuple[BinaryIO, str]]:
        """Open the file, whose compression is known by its first bytes."""
        with readable(self.file):
            file = self.file.open("rb")
        with file:
            with readable(self.file):
                head = file.read(8)
            yield file, _kind(self.file, head)


def _next_stream(file: BinaryIO, start: int, end: int) -> int | None:
    """Return the first byte in [start, end) where a bzip2 stream starts, or None."""
    file.seek(start)
    data = b""
    while start < end and (more := file.read(CHUNK)):
        data += more
        if match := _STREAM.search(data):
            at = start + match.start()
            return at if at < end else None
        keep = _STREAM_LENGTH - 1
        start += max(0, len(data) - keep)
        data = data[-keep:]
    return None


class Stream:
    """The decompressed bytes of a whole file, as a file that is read once."""

    def __init__(self, file_range: FileRange, log: ReadLog):
        self._chunks, self._held = CompressedFile(file_range.path).read(file_range, log), memoryview(b"")

    def read(self, size: int) -> bytes:
        """Return up to `size` bytes, none at the end.

        Raises:
            InputError: raised by `CompressedFile.read`.
        """
        if not self._held:
            self._held = memoryview(next(self._chunks, (b"", True))[0])
        found, self._held = self._held[:size], self._held[size:]
        return bytes(found)


def decompressed(place: str, content: bytes, room: Budget) -> bytes:
    """Decompress the content of a small file; it may be plain.

    Raises:
        InputError: it is empty, truncated or damaged, or has an unsupported compression.
    """
    kind = _kind(place, content[:8])
    if kind == "plain":
        return content
    whole = FileRange(place, 0, len(content))
    return room.gathered(chunk for chunk, _ in _unpack(io.BytesIO(content), 0, whole, ReadLog(), _UNPACKERS[kind]))


def _plain(file: BinaryIO, at: int, file_range: FileRange, log: ReadLog) -> Chunks:
    end, beyond = file_range.end, BEYOND
    while data := file.read(min(CHUNK, end - at) if at < end else beyond):
        log.reached(file_range, at)
        yield data, at < end
        if at >= end:
            beyond = min(2 * beyond, CHUNK)
        at += len(data)


def _unpack(file: BinaryIO, at: int, file_range: FileRange, log: ReadLog, new: Callable[[], _Unpacker]) -> Chunks:
    """Decompress one stream after another from byte `at` on."""
    data = file.read(CHUNK)
    while data:
        stream, owned = new(), at < file_range.end
        log.reached(file_range, at)  # once for all parts that a chunk is unpacked in: what came before is read
        while not stream.eof:
            if stream.needs_input and not data:
                log.reached(file_range, file.tell())
                data = file.read(CHUNK)
            if stream.needs_input and not data:
                why = f"truncated at byte {file.tell()}, within the compressed stream that starts at byte {at}"
                raise InputError(f"{why}; download the file again", path=file_range.path)
            try:
                unpacked = stream.decompress(data, _UNPACKED)
            except _DAMAGE as error:
                why = f"damaged between bytes {at} and {file.tell()} ({error}); download the file again"
                raise InputError(why, path=file_range.path) from error
            data = b""
            for begin in range(0, len(unpacked), _UNPACKED):  # of zstd it may be more
                yield unpacked[begin : begin + _UNPACKED], owned
        data = _past_padding(stream.unused_data, file)
        at = file.tell() - len(data)


def _past_padding(data: bytes, file: BinaryIO) -> bytes:
    """Return the data after the zero padding of tapes and blocks, of any length; a header is in one piece."""
    while not (data := data.lstrip(b"\0")) and (data := file.read(CHUNK)):
        pass
    return data if len(data) >= _HEADER else data + file.read(CHUNK)
