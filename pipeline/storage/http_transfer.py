"""HTTP transfers that survive broken connections: retries with back-off, and resuming.

A file grows as NAME.part; `.NAME.part.json` next to it identifies the version that the server sent,
so that a later attempt or run resumes only if the server still has that version (RFC 9110, section
13.1.5, If-Range).
"""

import contextlib
import functools
import json
import os
import shutil
import sys
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, TypeVar

import requests
import urllib3

from pipeline.console import redact, terminal
from pipeline.console.bars import Bar
from pipeline.console.formatting import pluralize
from pipeline.errors import ConfigError, InputError
from pipeline.storage import budget, redirects, strict_json
from pipeline.storage.budget import Budget
from pipeline.storage.stores.retries import Again

CHUNK = 2**20
PROGRESS = 2**20  # bytes; after this many, earlier failed attempts no longer count
PAUSE = 1.0  # seconds before the second attempt, doubled for each one after
LONGEST_PAUSE = 120.0

Answer = TypeVar("Answer")


class RetryPolicy(NamedTuple):
    """When an attempt, and when a transfer, is given up."""

    timeout: float  # seconds without a byte
    tries: int  # attempts in a row without progress


class NotFound(InputError):
    """An address that the server does not know."""


def read(url: str, policy: RetryPolicy) -> bytes:
    """Return the content of a small file.

    Raises:
        InputError: the file cannot be downloaded, or is larger than a document may be.
    """
    why = f"larger than {budget.DOCUMENT:,} bytes; check the address"

    def once() -> bytes:
        with _response(url, {}, policy) as response:
            return _decoded(url, Budget(lambda: InputError(why, path=url)).gathered(_chunks(response)), response)

    return _persist(once, url, policy, lambda: 0)


def _chunks(response: requests.Response) -> Iterator[bytes]:
    """Yield the body as it comes."""
    return iter(lambda: response.raw.read(CHUNK, decode_content=False), b"")


def _decoded(url: str, content: bytes, response: requests.Response) -> bytes:
    """Return a body as it was before the server packed it, though it was not asked to."""
    coding = response.headers.get("Content-Encoding", "identity").lower()
    if coding == "identity":
        return content
    try:
        if coding not in ("gzip", "x-gzip"):
            raise zlib.error("it was not asked for")
        unpacked = zlib.decompressobj(wbits=31).decompress(content, budget.DOCUMENT + 1)
    except zlib.error as error:
        raise InputError(f"sent as {coding} ({error}); check the address", path=url) from error
    Budget(lambda: InputError("unpacks to too many bytes", path=url)).take(len(unpacked))
    return unpacked


def fetch(url: str, part: Path, policy: RetryPolicy, *, digest: str | None) -> None:
    """Download the file at `url` to `part`, resuming an earlier download.

    The caller checks the content against a `digest`: with one it is safe to resume a part of the
    same digest even if the server does not identify versions, or is another one.

    Raises:
        InputError: the download failed, or the disk is full; the part is kept for another run.
    """
    once = functools.partial(_transfer, url, part, policy, digest)
    _persist(once, url, policy, lambda: part.stat().st_size if part.exists() else 0)


def note_of(part: Path) -> Path:
    """Return the path of the note that identifies the version of a part."""
    return part.with_name(f".{part.name}.json")


def discard(part: Path) -> None:
    """Remove a part and its note."""
    part.unlink(missing_ok=True)
    note_of(part).unlink(missing_ok=True)


def _persist(once: Callable[[], Answer], url: str, policy: RetryPolicy, progress: Callable[[], int]) -> Answer:
    """Return the answer of the first attempt that succeeds; progress resets the count."""
    reached, tries = progress(), 0
    while True:
        try:
            return once()
        except Again as error:
            failure = error
        before, reached = reached, progress()
        tries = 1 if reached >= before + PROGRESS else tries + 1
        if tries >= policy.tries:
            kept = f"; {reached:,} bytes are kept, rerun to resume" if reached else ""
            raise InputError(f"failed after {pluralize(tries, 'attempt')}: {failure}{kept}", path=url) from failure
        pause = min(max(PAUSE * 2 ** (tries - 1), failure.pause), LONGEST_PAUSE)
        terminal.say(redact.one_line(f"{url}: {failure}; trying again in {pause:.0f} s"), sys.stderr)
        time.sleep(pause)


class _Session(requests.Session):
    """A session of one address, whose redirects are checked."""

    def __init__(self, typed: str):
        super().__init__()
        self._typed = typed

    def rebuild_auth(self, prepared_request: requests.PreparedRequest, response: requests.Response) -> None:
        """Check a redirect before it is followed: this is called with each."""
        redirects.check(self._typed, response.url, prepared_request.url or "")
        super().rebuild_auth(prepared_request, response)  # type: ignore[no-untyped-call]


