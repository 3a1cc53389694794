"""Objects of S3 and of stores that speak its protocol, read with boto3.

Keys, profile, region, endpoint and certificates are found as Amazon's own tools find them, in the
environment and in ~/.aws. A read is bound to the ETag that was seen first: bytes of two versions of
an object never mix. A store that does not answer is waited for, `STORE_TIMEOUT` seconds.
"""

import functools
import io
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pipeline.common.errors import ConfigError, StoreError
from pipeline.common.stores import patience
from pipeline.common.stores.remote_file import (
    LARGEST,
    SMALLEST,
    Info,
    RemoteFile,
    key_prefix,
    listed_prefix,
    objects_of,
    parse,
)

Result = TypeVar("Result")

_REASONS = {
    "InvalidAccessKeyId": "the store does not know this access key; check AWS_ACCESS_KEY_ID",
    "SignatureDoesNotMatch": "the secret key is wrong; check AWS_SECRET_ACCESS_KEY",
    "ExpiredToken": "the session token has expired; get a new one",
    "NoSuchBucket": "bucket not found; check the name and the endpoint",
    "AuthorizationHeaderMalformed": "wrong region; set AWS_REGION",
    "PermanentRedirect": "the bucket is in another region; set AWS_REGION",
}
_TRANSIENT = {
    "SlowDown",
    "RequestTimeout",
    "Throttling",
    "ThrottlingException",
    "InternalError",
    "BadDigest",
    "XAmzContentChecksumMismatch",  # damaged on the way
}


def head(address: str) -> Info | None:
    """Return what the store says of an object; None if it is missing.

    Raises:
        StoreError: the store refuses.
        Restart: it does not answer.
    """
    bucket, key = parse(address)
    if not key:
        return None
    found = call(address, lambda s3: s3.head_object(Bucket=bucket, Key=key), missing=True)
    if found is None:
        return None
    return Info(key, found["ContentLength"], _nanoseconds(found["LastModified"]), found["ETag"])


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
    more: dict[str, str] = {}
    while True:
        page = call(
            address,
            lambda s3: s3.list_objects_v2(
                Bucket=bucket,
                Prefix=prefix,
                MaxKeys=size,
                **more,  # noqa: B023
            ),
        )
        yield [
            Info(item["Key"], item["Size"], _nanoseconds(item["LastModified"]), item["ETag"])
            for item in page.get("Contents", ())
        ]
        if not page.get("IsTruncated"):
            return
        more = {"ContinuationToken": page["NextContinuationToken"]}


