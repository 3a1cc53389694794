"""Files by path, or by address in an object store: s3://, gs://, abfs://, hdfs://, hf://.

s3://, gs://, abfs:// and hf:// are read by the clients in `pipeline.storage.stores`, the others
through Arrow's file systems.
"""

import contextlib
import errno
import fnmatch
import functools
import glob
import io
import lzma
import os
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from types import ModuleType
from typing import Any, BinaryIO, NamedTuple, cast

from pipeline.errors import ConfigError, InputError, first_line
from pipeline.storage import file_search
from pipeline.storage.stores import hub
from pipeline.storage.stores.client import Client
from pipeline.storage.stores.objects import CLIENTS
from pipeline.storage.stores.remote_file import SMALLEST, Info

# What the module zipfile raises where an archive is damaged, or made to look so.
BROKEN_ZIP = (zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError, RuntimeError, OSError, ValueError)
BUFFER = 4 * 2**20  # bytes that one request asks for: a request costs some ten milliseconds
_BY_ARROW = ("hdfs", "viewfs")
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+://")


class _Arrow:
    """The reader of other file systems."""

    def head(self, address: str) -> Info | None:
        """Return what is known of a file; None if it is missing."""
        with _reached(address) as (system, path):
            info = system.get_file_info(path)
        return self._info(info) if info.is_file else None

    def below(self, address: str) -> list[Info]:
        """List all files below a folder."""
        from pyarrow import fs

        with _reached(address) as (system, path):
            infos = system.get_file_info(fs.FileSelector(path, recursive=True))
        return [self._info(each) for each in infos if each.is_file]

    def is_folder(self, address: str) -> bool:
        """Return whether the address is of a folder."""
        with _reached(address) as (system, path):
            return bool(system.get_file_info(path).type.name == "Directory")

    def opened(self, address: str, info: Info) -> Any:
        """Return a file to read."""
        with _reached(address) as (system, path):
            return io.BufferedReader(system.open_input_file(path), BUFFER)

    @staticmethod
    def _info(info: Any) -> Info:
        return Info(info.path.lstrip("/"), info.size or 0, info.mtime_ns or 0, "")


def user_cache() -> Path:
    """Return the folder of what is kept for this user beyond a run."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "bert-pipeline"


@functools.lru_cache(maxsize=64)
def _opened(root: str) -> tuple[Any, str]:
    from pyarrow import ArrowException, fs  # as long to load as all else that a command starts with

    try:
        if root.partition("://")[0] not in _BY_ARROW:
            raise ValueError("not one of those that Arrow reads well enough")
        return fs.FileSystem.from_uri(root)  # type: ignore[no-any-return]
    except (ValueError, ArrowException) as error:
        raise ConfigError(
            "scheme not supported; use a path, s3://, gs://, abfs://, hf:// or hdfs://, or download the files first",
            path=root,
        ) from error


@contextlib.contextmanager
def _reached(address: str) -> Iterator[tuple[Any, str]]:
    """Yield the file system of an address, one per bucket and process, and the path in it.

    Errors of a store that is not reached become those of a user.
    """
    scheme, _, rest = address.partition("://")
    bucket, _, inner = rest.partition("/")
    try:
        system, root = _opened(f"{scheme}://{bucket}")
        yield system, f"{root}/{inner}".rstrip("/")
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(
            f"cannot be reached ({error.strerror or first_line(error)}); check the address, the keys, the region and "
            "the endpoint",
            path=address,
        ) from error


_ARROW = _Arrow()
# What Arrow does not read, or not well enough; all have `head`, `below`, `is_folder` and `opened`.
_STORES: dict[str, Client | ModuleType] = {**CLIENTS, "gcs": CLIENTS["gs"], "hf": hub}


class Stat(NamedTuple):
    """Size and modification time of a file, with the names of `os.stat_result`."""

    st_size: int
    st_mtime_ns: int


@dataclass(frozen=True, order=True)
class Remote:
    """A file or folder of an object store, with what readers need of `pathlib.Path`.

    The store's answer is kept: an object is looked up once, and reads the version seen then.
    """

    address: str
    _known: list[Info | None] = field(default_factory=list, compare=False, repr=False)

    def __str__(self) -> str:
        return self.address

    @property
    def name(self) -> str:
        """Return the last part of the address."""
        return PurePosixPath(self.address).name

    @property
    def parent(self) -> "Remote":
        """Return the folder that contains it."""
        return Remote(self.address.rpartition("/")[0])

    @property
    def version(self) -> str:
        """Return an identifier that changes with the content; empty if the store has none."""
        return self._info().etag

    def stat(self) -> Stat:
        """Return size and modification time.

        Raises:
            OSError: the object does not exist or is not readable.
        """
        info = self._info()
        return Stat(info.size, info.mtime_ns)

    def is_dir(self) -> bool:
        """Return whether objects exist below it.

        Raises:
            UserError: the store does not answer, or denies access.
        """
        return self._store.is_folder(self.address)

    def is_file(self) -> bool:
        """Return whether it is an object.

        Raises:
            UserError: the store does not answer, or denies access.
        """
        return self._look() is not None

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the object for reading in any order.

        Raises:
            OSError: the object does not exist or is not readable.
        """
        assert mode == "rb"
        return cast(BinaryIO, io.BufferedReader(self._store.opened(self.address, self._info()), SMALLEST))

    def read_bytes(self) -> bytes:
        """Return the whole content, of the version that was seen if one was."""
        read = getattr(self._store, "read", None)
        if read is not None and not self._known:  # by one request: between two it may be replaced
            if (stored := read(self.address)) is not None:
                return bytes(stored[0])
            self._known.append(None)
        with self.open() as file:
            return file.read()

    def below(self) -> list["Remote"]:
        """Return all objects below it.

        Raises:
            UserError: the store does not answer, or denies access.
        """
        scheme, _, rest = self.address.partition("://")
        top = f"{scheme}://{rest.partition('/')[0]}"
        return [Remote(f"{top}/{info.key}", [info]) for info in self._store.below(self.address)]

    @property
    def _store(self) -> Client | ModuleType | _Arrow:
        """Return what reads the store."""
        return _STORES.get(self.address.partition("://")[0], _ARROW)

    def _look(self) -> Info | None:
        """Ask the store once; None if it is missing."""
        if not self._known:
            self._known.append(self._store.head(self.address))
        return self._known[0]

    def _info(self) -> Info:
        if (info := self._look()) is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", self.address)
        return info


