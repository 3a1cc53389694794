"""What stores have in common: requests until they are answered, lists, ranges, conditions, parts.

A client of a store is what differs: how its library is asked, and what its errors mean. An object is
written only where it is missing, or only over the version that was read; a read is bound to the
version that was seen first. Requests are repeated by `retries`: libraries make every request once.
"""

import calendar
import contextlib
import email.utils
import functools
import hashlib
import os
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from pipeline.common import parallel
from pipeline.common.tables import read_table
from pipeline.errors import BY_FORCE, ConfigError, Restart, StoreError, first_line
from pipeline.storage.stores import retries
from pipeline.storage.stores.remote_file import Info, RemoteFile, key_prefix, listed_prefix, parse

Page = tuple[list[Info], str | None]  # of a list, and the token of the next
Got = tuple[bytes, str]  # content, and ETag
Seen = tuple[Info, str | None]  # what is said of an object, and the date of the answer
Span = tuple[int, int] | None  # of bytes: from the one to before the other; None: all
ANY = "*"  # in place of an ETag: whatever version is there, or none


class At(NamedTuple):
    """An object, or the beginning of keys, as the library is asked for it."""

    client: Any
    bucket: str
    key: str


class Failure(NamedTuple):
    """What an error of a library means."""

    status: int = 0  # 0: there was no answer
    code: str = ""  # the store's own word
    missing: bool = False  # the object is not there
    unmet: bool = False  # the condition does not hold
    passes: bool = False  # the same request may succeed
    words: str = ""  # why it will not

    @property
    def temporary(self) -> bool:
        """Whether to ask again."""
        return self.passes or self.status >= 500 or self.status in (408, 429)


