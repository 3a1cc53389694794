"""Objects of Google Cloud Storage, read with google-cloud-storage.

Credentials are found as Google's own tools find them: GOOGLE_APPLICATION_CREDENTIALS, gcloud's
login, or the identity of a pod or a machine. The version of an object, its ETag here, is its
generation: bytes of two of them never mix. Every request is made once by Google's client, and
repeated here as those of S3 are.
"""

import functools
import io
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pipeline.common.errors import ConfigError, Restart, StoreError, first_line
from pipeline.common.stores import patience
from pipeline.common.stores.remote_file import Info, RangeFile, RemoteFile, key_prefix, listed_prefix, objects_of, parse

ONCE: dict[str, Any] = {"retry": None, "timeout": (10, 20)}  # seconds to connect; without a byte
_FIELDS = "items(name,size,timeCreated,generation),nextPageToken"

Result = TypeVar("Result")


def head(address: str) -> Info | None:
    """Return what the store says of an object; None if it is missing.

    Raises:
        StoreError: the store refuses.
        Restart: it does not answer.
    """
    bucket, key = parse(address)
    if not key:
        return None
    blob: Any = call(address, lambda client: client.bucket(bucket).get_blob(key, **ONCE))
    return None if blob is None else _info(blob)


def below(address: str) -> list[Info]:
    """List all objects below a folder, or whose keys begin as a prefix ending in `*` does.

    Raises:
        StoreError, Restart: as `head`.
    """
    return objects_of(_pages(address, listed_prefix(parse(address)[1]), 1000))


def is_folder(address: str) -> bool:
    """Return whether there is an object below the address."""
    return any(_pages(address, key_prefix(parse(address)[1]), 1))


def _pages(address: str, prefix: str, size: int) -> Iterator[list[Info]]:
    """Yield the objects whose keys begin with a prefix, one list for each request."""
    bucket, _ = parse(address)
    token: str | None = None
    while True:

        def request(client: Any) -> tuple[list[Info], str | None]:
            listed = client.list_blobs(
                bucket,
                prefix=prefix,
                fields=_FIELDS,
                page_size=size,
                page_token=token,  # noqa: B023
                **ONCE,
            )
            page = next(listed.pages, ())
            return [_info(blob) for blob in page], listed.next_page_token

        infos, token = call(address, request)
        yield infos
        if not token:
            return


class GsFile(RangeFile):
    """An object as a file to read, in any order, bound to one generation of it."""

    def _range(self, start: int, stop: int) -> bytes:
        bucket, key = parse(self.address)

        def request(client: Any) -> bytes:
            blob = client.bucket(bucket).blob(key, generation=int(self.info.etag))
            body = _Body()
            # The store has checksums of whole objects alone.
            blob.download_to_file(body, start=start, end=stop - 1, checksum=None, raw_download=True, **ONCE)
            if body.tell() != stop - start:
                raise patience.Again("the answer was cut off", answered=True)
            return body.getvalue()

        data: bytes = call(self.address, request)
        return data


class _Body(io.BytesIO):
    """The bytes of an answer, which must not come too slowly."""

    def __init__(self) -> None:
        super().__init__()
        self._pace = patience.Pace()

    def write(self, data: Any) -> int:
        """Append bytes."""
        self._pace.add(len(data))
        return super().write(data)


def opened(address: str, info: Info) -> RemoteFile:
    """Return an object as a file to read."""
    return GsFile(address, info)


_making = threading.Lock()


@functools.lru_cache(maxsize=1)
def _client(process: int) -> Any:
    """Make the client, once per process."""
    try:
        from google.cloud.storage import Client
    except ImportError as error:
        raise ConfigError(f"gs:// addresses need google-cloud-storage ({error}): pip install -e '.[gcs]'") from error
    # A thread of the client would ask for the bucket itself, for traces; many users may not.
    os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
    return Client(project=None)  # only who makes or lists buckets needs one


def client(address: str) -> Any:
    """Return this process's client.

    Raises:
        ConfigError: google-cloud-storage is not installed.
        StoreError: there are no credentials.
    """
    try:
        with _making:
            return _client(os.getpid())
    except ConfigError:
        raise
    except Exception as error:
        raise _refusal(None, address, error, None) from error


def call(address: str, request: Callable[[Any], Result], missing: tuple[int, ...] = ()) -> Result | Any:
    """Make a request until it succeeds; None if its status is in `missing`.

    Raises:
        ConfigError: google-cloud-storage is not installed.
        StoreError: the store refuses.
        Restart: it does not answer.
    """
    google = client(address)

    def attempt() -> Result | None:
        try:
            return request(google)
        except (patience.Again, StoreError, Restart):
            raise
        except Exception as error:
            status = _status(error)
            if status in missing:
                return None
            if passes(error) or _damaged(error):
                raise patience.Again(first_line(error), answered=status is not None) from error
            raise _refusal(google, address, error, status) from error

    advice = "and STORAGE_EMULATOR_HOST if it is set"
    return patience.until_answered(address, google.api_endpoint, advice, attempt)


def passes(error: BaseException) -> bool:
    """Return whether the same request may succeed: after time-outs, cut answers, an overload."""
    import requests
    from google.auth.exceptions import TransportError
    from urllib3.exceptions import HTTPError

    status = _status(error)
    if status is not None:
        return status >= 500 or status in (408, 429)
    return getattr(error, "retryable", False) or isinstance(
        error,
        requests.ConnectionError
        | requests.Timeout
        | requests.exceptions.ChunkedEncodingError
        | requests.exceptions.ContentDecodingError
        | TransportError
        | HTTPError
        | ConnectionError
        | TimeoutError,
    )


def _damaged(error: BaseException) -> bool:
    """Return whether bytes arrived, here or there, that do not have their checksum."""
    from google.cloud.storage.exceptions import DataCorruption

    refused = _status(error) == 400 and any(word in str(error) for word in ("CRC32C", "MD5"))
    return refused or isinstance(error, DataCorruption)


def _status(error: BaseException) -> int | None:
    """Return the HTTP status of an error; None if there was no answer."""
    answer = getattr(error, "response", None)
    code = getattr(error, "code", None) or getattr(answer, "status_code", None)
    return None if code is None else int(code)


def _refusal(client: Any, address: str, error: Exception, status: int | None) -> Exception:
    """Return the error for an answer that will not change."""
    from google.auth.exceptions import GoogleAuthError

    if isinstance(error, GoogleAuthError):
        words = (
            f"no usable credentials ({first_line(error)}); set GOOGLE_APPLICATION_CREDENTIALS, or "
            "run gcloud auth application-default login"
        )
    elif status in (401, 403):
        words = "access denied; check the credentials and their rights"
    elif status == 404 and not _has_bucket(client, parse(address)[0]):
        words = "bucket not found; check the name"
    elif status in (404, 412, 416):
        words = "was changed or deleted during the run; rerun the command"
    elif status is None and not isinstance(error, ValueError):  # a name that no bucket has
        return error
    else:
        words = first_line(error)
    return StoreError(f"{words}{f' ({status})' if status else ''}", path=address)


def _has_bucket(client: Any, bucket: str) -> bool:
    """Return whether there is a bucket; true if that is unknown."""
    try:  # who may list objects may not look at the bucket itself
        list(client.list_blobs(bucket, max_results=1, **ONCE))
    except Exception as error:
        return _status(error) != 404
    return True


def _info(blob: Any) -> Info:
    # When this generation was written: `updated` also changes with its storage class.
    written = int(blob.time_created.timestamp() * 1000) * 1_000_000
    return Info(blob.name, blob.size, written, str(blob.generation))