File = Path | Remote


def is_address(place: str) -> bool:
    """Return whether a path is an address, `SCHEME://…`."""
    return _ADDRESS.match(place) is not None


def scheme_of(place: str) -> str | None:
    """Return the scheme of what lacks a slash to be an address, and would be a folder of that name; else None."""
    scheme, _, rest = place.partition(":")
    remote = scheme.lower() in (*_STORES, *_BY_ARROW) and ":" in place
    return scheme if remote and not rest.startswith("//") else None


def normal(place: str) -> str:
    """Return a path without `..` and the like; of an address, without needless slashes.

    An empty bucket stays one: what follows `s3:///` would else be taken for its name.
    """
    if not is_address(place):
        return os.path.normpath(place)
    scheme, _, rest = place.partition("://")
    bucket, _, key = rest.partition("/")
    return f"{scheme.lower()}://{'/'.join([bucket, *filter(None, key.split('/'))])}"


def pin_revision(place: str) -> str:
    """Return an address of the hub with a commit for its revision; any other place as it is.

    Raises:
        ConfigError, StoreError: it is not the address of a data set that may be read.
        Restart: the hub does not answer.
    """
    if not place.lower().startswith(hub.SCHEME):
        return place
    return hub.pin_revision(normal(place))


def mark_and_size(file: File, name: str | None = None) -> tuple[str, int]:
    """Return a word that changes when a file's content does, or its name (None: its path), and its bytes.

    Raises:
        OSError: it does not exist or is not readable.
    """
    stat = file.stat()
    # The hub states no time of change.
    version = file.version if isinstance(file, Remote) and file.address.startswith(hub.SCHEME) else stat.st_mtime_ns
    return f"{name or file}\x1f{stat.st_size}\x1f{version}", stat.st_size


def at(place: File | str) -> File:
    """Return the file or folder at a path or an address."""
    if isinstance(place, str) and is_address(place):
        scheme, _, rest = place.rstrip("/").partition("://")
        return Remote(f"{scheme.lower()}://{rest}")
    return Path(place) if isinstance(place, str) else place


def is_folder(place: File) -> bool:
    """Return whether `place` is a folder, or a prefix of addresses.

    Raises:
        InputError: the file system does not answer.
    """
    return file_search.is_folder(place) if isinstance(place, Path) else place.is_dir()


def below(top: File, left_out: set[Path] | None = None) -> list[File]:
    """List all files in a folder and in its folders, but hidden ones, sorted.

    `left_out`: see `file_search.files_below`.

    Raises:
        InputError: a part of it is not readable.
    """
    files: list[File] = list(top.below() if isinstance(top, Remote) else file_search.files_below(top, left_out))
    hidden = re.compile(r"(^|/)(\.|~\$)")  # ~$: locks of office programs
    return sorted((file for file in files if not hidden.search(name_below(top, file))), key=str)


def name_below(top: File, file: File) -> str:
    """Return the name of a file below a folder, with slashes."""
    return str(file)[len(str(top)) + 1 if str(top) != "." else 0 :].replace("\\", "/")


def matching(pattern: str, left_out: set[Path] | None = None) -> list[File]:
    """List the files that a path or an address with wildcards names, sorted.

    `left_out`: see `file_search.files_below`.

    Raises:
        InputError: a folder that may contain matches is not readable.
    """
    top = at(pattern)
    if isinstance(top, Path):
        return list(file_search.files_matching(pattern, left_out))
    if top.is_file():
        return [top]
    if not glob.has_magic(pattern):
        return []
    fixed = re.split(r"[*?[]", top.address, maxsplit=1)[0]
    by_name = isinstance(top._store, Client)  # listed by the beginning of a name, others by folder
    listed = f"{fixed}*" if by_name else fixed.rpartition("/")[0]
    parts = top.address.split("/")
    return sorted(file for file in Remote(listed).below() if fits(str(file).split("/"), parts))


def fits(names: Sequence[str], parts: Sequence[str]) -> bool:
    """Return whether the parts of an address, or of a path, match those of a pattern, as paths on disk do.

    In a part with more than `**`, as `**.txt`, it matches any characters, of folders too.
    """
    if not names or not parts:
        return not names and not parts
    part, rest = parts[0], parts[1:]
    if "**" in part and part != "**":
        return fnmatch.fnmatchcase("/".join(names), "/".join(parts))
    hidden = names[0].startswith(".") and not part.startswith(".")
    if part == "**":
        return fits(names, rest or ["*"]) or (not hidden and fits(names[1:], parts))
    return not hidden and fnmatch.fnmatchcase(names[0], part) and fits(names[1:], rest)