class Client(ABC):
    """The objects of one kind of store; `_` methods make one request each, with the library's client.

    Public ones raise StoreError if the store refuses, Restart if it does not answer, ConfigError if
    a package is missing.
    """

    PART, MOST_PARTS = 2**25, 9000  # bytes of one request of a large file; a store takes no more
    WHOLE = 2**25  # bytes of the largest file that is sent as one
    PAGE = 1000  # objects of one request of a list
    EXTRA: str  # of pip, with the library; the store's part of `reasons.yaml`
    ENDPOINT: str  # the attribute of the library's client with the address that it asks
    ADVICE: str  # what to check where the store is not reached
    CREDENTIALS: str  # what to do where there are none

    def __init__(self) -> None:
        self.made: dict[tuple[int, str], Any] = {}  # the library's clients, by process and account
        self._making = threading.Lock()

    @abstractmethod
    def _connect(self, account: str) -> Any:
        """Make the library's client."""

    @abstractmethod
    def _failure(self, error: Exception) -> Failure:
        """Return what an error means."""

    @abstractmethod
    def _condition(self, etag: str | None) -> dict[str, Any]:
        """Return the arguments of a write over a version; None: only where the object is missing."""

    @abstractmethod
    def _look(self, at: At) -> Seen | None:
        """Return what the store says of an object, and the date of its answer."""

    @abstractmethod
    def _page(self, at: At, size: int, token: str | None) -> Page:
        """Return a page of the objects whose keys begin with a prefix, and the next one's token."""

    @abstractmethod
    def _get(self, at: At, etag: str | None = None, span: Span = None) -> Got:
        """Return the bytes of a version, or of a part of it, and the ETag."""

    @abstractmethod
    def _put(self, at: At, data: bytes, **condition: Any) -> str:
        """Write an object, which the store compares with a checksum; return its ETag."""

    @abstractmethod
    def _delete(self, at: At) -> None:
        """Remove an object."""

    def _begin(self, at: At) -> str:
        """Return the name of a new upload in parts."""
        raise NotImplementedError

    def _send(self, at: At, upload: str, number: int, data: bytes) -> Any:
        """Send a part, which the store compares with a checksum; return what completes it."""
        raise NotImplementedError

    def _complete(self, at: At, upload: str, parts: list[Any], **condition: Any) -> str:
        """Make an object of parts; return its ETag."""
        raise NotImplementedError

    def _abort(self, at: At, upload: str) -> None:  # noqa: B027
        """Remove the parts of an upload."""

    def _reason(self, at: At, failure: Failure) -> str:
        """Return the store's own word for a refusal."""
        return failure.code

    def client(self, address: str) -> Any:
        """Return this process's client of the library."""
        which = os.getpid(), parse(address)[0].partition("@")[2]
        with self._making:
            if which not in self.made:
                try:
                    self.made[which] = self._connect(which[1])
                except ImportError as error:
                    raise ConfigError(
                        f"{address.partition('://')[0]}:// addresses need a package that is missing ({error}): "
                        f"pip install -e '.[{self.EXTRA}]'"
                    ) from error
                except Exception as error:
                    raise StoreError(self._unusable(error), path=address) from error
        return self.made[which]

    def call(self, address: str, request: Callable[[At], Any], *, missing: bool = False, unmet: bool = False) -> Any:
        """Make a request until it succeeds; None where the object is `missing`, or a condition `unmet`."""
        at = At(self.client(address), *parse(address))

        def attempt() -> Any:
            try:
                return request(at)
            except (retries.Again, StoreError, Restart):
                raise
            except Exception as error:
                failure = self._failure(error)
                if (missing and failure.missing) or (unmet and failure.unmet):
                    return None
                if failure.temporary:
                    raise retries.Again(first_line(error), answered=failure.status > 0) from error
                raise self._refusal(at, address, error, failure) from error

        return retries.until_answered(address, str(attrgetter(self.ENDPOINT)(at.client)), self.ADVICE, attempt)

    def _unusable(self, error: Exception) -> str:
        return f"no usable credentials ({first_line(error)}); {self.CREDENTIALS}"

    def _refusal(self, at: At, address: str, error: Exception, failure: Failure) -> Exception:
        """Return the error for an answer that will not change."""
        status, code = failure.status, self._reason(at, failure)
        tables = read_table(__file__, "reasons.yaml")
        reasons = tables["all"] | tables[self.EXTRA]
        words = reasons.get(code) or failure.words
        if not words and not status and not isinstance(error, ValueError):  # no name of a bucket
            return error
        words = words or reasons.get(status) or first_line(error)
        detail = f"{status or ''} {code}".strip()
        return StoreError(f"{words}{detail and f' ({detail})'}", path=address)

    def head(self, address: str) -> Info | None:
        """Return what the store says of an object; None if it is missing."""
        seen = self.call(address, self._look, missing=True) if parse(address)[1] else None
        return seen and seen[0]

    def age(self, address: str) -> float | None:
        """Return for how many seconds an object has not changed, by the clock of the store."""
        if (seen := self.call(address, self._look, missing=True)) is None:
            return None
        date = email.utils.parsedate(seen[1] or "")
        return float((calendar.timegm(date) if date else time.time()) - seen[0].mtime_ns / 1e9)

    def below(self, address: str) -> list[Info]:
        """List all objects below a folder, or whose keys begin as a prefix ending in `*` does."""
        pages = self.pages(address, listed_prefix(parse(address)[1]), self.PAGE)
        return [info for page in pages for info in page if not info.key.endswith("/")]  # markers of folders

    def is_folder(self, address: str) -> bool:
        """Return whether there is an object below the address."""
        return any(self.pages(address, key_prefix(parse(address)[1]), 10))

    def pages(self, address: str, prefix: str, size: int) -> Iterator[list[Info]]:
        """Yield the objects whose keys begin with a prefix, one list for each request."""
        token: str | None = ""
        while token is not None:

            def request(at: At, token: str | None = token) -> Page:
                return self._page(at._replace(key=prefix), size, token or None)

            infos, token = self.call(address, request)
            yield infos

    def opened(self, address: str, info: Info) -> RemoteFile:
        """Return an object as a file to read, in any order, bound to one version of it."""

        def read_range(start: int, stop: int) -> bytes:
            def request(at: At) -> bytes:
                data, _ = self._get(at, info.etag, (start, stop))
                if len(data) != stop - start:
                    raise retries.Again("the answer was cut off")
                return data

            content: bytes = self.call(address, request)
            return content

        return RemoteFile(address, info, read_range)

    def read(self, address: str) -> Got | None:
        """Return the bytes of a small object and its ETag; None if it is missing."""
        stored: Got | None = self.call(address, self._get, missing=True)
        return stored

    def delete(self, address: str) -> None:
        """Remove an object if it is there."""
        self.call(address, self._delete, missing=True)

    def put(self, address: str, data: bytes, over: str | None = ANY) -> str | None:
        """Write a small object over the version of an ETag (None: over none, `ANY`: over any).

        Return the new ETag, or None where there is another version.
        """
        return self._over(over, address, lambda at, **condition: self._put(at, data, **condition))

    def _over(self, over: str | None, address: str, request: Callable[..., str]) -> str | None:
        """Make a request that writes over a version; return None where there is another."""
        bound = over != ANY
        conditional = functools.partial(request, **self._condition(over)) if bound else request
        etag: str | None = self.call(address, conditional, missing=bound and over is not None, unmet=bound)
        return etag

    def put_file(self, address: str, path: Path, checksum: str, over: str | None = ANY) -> str | None:
        """Write a file of the sha256 `checksum` (hex) as an object, as `put` does."""
        size = path.stat().st_size
        if size > min(self.PART, self.WHOLE):
            return self._put_large(address, path, size, checksum, over)
        data = path.read_bytes()
        check(address, path, hashlib.sha256(data), checksum)
        return self.put(address, data, over)

    def _put_large(self, address: str, path: Path, size: int, checksum: str, over: str | None) -> str | None:
        length = max(self.PART, -(-size // self.MOST_PARTS))
        upload = self.call(address, self._begin)
        whole, one, done = hashlib.sha256(), threading.Lock(), None
        parts: list[Any] = []
        try:
            with path.open("rb") as file:

                def send(_: int) -> None:
                    with one:  # in the order of the file, whichever thread comes first
                        number, data = len(parts), file.read(length)
                        whole.update(data)
                        parts.append(None)
                    parts[number] = self.call(address, lambda at: self._send(at, upload, number, data))

                parallel.each(send, range(-(-size // length)))
            check(address, path, whole, checksum)
            done = self._over(over, address, lambda at, **c: self._complete(at, upload, parts, **c))
        finally:
            if done is None:
                with contextlib.suppress(Exception):
                    self._abort(At(self.client(address), *parse(address)), upload)
        return done


def check(address: str, path: Path, digest: "hashlib._Hash", checksum: str) -> None:
    """Raise StoreError if a file is not what it was when it was made."""
    if digest.hexdigest() != checksum:
        raise StoreError(
            f"does not have the checksum that it had when it was made; make it again {BY_FORCE}",
            path=path,
            where=address,
        )
