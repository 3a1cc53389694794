"""Objects of S3 written, read and removed whole: with checksums, and on conditions.

The store compares what arrives with the sha256 that goes with it.
Every request is repeated as those of `pipeline.common.stores.s3` are.
"""

import base64
import calendar
import contextlib
import email.utils
import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.common import parallel
from pipeline.common.stores import s3
from pipeline.common.stores.remote_file import parse

PART = 2**25  # bytes of one request of a large file, and of one range that is fetched
_NOT_MET = (409, 412)  # statuses of a condition that does not hold


def read(address: str) -> tuple[bytes, str] | None:
    """Return the bytes of a small object and its ETag; None if it is missing.

    Raises:
        StoreError, Restart: as `pipeline.common.stores.s3.head`.
    """
    bucket, key = parse(address)

    def request(client: Any) -> tuple[bytes, str]:
        answer = client.get_object(Bucket=bucket, Key=key)
        return answer["Body"].read(), answer["ETag"]

    found: tuple[bytes, str] | None = s3.call(address, request, missing=True)
    return found


def age(address: str) -> float | None:
    """Return for how many seconds an object has not changed, by the clock of the store."""
    bucket, key = parse(address)
    found = s3.call(address, lambda c: c.head_object(Bucket=bucket, Key=key), missing=True)
    if found is None:
        return None
    said = email.utils.parsedate(found["ResponseMetadata"]["HTTPHeaders"].get("date") or "")
    now = calendar.timegm(said) if said else time.time()
    return float(now - found["LastModified"].timestamp())


def put(address: str, data: bytes, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a small object; return its ETag, or None where the condition does not hold.

    The condition is that the object is missing (`absent`), or that it still is that of `etag`.

    Raises:
        StoreError, Restart: as `pipeline.common.stores.s3.head`.
    """
    bucket, key = parse(address)
    digest = _base64(hashlib.sha256(data).digest())

    def request(client: Any, **condition: str) -> str:
        answer = client.put_object(Bucket=bucket, Key=key, Body=data, ChecksumSHA256=digest, **condition)
        return str(answer["ETag"])

    return _if(address, absent, etag, request)


def _if(address: str, absent: bool, etag: str | None, request: Callable[..., str]) -> str | None:
    """Call `request` with a condition; return None where it does not hold."""
    condition = {"IfNoneMatch": "*"} if absent else {} if etag is None else {"IfMatch": etag}

    def attempt(client: Any) -> str | None:
        try:
            return request(client, **condition)
        except Exception as error:
            if condition and _status(error) in (*_NOT_MET, 404):
                return None
            raise

    found: str | None = s3.call(address, attempt)
    return found


def put_file(address: str, path: Path, checksum: str, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a file of the sha256 `checksum` (hex) as an object, on the conditions of `put`.

    Raises:
        StoreError: the store refuses; also where the file has another checksum.
        Restart: it does not answer.
    """
    size = path.stat().st_size
    if size > 2 * PART:
        return _put_parts(address, path, size, absent, etag)
    bucket, key = parse(address)
    digest = _base64(bytes.fromhex(checksum))

    def request(client: Any, **condition: str) -> str:
        with path.open("rb") as file:
            answer = client.put_object(Bucket=bucket, Key=key, Body=file, ChecksumSHA256=digest, **condition)
        return str(answer["ETag"])

    return _if(address, absent, etag, request)


def _put_parts(address: str, path: Path, size: int, absent: bool, etag: str | None) -> str | None:
    bucket, key = parse(address)
    begun = s3.call(
        address, lambda client: client.create_multipart_upload(Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256")
    )
    name = {"Bucket": bucket, "Key": key, "UploadId": begun["UploadId"]}
    length = max(PART, -(-size // 9000))  # a store takes 10,000 parts
    parts: dict[int, dict[str, Any]] = {}

    def send(start: int) -> None:
        with path.open("rb") as file:
            file.seek(start)
            data = file.read(length)
        digest, number = _base64(hashlib.sha256(data).digest()), start // length + 1
        answer = s3.call(
            address, lambda client: client.upload_part(**name, PartNumber=number, Body=data, ChecksumSHA256=digest)
        )
        parts[number] = {"PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": digest}

    def complete(client: Any, **condition: str) -> str:
        listed = {"Parts": [parts[number] for number in sorted(parts)]}
        done = client.complete_multipart_upload(**name, MultipartUpload=listed, **condition)
        return str(done["ETag"])

    done: str | None = None
    try:
        parallel.each(send, range(0, size, length))
        done = _if(address, absent, etag, complete)
    finally:
        # What is left of it costs the bucket's owner money until a rule of the bucket removes it.
        if done is None:
            with contextlib.suppress(Exception):
                s3.client(address).abort_multipart_upload(**name)
    return done


def delete(address: str) -> None:
    """Remove an object if it is there."""
    bucket, key = parse(address)
    s3.call(address, lambda client: client.delete_object(Bucket=bucket, Key=key), missing=True)


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _status(error: Exception) -> int:
    answer = getattr(error, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
