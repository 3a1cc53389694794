"""Objects of Azure Blob Storage written, read and removed whole: checked, and on conditions.

The store compares what arrives with its MD5, of large files that of each block, and Azure's client
compares what it reads whole.
"""

import calendar
import email.utils
import hashlib
import secrets
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.common import parallel
from pipeline.common.errors import StoreError
from pipeline.common.stores import azure_account, azure_blob
from pipeline.common.stores.azure_blob import MISSING

PART = 2**25  # bytes of one request of a large file
# Codes of a condition that does not hold. Another 409 or 412, as of a lease, is an error.
_NOT_MET = ("ConditionNotMet", "TargetConditionNotMet", "BlobAlreadyExists")


def read(address: str) -> tuple[bytes, str] | None:
    """Return the bytes of a small object and its ETag; None if it is missing.

    Raises:
        StoreError, Restart: as `pipeline.common.stores.azure_blob.head`.
    """

    def request(blob: Any) -> tuple[bytes, str]:
        answer = blob.download_blob(validate_content=True)
        return answer.readall(), _etag(answer.properties)

    found: tuple[bytes, str] | None = azure_blob.call(address, request, MISSING)
    return found


def age(address: str) -> float | None:
    """Return for how many seconds an object has not changed, by the clock of the store."""

    def request(blob: Any) -> float:
        dates = []
        found = blob.get_blob_properties(
            raw_response_hook=lambda answer: dates.append(answer.http_response.headers.get("Date"))
        )
        said = email.utils.parsedate(dates[-1] or "")
        now = calendar.timegm(said) if said else time.time()
        return float(now - found.last_modified.timestamp())

    found: float | None = azure_blob.call(address, request, MISSING)
    return found


def put(address: str, data: bytes, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a small object; return its ETag, or None where the condition does not hold.

    The condition is that the object is missing (`absent`), or that it still is that of `etag`.

    Raises:
        StoreError, Restart: as `pipeline.common.stores.azure_blob.head`.
    """

    def request(blob: Any, **condition: Any) -> str:
        more = {"length": len(data), "validate_content": True, "overwrite": True}
        return _etag(blob.upload_blob(data, **more, **condition))

    return _if(address, absent, etag, request)


def _if(address: str, absent: bool, etag: str | None, request: Callable[..., str]) -> str | None:
    """Call `request` with a condition; return None where it does not hold."""

    def attempt(blob: Any) -> str:
        from azure.core import MatchConditions

        condition: dict[str, Any] = {}
        if absent:
            condition = {"match_condition": MatchConditions.IfMissing}
        elif etag is not None:
            condition = {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}
        return request(blob, **condition)

    missing = _NOT_MET if absent else () if etag is None else (*_NOT_MET, *MISSING)
    found: str | None = azure_blob.call(address, attempt, missing)
    return found


def put_file(address: str, path: Path, checksum: str, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a file of the sha256 `checksum` (hex) as an object, on the conditions of `put`.

    Raises:
        StoreError: the store refuses; also where the file has another checksum.
        Restart: it does not answer.
    """
    azure_account.client(address)
    length = max(PART, -(-path.stat().st_size // 40_000))  # a store takes 50,000 blocks
    sums = _sums(address, path, checksum, length)
    # A block of another upload, which was cut off, never gets among ours. The store removes what
    # was not committed: with the next upload of this object, or after a week.
    upload = secrets.token_hex(8)
    names = [f"{upload}{number:05}" for number in range(len(sums))]

    def part(number: int) -> bytes:
        with path.open("rb") as file:
            file.seek(number * length)
            data = file.read(length)
        if _md5(data) != sums[number]:
            raise _changed(address, path)
        return data

    def send(number: int) -> None:
        data = part(number)
        azure_blob.call(address, lambda blob: blob.stage_block(names[number], data, validate_content=True))

    def commit(blob: Any, **condition: Any) -> str:
        from azure.storage.blob import BlobBlock

        return _etag(blob.commit_block_list([BlobBlock(name) for name in names], **condition))

    if len(sums) < 2:
        return put(address, part(0) if sums else b"", absent=absent, etag=etag)
    parallel.each(send, range(len(sums)))
    return _if(address, absent, etag, commit)


def delete(address: str) -> None:
    """Remove an object if it is there."""
    azure_blob.call(address, lambda blob: blob.delete_blob(delete_snapshots="include"), MISSING)


def _sums(address: str, path: Path, checksum: str, length: int) -> list[bytes]:
    """Return the MD5 of each part of a file, where its sha256 is `checksum`."""
    whole, sums = hashlib.sha256(), []
    with path.open("rb") as file:
        while data := file.read(length):
            whole.update(data)
            sums.append(_md5(data))
    if whole.hexdigest() != checksum:
        raise _changed(address, path)
    return sums


def _md5(data: bytes) -> bytes:
    return hashlib.md5(data, usedforsecurity=False).digest()


def _changed(address: str, path: Path) -> StoreError:
    return StoreError(
        "does not have the checksum that it had when it was made; make it again with force=true",
        path=path,
        where=address,
    )


def _etag(answer: Any) -> str:
    found = answer["etag"] if isinstance(answer, dict) else answer.etag
    return str(found).strip('"')
