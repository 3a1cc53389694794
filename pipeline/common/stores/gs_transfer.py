"""Objects of Google Cloud Storage written, read and removed whole: checked, and on conditions.

The store compares what arrives with its CRC32C, and Google's client compares what it reads whole.
"""

import base64
import calendar
import email.utils
import hashlib
import time
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.common.errors import Restart, StoreError
from pipeline.common.stores import gs, patience
from pipeline.common.stores.gs import ONCE
from pipeline.common.stores.remote_file import parse

PART = 2**25  # bytes of one request of a large file
_BYTES = "application/octet-stream"
_NOT_MET = 412  # the status of a condition that does not hold


def read(address: str) -> tuple[bytes, str] | None:
    """Return the bytes of a small object and its generation; None if it is missing.

    Raises:
        StoreError, Restart: as `pipeline.common.stores.gs.head`.
    """
    bucket, key = parse(address)

    def request(client: Any) -> tuple[bytes, str]:
        blob = client.bucket(bucket).blob(key)
        data = blob.download_as_bytes(raw_download=True, checksum="crc32c", **ONCE)
        return data, str(blob.generation)

    found: tuple[bytes, str] | None = gs.call(address, request, missing=(404,))
    return found


def age(address: str) -> float | None:
    """Return for how many seconds an object has not changed, by the clock of the store."""
    bucket, key = parse(address)

    def request(client: Any) -> float:
        # The client's own methods do not return the header Date.
        path = client.bucket(bucket).blob(key).path
        answer = client._http.get(f"{client.api_endpoint}/storage/v1{path}", timeout=ONCE["timeout"])
        answer.raise_for_status()
        said = email.utils.parsedate(answer.headers.get("Date") or "")
        now = calendar.timegm(said) if said else time.time()
        return now - datetime.fromisoformat(answer.json()["timeCreated"]).timestamp()

    found: float | None = gs.call(address, request, missing=(404,))
    return found


def put(address: str, data: bytes, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a small object; return its generation, or None where the condition does not hold.

    The condition is that the object is missing (`absent`), or that it still is that of `etag`.

    Raises:
        StoreError, Restart: as `pipeline.common.stores.gs.head`.
    """
    bucket, key = parse(address)
    expected, missing = _condition(absent, etag)

    def request(client: Any) -> str:
        blob = client.bucket(bucket).blob(key)
        blob.upload_from_string(data, _BYTES, if_generation_match=expected, checksum="crc32c", **ONCE)
        return str(blob.generation)

    found: str | None = gs.call(address, request, missing=missing)
    return found


def _condition(absent: bool, etag: str | None) -> tuple[int | None, tuple[int, ...]]:
    """Return the generation that an object must have, and the statuses that say it has not."""
    if absent:
        return 0, (_NOT_MET,)
    return (None, ()) if etag is None else (int(etag), (_NOT_MET, 404))


def put_file(address: str, path: Path, checksum: str, *, absent: bool = False, etag: str | None = None) -> str | None:
    """Write a file of the sha256 `checksum` (hex) as an object, on the conditions of `put`.

    Raises:
        StoreError: the store refuses; also where the file has another checksum.
        Restart: it does not answer.
    """
    bucket, key = parse(address)
    crc32c = _crc32c(address, path, checksum)
    expected, missing = _condition(absent, etag)

    def request(client: Any) -> str:
        from google.api_core.exceptions import RetryError
        from google.api_core.retry import Retry

        # A part that fails is repeated by itself.
        notice = patience.Notice(address)
        retry = Retry(
            predicate=gs.passes,
            initial=patience.PAUSE,
            maximum=patience.LONGEST_PAUSE,
            timeout=patience.patience(),
            on_error=notice.failed,
        )
        blob = client.bucket(bucket).blob(key, chunk_size=PART)
        try:
            blob.upload_from_filename(
                str(path),
                _BYTES,
                checksum="crc32c",
                crc32c_checksum_value=crc32c,
                retry=retry,
                timeout=ONCE["timeout"],
                if_generation_match=expected,
            )
        except RetryError as error:
            raise Restart(f"{address}: the store did not answer ({error.cause})") from error
        return str(blob.generation)

    found: str | None = gs.call(address, request, missing=missing)
    return found


def delete(address: str) -> None:
    """Remove an object if it is there."""
    bucket, key = parse(address)
    gs.call(address, lambda client: client.bucket(bucket).blob(key).delete(**ONCE), missing=(404,))


def _crc32c(address: str, path: Path, checksum: str) -> str:
    """Return the CRC32C of a file, which the store compares, where its sha256 is `checksum`."""
    gs.client(address)
    from google_crc32c import Checksum

    crc32c, sha256 = Checksum(), hashlib.sha256()
    with path.open("rb") as file:
        while data := file.read(2**20):
            crc32c.update(data)
            sha256.update(data)
    if sha256.hexdigest() != checksum:
        raise StoreError(
            "does not have the checksum that it had when it was made; make it again with force=true",
            path=path,
            where=address,
        )
    return base64.b64encode(crc32c.digest()).decode()