@contextlib.contextmanager
def _response(url: str, headers: dict[str, str], policy: RetryPolicy) -> Iterator[requests.Response]:
    """Stream the server's answer; its failures become `Again` or a user's error."""
    # Compressed files must arrive as they are, and some servers turn nameless clients away.
    headers = {"Accept-Encoding": "identity", "User-Agent": "bert-pipeline/0.1"} | headers
    try:
        with (
            _Session(url) as session,
            session.get(url, headers=headers, stream=True, timeout=policy.timeout) as response,
        ):
            _check_status(url, response)
            yield response
    except ValueError as error:  # also of an address that it redirects to
        raise ConfigError(f"not an address that can be fetched ({error})", path=url) from error
    except requests.exceptions.SSLError as error:
        raise InputError(f"no secure connection ({error})", path=url) from error
    except (requests.RequestException, urllib3.exceptions.HTTPError) as error:
        raise Again(f"{type(error).__name__}: {_root(error)}") from error


def _root(error: BaseException) -> BaseException:
    """Return the original error, whose message wrappers repeat at length."""
    while inner := error.__cause__ or error.__context__:
        error = inner
    return error


def _check_status(url: str, response: requests.Response) -> None:
    status = f"the server answers {response.status_code} {response.reason}"
    if response.status_code in (408, 425, 429) or response.status_code >= 500:
        after = response.headers.get("Retry-After", "")
        raise Again(status, pause=float(after) if after.isdigit() else 0.0)
    if response.status_code in (404, 410):
        raise NotFound(f"{status}; check the address", path=url)
    if response.status_code >= 400 and response.status_code != 416:
        raise InputError(status, path=url)


def _transfer(url: str, part: Path, policy: RetryPolicy, digest: str | None) -> None:
    """Request the missing bytes once, and append them."""
    note = strict_json.own(note_of(part))
    of_part = note.pop("digest", None)
    if digest and of_part and of_part != digest:  # of another file, as of an older dump
        discard(part)
    offset = part.stat().st_size if part.exists() else 0
    earlier = note if note.get("url") == redact.hide(url) else {}
    headers = {}
    version = earlier.get("etag") or earlier.get("modified")
    if offset and (version or digest):
        headers = {"Range": f"bytes={offset}-"} | ({"If-Range": version} if version else {})
    with _response(url, headers, policy) as response:
        span = response.headers.get("Content-Range", "")
        if response.status_code == 416 and span.endswith(f"/{offset}"):
            return  # it was complete
        now = _version(response, url)
        if response.status_code == 206:
            if not span.startswith(f"bytes {offset}-") or (version and now != earlier):
                discard(part)
                raise Again("the file has changed on the server; starting over")
        elif response.status_code == 200:
            offset = 0
        else:
            discard(part)
            raise Again("the server cannot resume where the last try ended; starting over")
        length = response.headers.get("Content-Length", "")
        missing = int(length) if length.isdigit() else None
        _check_space(part, missing, offset)
        if not offset:
            part.unlink(missing_ok=True)
        note_of(part).write_text(json.dumps(now | {"digest": digest}))
        _append(response, part, offset, missing)


def _version(response: requests.Response, url: str) -> dict[str, str]:
    """Return what identifies the version sent; weak ETags do not promise the same bytes."""
    etag = response.headers.get("ETag", "")
    return {
        "url": redact.hide(url),
        "etag": "" if etag.startswith("W/") else etag,
        "modified": response.headers.get("Last-Modified", ""),
    }


def _check_space(part: Path, missing: int | None, offset: int) -> None:
    """Check that the rest of the file fits on the disk.

    Raises:
        InputError: the disk has too little room.
    """
    reused = part.stat().st_size - offset if part.exists() else 0
    free = shutil.disk_usage(part.parent).free + reused
    if missing is not None and missing > free:
        raise InputError(
            f"the disk has {free:,} bytes free, {part.stem} needs {missing:,} more; make room, or set out",
            path=part.parent,
        )


def _append(response: requests.Response, part: Path, offset: int, missing: int | None) -> None:
    """Add the body to the part.

    Raises:
        Again: it ended early.
        InputError: it cannot be written.
    """
    total = None if missing is None else offset + missing
    try:
        with Bar(part.stem, total, "B", offset) as bar, part.open("ab") as file:
            # The connection's errors are urllib3's own: an OSError here is the disk's.
            for chunk in _chunks(response):
                file.write(chunk)
                bar.update(len(chunk))
    except OSError as error:
        raise InputError(
            f"cannot be written ({os.strerror(error.errno or 0)}); make room and rerun, or set out", path=part
        ) from error
    size = part.stat().st_size
    if total is not None and size < total:
        raise Again(f"the connection ended {total - size:,} bytes early")
