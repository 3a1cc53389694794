"""Local copies of folders that live in an object store, checked by checksums.

They are in `ROOT/BUCKET/KEY`, those of other stores than S3 in `ROOT/gs/BUCKET/KEY` and
`ROOT/az/CONTAINER/KEY`. Next to each copy, an index says which version of the store's object each
file is equal to. What is equal is neither fetched nor put again.
"""

import contextlib
import dataclasses
import fcntl
import functools
import hashlib
import json
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from pathlib import Path

from pipeline.common import parallel
from pipeline.errors import BY_FORCE, ConfigError, InputError, Restart, StoreError
from pipeline.storage import places
from pipeline.storage.atomic import write_text
from pipeline.storage.checksums import sha256
from pipeline.storage.file_search import inside, visible
from pipeline.storage.stores import azure, objects
from pipeline.storage.stores.remote_file import LARGEST, Info, parse

TRIES = 3  # puts of an object that is another than was seen
Put = Callable[..., str | None]  # of an address, `over` the version of an ETag
# Folders in the root of mirrors. The name of a bucket has at least three letters: none is one of
# these.
_TOPS: dict[str, list[str]] = {"s3": [], "gs": ["gs"], "abfs": ["az"], "abfss": ["az"]}


def default_root() -> Path:
    """Return the folder of all mirrors of this user: one for each store's servers."""
    server = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or "aws"
    emulator, profile = (os.environ.get(name, "") for name in ("STORAGE_EMULATOR_HOST", "AWS_PROFILE"))
    which = f"{server} {profile}{emulator}{azure.own_account()}"
    return places.user_cache() / "stores" / hashlib.sha256(which.encode()).hexdigest()[:12]


@dataclasses.dataclass
class Entry:
    """A file as it was when it was equal to the store's object."""

    size: int
    mtime_ns: int
    sha256: str
    etag: str

    def is_of(self, path: Path) -> bool:
        """Return whether the file has not changed since."""
        with contextlib.suppress(OSError):
            stat = path.stat()
            return (stat.st_size, stat.st_mtime_ns) == (self.size, self.mtime_ns)
        return False


def other_than(info: Info) -> Entry:
    """Return the entry of a file that is not what the store has."""
    return Entry(-1, 0, "", info.etag)


def local_path(root: Path, address: str) -> Path:
    """Return where the copy of an address is.

    Raises:
        ConfigError: the address has `.` or `..` as a part.
    """
    scheme, _, rest = places.normal(address).partition("://")
    parts = [*_TOPS[scheme], *rest.split("/")]
    if {".", ".."} & set(parts):
        raise ConfigError("must not have . or .. as a part of the address", path=address)
    return root.joinpath(*parts)


def restore_addresses(root: Path, text: str) -> str:
    """Return a text with addresses for the paths of local copies."""
    for scheme in ("gs", "abfs", "s3"):
        text = text.replace("/".join([str(root), *_TOPS[scheme], ""]), f"{scheme}://")
    return text


