"""The Hugging Face hub: data sets, hf://datasets/OWNER/NAME@REVISION/PATH, and folders put there.

Files are listed and read with huggingface_hub's HfFileSystem; nothing is stored on disk. Its HTTP
client waits for a hub that does not answer, `BERT_STORE_TIMEOUT` seconds, as for any other store. Token
and endpoint are found as huggingface_hub finds them: HF_TOKEN, HF_ENDPOINT.
"""

import contextlib
import functools
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from pipeline.errors import ConfigError, InputError, Restart, StoreError, first_line
from pipeline.storage import redirects
from pipeline.storage.stores.remote_file import Info, RemoteFile
from pipeline.storage.stores.retries import Again, longest_wait, until_answered

SCHEME = "hf://"
TIMEOUT = 20.0  # seconds without a byte after which a request is repeated
COMMIT = re.compile(r"[0-9a-f]{40}")
_FORM = "write hf://datasets/OWNER/NAME@REVISION/PATH"


def pin_revision(address: str) -> str:
    """Return the address with the commit that its revision (default: main) now points to.

    Raises:
        ConfigError: the address is not of a data set.
        StoreError: the data set or revision is missing, or the token may not see it.
        Restart: the hub does not answer.
    """
    from huggingface_hub import HfApi, parse_hf_uri
    from huggingface_hub.errors import HfUriError, HFValidationError

    try:
        uri = parse_hf_uri(address)
    except (HfUriError, HFValidationError) as error:
        raise ConfigError(f"not an address of the hub; {_FORM}", path=address) from error
    if uri.type != "dataset":
        raise ConfigError(f"is not a data set; {_FORM}", path=address)
    if uri.revision and COMMIT.fullmatch(uri.revision):
        return address
    _prepare()
    with _refusals(address):
        api = HfApi(endpoint=endpoint())
        sha = api.dataset_info(uri.id, revision=uri.revision or "main", timeout=TIMEOUT).sha
    return f"{SCHEME}datasets/{uri.id}@{sha}/{uri.path_in_repo}".rstrip("/")


def head(address: str) -> Info | None:
    """Return what the hub says of a file; None if it is missing.

    Raises:
        StoreError: the hub refuses.
        Restart: it does not answer.
    """
    entry = _look(address)
    return None if entry is None or entry["type"] != "file" else _info(entry)


def is_folder(address: str) -> bool:
    """Return whether the address is of a folder."""
    entry = _look(address)
    return entry is not None and entry["type"] == "directory"


def below(address: str) -> list[Info]:
    """List all files in a folder and its folders.

    Raises:
        StoreError, Restart: as `head`.
    """
    with _refusals(address):
        entries = _system().find(_path(address), detail=True)
    return [_info(item) for item in entries.values()]


def opened(address: str, info: Info) -> RemoteFile:
    """Return a file of the hub as a file to read, in any order."""

    def read_range(start: int, stop: int) -> bytes:
        with _refusals(address), _system().open(_path(address), "rb", cache_type="none", size=info.size) as file:
            file.seek(start)
            data: bytes = file.read(stop - start)
        if not data:
            raise StoreError(f"the hub sent no bytes from {start} on; rerun the command", path=address)
        return data

    return RemoteFile(address, info, read_range)


def _path(address: str) -> str:
    return address.removeprefix(SCHEME)


def _info(entry: dict[str, Any]) -> Info:
    """Return an entry of a listing; the version is the hash of the content."""
    content = entry["lfs"].sha256 if entry.get("lfs") else entry.get("blob_id") or ""
    return Info(entry["name"].partition("/")[2], entry["size"] or 0, 0, content)


def _look(address: str) -> dict[str, Any] | None:
    with _refusals(address):
        try:
            return dict(_system().info(_path(address)))
        except FileNotFoundError as error:
            if hasattr(error.__cause__, "response"):
                raise  # the data set or the revision is missing
            return None


