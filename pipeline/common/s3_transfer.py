"""Objects of S3 written, fetched and removed whole: with checksums, and on conditions.

The store compares what arrives with the sha256 that goes with it; a fetched file is compared here.
Every request is repeated as those of `pipeline.common.s3` are.
"""

import base64
import calendar
import contextlib
import email.utils
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from pipeline.common import s3
from pipeline.common.atomic import atomic_path
from pipeline.common.errors import StoreError
from pipeline.common.manifest import sha256

PART = 2**25  # bytes of one request of a large file, and of one range that is fetched
THREADS = 8  # requests at a time
_NOT_MET = (409, 412)  # statuses of a condition that does not hold

Item = TypeVar("Item")


class _Damaged(Exception):
    """The bytes that arrived are not those of the checksum."""


def each(work: Callable[[Item], object], items: Iterable[Item]) -> None:
    """Call `work` with every item, several at a time; raise the first error."""
    listed = list(items)
    if len(listed) < 2:
        for item in listed:
            work(item)
        return
    pool = ThreadPoolExecutor(min(THREADS, len(listed)), thread_name_prefix="store")
    try:
        for _ in pool.map(work, listed):
            pass
    finally:
        pool.shutdown(wait=True, cancel_futures=True)


def read(address: str) -> tuple[bytes, str] | None:
    """Return the bytes of a small object and its ETag; None if it is missing.

    Raises:
        StoreError, Restart: as `pipeline.common.s3.head`.
    """
    bucket, key = s3.parse(address)

    def request(client: Any) -> tuple[bytes, str]:
        answer = client.get_object(Bucket=bucket, Key=key)
        return answer["Body"].read(), answer["ETag"]

    found: tuple[bytes, str] | None = s3.call(address, request, missing=True)
    return found


def age(address: str) -> float | None:
    """Return for how many seconds an object has not changed, by the clock of the store."""
    bucket, key = s3.parse(address)
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
        StoreError, Restart: as `pipeline.common.s3.head`.
    """
    bucket, key = s3.parse(address)
    condition: dict[str, str] = {}
    if absent:
        condition["IfNoneMatch"] = "*"
    elif etag is not None:
        condition["IfMatch"] = etag
    digest = _base64(hashlib.sha256(data).digest())

    def request(client: Any) -> str | None:
        try:
            answer = client.put_object(
                Bucket=bucket, Key=key, Body=data, ChecksumSHA256=digest, **condition
            )
        except Exception as error:
            if condition and _status(error) in (*_NOT_MET, 404):
                return None
            raise
        return str(answer["ETag"])

    found: str | None = s3.call(address, request)
    return found


def put_file(address: str, path: Path, checksum: str) -> str:
    """Write a file of the sha256 `checksum` (hex) as an object; return its ETag.

    Raises:
        StoreError: the store refuses; also where the file has another checksum.
        Restart: it does not answer.
    """
    size = path.stat().st_size
    if size > 2 * PART:
        return _put_parts(address, path, size)
    bucket, key = s3.parse(address)
    digest = _base64(bytes.fromhex(checksum))

    def request(client: Any) -> str:
        with path.open("rb") as file:
            answer = client.put_object(Bucket=bucket, Key=key, Body=file, ChecksumSHA256=digest)
        return str(answer["ETag"])

    found: str = s3.call(address, request)
    return found


def _put_parts(address: str, path: Path, size: int) -> str:
    bucket, key = s3.parse(address)
    begun = s3.call(
        address,
        lambda client: client.create_multipart_upload(
            Bucket=bucket, Key=key, ChecksumAlgorithm="SHA256"
        ),
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
            address,
            lambda client: client.upload_part(
                **name, PartNumber=number, Body=data, ChecksumSHA256=digest
            ),
        )
        parts[number] = {
            "PartNumber": number, "ETag": answer["ETag"], "ChecksumSHA256": digest,
        }  # fmt: skip

    try:
        each(send, range(0, size, length))
        listed = {"Parts": [parts[number] for number in sorted(parts)]}
        done = s3.call(
            address, lambda client: client.complete_multipart_upload(**name, MultipartUpload=listed)
        )
    except BaseException:
        # What is left of it costs the bucket's owner money until a rule of the bucket removes it.
        with contextlib.suppress(Exception):
            s3.client(address).abort_multipart_upload(**name)
        raise
    return str(done["ETag"])


def fetch(address: str, info: s3.Info, path: Path, checksum: str | None) -> str:
    """Fetch an object as a file, which appears whole; return its sha256.

    Raises:
        StoreError: the object changed meanwhile, or does not have the `checksum` (hex).
        Restart: the store does not answer.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    for _ in range(2):  # bytes may be damaged on the way, where nothing else looks at them
        with contextlib.suppress(_Damaged), atomic_path(path) as temporary:
            _fetch_ranges(address, info, temporary)
            found = sha256(temporary)
            if checksum not in (None, found):
                raise _Damaged
            return found
    raise StoreError(
        f"{address}: does not have the checksum that its manifest says; make it again with "
        "force=true",
        path=address,
    )


def _fetch_ranges(address: str, info: s3.Info, path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(info.size)
        handle = file.fileno()

        def get(start: int) -> None:
            with s3.S3File(address, info) as source:
                source.seek(start)
                end = min(start + PART, info.size)
                while start < end:
                    data = source.read(min(s3.LARGEST, end - start))
                    assert data
                    start += os.pwrite(handle, data, start)

        each(get, range(0, info.size, PART))


def delete(addresses: Iterable[str]) -> None:
    """Remove objects; those that are not there are no error."""

    def remove(address: str) -> None:
        bucket, key = s3.parse(address)
        s3.call(address, lambda client: client.delete_object(Bucket=bucket, Key=key), missing=True)

    each(remove, addresses)


def _base64(digest: bytes) -> str:
    return base64.b64encode(digest).decode()


def _status(error: Exception) -> int:
    answer = getattr(error, "response", None) or {}
    return int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