class CachedFolder:
    """One folder of a store and its local copy."""

    def __init__(self, root: Path, address: str):
        self.address = places.normal(address)
        self._store = objects.client(self.address)
        self.path = local_path(root, self.address)
        self._index_file = self.path.with_name(f".{self.path.name}.index")
        self._one = threading.Lock()
        self.sent = ""  # fingerprint of the stage that was put as a whole
        self.hold: Callable[[], object] = lambda: None  # raises if another process may write here
        self.entries: dict[str, Entry] = {}
        self._load_index()

    def _load_index(self) -> None:
        with contextlib.suppress(OSError, ValueError, TypeError, KeyError, InputError):
            fields = json.loads(self._index_file.read_bytes())
            entries = {name: Entry(**entry) for name, entry in fields["entries"].items()}
            for name in entries:
                inside(self.path, name, self._index_file)
            self.sent, self.entries = fields["sent"], entries

    def save_index(self) -> None:
        """Write the index."""
        with self._one:
            self._index_file.parent.mkdir(parents=True, exist_ok=True)
            entries = {name: dataclasses.asdict(e) for name, e in dict(self.entries).items()}
            write_text(self._index_file, json.dumps({"sent": self.sent, "entries": entries}))

    def listed(self) -> dict[str, Info]:
        """Return the objects of the folder by relative name."""
        start = len(parse(self.address)[1]) + 1
        listed = {info.key[start:]: info for info in self._store.below(self.address)}
        for name in listed:
            inside(self.path, name, self.address)
        return listed

    def files(self) -> dict[str, Path]:
        """Return the local files by relative name, but hidden ones."""
        return visible(self.path)

    def fetch(self, checksums: Mapping[str, str | None], listed: Mapping[str, Info]) -> None:
        """Fetch what is not here yet of `checksums`, sha256 (None: not known) by relative name.

        Raises:
            StoreError: an object is missing, changed, or does not have its checksum.
            Restart: the store does not answer.
        """

        def one(name: str) -> None:
            path, checksum = inside(self.path, name, self.address), checksums[name]
            info = listed[name]
            entry = self.entries.get(name)
            same = entry and (entry.etag == info.etag if checksum is None else entry.sha256 == checksum)
            if entry and same and entry.is_of(path):
                return
            if checksum is not None and _has(path, info.size, checksum):
                if entry is None:  # else it is put again: the store's is another
                    self._note(name, path.stat(), checksum, info.etag)
                return
            digest = objects.fetch(f"{self.address}/{name}", info, path, checksum)
            # What no stage made is known by its times: a copy has to be as good as the object.
            os.utime(path, ns=(info.mtime_ns, info.mtime_ns))
            self._note(name, path.stat(), digest, info.etag)

        missing = next((name for name in checksums if name not in listed), None)
        if missing is not None:
            place = f"{self.address}/{missing}"
            raise StoreError(f"not found, although the manifest names it; make the folder again {BY_FORCE}", path=place)
        try:
            parallel.each(one, checksums)
        finally:
            self.save_index()

    def put(self, name: str, checksum: str | None = None) -> None:
        """Put a file unless the store has it as it is.

        Raises:
            FileNotFoundError: it is gone.
            StoreError, Restart: the store refuses, does not answer, or another process writes here.
        """
        path = self.path / name
        entry = self.entries.get(name)
        if entry is not None and entry.is_of(path):
            return
        stat, seen = path.stat(), entry.etag if entry is not None else None
        if stat.st_size <= LARGEST:  # as one piece: it may grow meanwhile
            data = path.read_bytes()
            checksum = hashlib.sha256(data).hexdigest()
            etag = self._over(name, seen, functools.partial(self._store.put, data=data))
        elif checksum is not None:
            etag = self._over(name, seen, self._file(path, checksum))
        else:
            with tempfile.NamedTemporaryFile(dir=self.path, prefix=".put-") as still:
                shutil.copyfile(path, still.name)
                checksum = sha256(Path(still.name))
                etag = self._over(name, seen, self._file(Path(still.name), checksum))
        self._note(name, stat, checksum, etag)

    def _file(self, path: Path, checksum: str) -> Put:
        return functools.partial(self._store.put_file, path=path, checksum=checksum)

    def _over(self, name: str, seen: str | None, put: Put) -> str:
        """Put an object over the version that was `seen` (None: over none); return its ETag.

        The holder of a lock that stood still must not overwrite what the next one has made. So the
        lock is asked after a version was seen, and that version alone is replaced.
        """
        place = f"{self.address}/{name}"
        for _ in range(TRIES):
            self.hold()
            etag = put(place, over=seen)
            if etag is not None:
                return etag
            info = self._store.head(place)  # of an earlier start, or the answer to ours was lost
            seen = info.etag if info is not None else None
        raise Restart(f"{place}: another process writes it too")

    def replace(self, name: str, seen: str | None, data: bytes) -> str:
        """Put `data` over the version of an object that was `seen`; return its ETag.

        Raises:
            Restart: another process has replaced it since.
        """
        self.hold()
        place = f"{self.address}/{name}"
        etag = self._store.put(place, data, seen)
        if etag is None and (stored := self._store.read(place)) is not None and stored[0] == data:
            return stored[1]  # the answer to an earlier request of ours was lost
        if etag is None:
            raise Restart(f"{place}: another process has changed it")
        return etag

    def forget(self, names: Iterable[str]) -> None:
        """Remove objects from the store."""

        def one(name: str) -> None:
            self.hold()
            self._store.delete(f"{self.address}/{name}")
            self.entries.pop(name, None)

        parallel.each(one, names)

    def drop_stale(self, listed: Mapping[str, Info]) -> None:
        """Forget the entries of objects that the store does not have any more; note those that it has otherwise."""
        for name, entry in list(self.entries.items()):
            if name not in listed:
                del self.entries[name]
            elif listed[name].etag != entry.etag:
                self.entries[name] = other_than(listed[name])

    def keep_only(self, names: Container[str]) -> None:
        """Remove the local files whose names are not among `names`."""
        for name, path in self.files().items():
            if name not in names:
                path.unlink()
                self.entries.pop(name, None)

    @contextlib.contextmanager
    def reading(self) -> Iterator[bool]:
        """Be the only reader that fetches; false where a stage makes the folder here now.

        What such a stage has written so far is newer than what the store has.
        """
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with (self.path.parent / f".{self.path.name}.fetch").open("w") as fetching:
            fcntl.flock(fetching, fcntl.LOCK_EX)
            self._load_index()  # the reader before has written it
            with (self.path.parent / f".{self.path.name}.lock").open("w") as making:
                try:
                    fcntl.flock(making, fcntl.LOCK_SH | fcntl.LOCK_NB)
                except OSError:
                    yield False
                    return
            yield True

    def _note(self, name: str, stat: os.stat_result, checksum: str, etag: str) -> None:
        self.entries[name] = Entry(stat.st_size, stat.st_mtime_ns, checksum, etag)


def _has(path: Path, size: int, checksum: str) -> bool:
    with contextlib.suppress(OSError):
        return path.stat().st_size == size and sha256(path) == checksum
    return False