def _system() -> Any:
    """Return this thread's file system, which keeps listings but no bytes."""
    _prepare()
    from huggingface_hub import HfFileSystem

    # One worker: a listing starts no threads, which would delay an interrupt.
    return HfFileSystem(endpoint=endpoint(), max_workers=1)


@functools.cache
def _prepare() -> None:
    """Give huggingface_hub an HTTP client that waits for the hub, once per process."""
    import httpx2
    from huggingface_hub import get_session, set_client_factory

    hooks = get_session().event_hooks

    def check(answer: Any) -> None:
        url = str(answer.request.url)
        typed = answer.request.extensions.setdefault("typed", url)  # redirects keep it
        if answer.has_redirect_location:
            redirects.check(typed, url, str(answer.url.join(answer.headers["Location"])))

    hooks["response"] = [*hooks["response"], check]

    class PatientClient(httpx2.Client):
        def send(self, request: Any, **options: Any) -> Any:
            def attempt() -> Any:
                return super(PatientClient, self).send(request, **options)

            # huggingface_hub asks the hub for other things too, which it can do without. It sends
            # the content of files again by itself.
            again = isinstance(request.stream, httpx2.ByteStream)
            wait = again if _patient.is_set() else "/datasets/" in request.url.path
            return _send(request, attempt) if wait else attempt()

    set_client_factory(lambda: PatientClient(event_hooks=hooks, follow_redirects=True, timeout=TIMEOUT))


_patient = threading.Event()  # all requests of this process are repeated
_outage: list[float] = []  # since when the hub has not answered them; its client asks again what has waited already


@contextlib.contextmanager
def patient() -> Iterator[None]:
    """Wait for the hub in all requests that the body makes, in any thread."""
    _prepare()
    _patient.set()
    _outage.clear()
    try:
        yield
    finally:
        _patient.clear()


def endpoint() -> str | None:
    """Return the address of the hub; None: huggingface_hub's default."""
    return os.environ.get("HF_ENDPOINT")


def _send(request: Any, attempt: Callable[[], Any]) -> Any:
    """Send a request until the answer is neither an error that may pass nor incomplete.

    huggingface_hub's own retries end after seconds, or wait as long as the answer asks.
    """
    import httpx2

    timeouts, began = request.extensions.get("timeout") or {}, time.monotonic()

    def ask() -> Any:
        left = max(1.0, longest_wait() - (time.monotonic() - (_outage[0] if _outage else began)))
        kinds = ("connect", "read", "write", "pool")
        request.extensions["timeout"] = {kind: min(left, timeouts.get(kind) or TIMEOUT) for kind in kinds}
        try:
            answer = attempt()
        except httpx2.TransportError as error:
            raise Again(first_line(error), answered=False) from error
        failed = _failure(request, answer)
        if failed is None:
            return answer
        answer.close()
        raise Again(failed, pause=_asked_pause(answer.headers))

    host = request.url.netloc.decode()
    return until_answered(host, host, "and HF_ENDPOINT", ask, _outage if _patient.is_set() else None)


def _failure(request: Any, answer: Any) -> str | None:
    """Return why an answer may be better at another try; None if it is final."""
    status = answer.status_code
    if status in (408, 429) or status >= 500:
        return f"{status} {answer.reason_phrase}".strip()
    span = re.fullmatch(r"bytes=(\d+)-(\d+)", request.headers.get("Range", ""))
    if not span or status not in (200, 206):
        return None
    if status == 200:
        raise StoreError(
            "sent a whole file instead of a range of it; check HF_ENDPOINT and the proxy", path=answer.url.host
        )
    length = int(span[2]) - int(span[1]) + 1
    if len(answer.content) != length:
        return f"{len(answer.content):,} bytes instead of {length:,}"
    return None