class S3File(RemoteFile):
    """An object as a file to read, in any order, bound to one version of it."""

    def __init__(self, address: str, info: Info):
        super().__init__(address, info.size)
        self.info = info
        self._bucket, self._key = parse(address)
        self._body: Any = None  # a response that is being read
        self._body_end = 0
        self._asked = SMALLEST

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move to a position; the next read makes a new request if it is elsewhere."""
        before = self._at
        if super().seek(offset, whence) != before:
            self._drop()
            self._asked = SMALLEST
        return self._at

    def _next(self, wanted: int) -> bytes:
        data: bytes = call(self.address, lambda s3: self._read(s3, wanted), failed=self._drop)
        if self._at + len(data) == self._body_end:
            self._drop()
        return data

    def close(self) -> None:
        """Give the connection back."""
        self._drop()
        super().close()

    def _read(self, s3: Any, wanted: int) -> bytes:
        if self._body is None:
            self._body_end = min(self._at + max(self._asked, wanted), self.size)
            self._asked = min(2 * self._asked, LARGEST)
            answer = s3.get_object(
                Bucket=self._bucket,
                Key=self._key,
                IfMatch=self.info.etag,
                Range=f"bytes={self._at}-{self._body_end - 1}",
            )
            self._body = answer["Body"]
        wanted = min(wanted, self._body_end - self._at)
        parts, left, pace = [], wanted, patience.Pace()
        while left:
            part: bytes = self._body.read(min(left, 2**16))
            if not part:
                raise ConnectionError("the connection was closed early")
            parts.append(part)
            left -= len(part)
            pace.add(len(part))
        return b"".join(parts)

    def _drop(self) -> None:
        if self._body is not None:
            self._body.close()
            self._body = None


def opened(address: str, info: Info) -> RemoteFile:
    """Return an object as a file to read."""
    return S3File(address, info)


@functools.lru_cache(maxsize=1)
def _client(process: int) -> Any:
    """Make the client, once per process."""
    try:
        import boto3
        from botocore.config import Config
    except ImportError as error:
        raise ConfigError(f"s3:// addresses need boto3 ({error}): pip install -e '.[s3]'") from error
    # Retries are ours: botocore's end after seconds, and do not cover the body of an answer.
    config = Config(
        retries={"mode": "standard", "max_attempts": 1}, connect_timeout=10, read_timeout=15, max_pool_connections=32
    )
    return boto3.client("s3", config=config)


def client(address: str) -> Any:
    """Return this process's client.

    Raises:
        ConfigError: boto3 is not installed.
        StoreError: a profile is missing, or ~/.aws is not valid.
    """
    try:
        with _making:  # of boto3's default session there is one a process
            return _client(os.getpid())
    except ConfigError:
        raise
    except Exception as error:
        _transient(error)
        raise StoreError(f"{error}; check ~/.aws and the AWS_ variables", path=address) from error


_making = threading.Lock()


def call(
    address: str, request: Callable[[Any], Result], *, missing: bool = False, failed: Callable[[], None] = lambda: None
) -> Any:
    """Make a request until it succeeds; None if `missing` is allowed and the object is missing.

    `failed` is called after each failure.
    """
    s3 = client(address)
    from botocore.exceptions import ClientError, ParamValidationError

    def attempt() -> Any:
        try:
            return request(s3)
        except ParamValidationError as error:
            raise StoreError("no bucket has such a name; correct it, without wildcards", path=address) from error
        except ClientError as error:
            status = error.response["ResponseMetadata"].get("HTTPStatusCode", 0)
            code = error.response["Error"].get("Code", "")
            if status == 404 and missing and code != "NoSuchBucket":
                failed()
                return None
            if status < 500 and status != 429 and code not in _TRANSIENT:
                raise _refusal(s3, address, status, code) from error
            raise patience.Again(f"{status} {code}".strip(), answered=True) from error
        except Exception as error:
            if not _transient(error):
                raise
            reason = " ".join(str(error).split()) or type(error).__name__
            raise patience.Again(reason, answered=False) from error

    advice = "AWS_ENDPOINT_URL and AWS_REGION"
    return patience.until_answered(address, s3.meta.endpoint_url, advice, attempt, failed)


def _transient(error: Exception) -> bool:
    """Return whether a failure may pass: connections, time-outs, answers that were cut off."""
    from botocore.exceptions import ConnectionError as BotoConnectionError
    from botocore.exceptions import (
        CredentialRetrievalError,
        HTTPClientError,
        IncompleteReadError,
        NoCredentialsError,
        PartialCredentialsError,
        ProfileNotFound,
        ResponseStreamingError,
    )
    from urllib3.exceptions import HTTPError

    if isinstance(error, NoCredentialsError | PartialCredentialsError | CredentialRetrievalError | ProfileNotFound):
        raise StoreError(
            f"no usable keys for the store ({error}); set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    return isinstance(
        error,
        BotoConnectionError
        | HTTPClientError
        | IncompleteReadError
        | ResponseStreamingError
        | HTTPError
        | ConnectionError
        | TimeoutError,
    )


def _refusal(s3: Any, address: str, status: int, code: str) -> StoreError:
    """Return the error for an answer that will not change."""
    if status in (404, 412, 416) and code not in _REASONS:
        return StoreError("was changed or deleted during the run; rerun the command", path=address)
    if code.isdigit() or not code:  # a HEAD has no body to say why
        code = _reason(s3, address) or code
    words = _REASONS.get(code, "access denied; check the keys and their rights")
    return StoreError(f"{words} ({status} {code})", path=address)


def _reason(s3: Any, address: str) -> str:
    """Return the store's word for why it refuses, from a request whose answer has a body."""
    from botocore.exceptions import ClientError

    try:
        s3.list_objects_v2(Bucket=parse(address)[0], MaxKeys=1)
    except ClientError as error:
        return str(error.response["Error"].get("Code", ""))
    except Exception:
        return ""
    return ""


def _nanoseconds(when: Any) -> int:
    """Return a time as nanoseconds since 1970."""
    return int(when.timestamp() * 1000) * 1_000_000