def _asked_pause(headers: Any) -> float:
    """Return for how many seconds an answer asks to wait; 0 if it does not say."""
    if limit := re.search(r";r=0;t=(\d+)", headers.get("RateLimit", "")):  # "api";r=0;t=55
        return float(limit[1])
    with contextlib.suppress(ValueError):
        return max(0.0, float(headers.get("Retry-After", "")))
    return 0.0


@contextlib.contextmanager
def _refusals(address: str) -> Iterator[None]:
    """Convert the errors of huggingface_hub to StoreError and InputError of one line."""
    try:
        yield
    except FileNotFoundError as error:
        if error.__cause__ is not None and hasattr(error.__cause__, "response"):
            raise _refusal(address, error.__cause__) from error
        raise InputError("no such file or folder", path=address) from error
    except StoreError as error:  # of the HTTP client, which knows hosts alone
        raise StoreError(f"{error}", path=address) from error
    except OSError as error:  # also HfHubHTTPError, and HF_HUB_OFFLINE's
        raise _refusal(address, error) from error


def _refusal(address: str, error: BaseException) -> StoreError:
    """Return the error for an answer that will not change."""
    from huggingface_hub import get_token
    from huggingface_hub.errors import EntryNotFoundError, GatedRepoError, RevisionNotFoundError

    answer = getattr(error, "response", None)
    status = answer.status_code if answer is not None else None
    message = answer.headers.get("X-Error-Message", "") if answer is not None else ""
    token = get_token() is not None
    name = "/".join(_path(address).split("/")[:3]).partition("@")[0]
    if isinstance(error, GatedRepoError):
        access = "the token has no access" if token else "set HF_TOKEN"
        words = f"is gated; accept its terms at https://huggingface.co/{name} ({access})"
    elif isinstance(error, RevisionNotFoundError):
        words = "no such branch, tag or commit; check what follows @"
    elif isinstance(error, EntryNotFoundError):
        words = "no such file or folder"
    elif status == 401 and token:
        words = "the hub does not accept the token, or has no such data set; renew HF_TOKEN"
    elif status in (401, 404):
        words = "no such data set, or it is private; check the name, or set HF_TOKEN"
    elif status == 403:
        words = "the token may not read this; give it the right to, or accept the terms"
    else:
        words = first_line(error)
    note = f" ({status}{f' {message}' if message else ''})" if status else ""
    return StoreError(f"{words}{note}", path=address)


def push(name: str, folder: Path, revision: str | None = None, ignore: Iterable[str] = ()) -> str:
    """Put a folder into a repository, private if it is new; return the address of the commit.

    With a `revision` it becomes the content of that branch, made where it is missing. What is there
    already is not sent again, so that the same command continues an upload.

    Raises:
        InputError: the hub refuses, or cannot be reached.
        Restart: it does not answer.
    """
    from huggingface_hub import HfApi

    api, delete = HfApi(endpoint=endpoint()), None
    try:
        with patient():
            api.create_repo(name, private=True, exist_ok=True)
            if revision is not None:
                api.create_branch(name, branch=revision, exist_ok=True)
                delete = "*"  # what the branch has of the one that it was made from
            return str(
                api.upload_folder(
                    repo_id=name,
                    folder_path=folder,
                    revision=revision,
                    ignore_patterns=list(ignore),
                    delete_patterns=delete,
                )
            )
    except Restart as error:
        raise Restart(f"push={name}: {error}") from error
    except Exception as error:  # also those of its HTTP client, which changes between releases
        status = getattr(getattr(error, "response", None), "status_code", None) or 0
        if status == 429 or status >= 500:
            raise Restart(f"push={name}: the hub did not answer ({status})") from error
        reasons = {
            401: "the hub does not accept the token; log in with `hf auth login`, or renew HF_TOKEN",
            403: "the token may not write there; use one with the right to write",
        }
        other = f"{first_line(error)}; log in with `hf auth login` and rerun the same command"
        raise InputError(reasons.get(status, other), "push", name) from error
