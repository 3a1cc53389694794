"""Objects of Google Cloud Storage, with google-cloud-storage.

Credentials are found as Google's own tools find them: GOOGLE_APPLICATION_CREDENTIALS, gcloud's
login, or the identity of a pod or a machine. The version of an object, its ETag here, is its
generation. The store compares what arrives with its CRC32C, and Google's client what it reads whole.
"""

import base64
import hashlib
import os
from datetime import datetime
from pathlib import Path
from typing import Any

from pipeline.errors import Restart
from pipeline.storage.stores import retries
from pipeline.storage.stores.client import At, Client, Failure, Got, Page, Seen, Span, check
from pipeline.storage.stores.remote_file import Info

_ONCE: dict[str, Any] = {"retry": None, "timeout": (10, 20)}  # seconds to connect; without a byte
_BYTES = "application/octet-stream"


class Gs(Client):
    """Objects of `gs://`."""

    WHOLE = 2**23  # of what is larger, the library makes parts, too
    EXTRA, ENDPOINT, ADVICE = "gcs", "api_endpoint", "and STORAGE_EMULATOR_HOST if it is set"
    CREDENTIALS = "set GOOGLE_APPLICATION_CREDENTIALS, or run gcloud auth application-default login"

    def _connect(self, account: str) -> Any:
        from google.cloud.storage import Client as Library

        # A thread of the client would ask for the bucket itself, for traces; many users may not.
        os.environ.setdefault("DISABLE_GCS_PYTHON_CLIENT_OTEL_BUCKET_METADATA", "true")
        return Library(project=None)  # only who makes or lists buckets needs one

    def _failure(self, error: Exception) -> Failure:
        import requests
        from google.auth import exceptions as auth
        from google.cloud.storage.exceptions import DataCorruption
        from urllib3.exceptions import HTTPError

        answer = getattr(error, "response", None)
        if code := getattr(error, "code", None) or getattr(answer, "status_code", None):
            status = int(code)
            damaged = status == 400 and any(word in str(error) for word in ("CRC32C", "MD5"))
            damaged = damaged or isinstance(error, DataCorruption)
            return Failure(status, missing=status == 404, unmet=status == 412, passes=damaged)
        cut = requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError | HTTPError
        away = requests.ConnectionError | requests.Timeout | auth.TransportError | ConnectionError | TimeoutError
        if getattr(error, "retryable", False) or isinstance(error, cut | away):
            return Failure(passes=True)
        return Failure(words=self._unusable(error) if isinstance(error, auth.GoogleAuthError) else "")

    def _reason(self, at: At, failure: Failure) -> str:
        if failure.status == 404:
            try:  # who may list objects may not look at the bucket itself
                list(at.client.list_blobs(at.bucket, max_results=1, **_ONCE))
            except Exception as error:
                return "NoSuchBucket" if self._failure(error).status == 404 else ""
        return ""

    def _condition(self, etag: str | None) -> dict[str, Any]:
        return {"if_generation_match": 0 if etag is None else int(etag)}

    def _look(self, at: At) -> Seen:
        # The client's own methods do not return the header Date.
        url = f"{at.client.api_endpoint}/storage/v1{_blob(at).path}?projection=noAcl"
        answer = at.client._http.get(url, timeout=_ONCE["timeout"])
        answer.raise_for_status()
        metadata = answer.json()
        written = datetime.fromisoformat(metadata["timeCreated"])
        return Info.at(at.key, int(metadata["size"]), written, str(metadata["generation"])), answer.headers.get("Date")

    def _page(self, at: At, size: int, token: str | None) -> Page:
        fields = "items(name,size,timeCreated,generation),nextPageToken"
        listed = at.client.list_blobs(
            at.bucket, prefix=at.key, fields=fields, page_size=size, page_token=token, **_ONCE
        )
        # When this generation was written: `updated` also changes with its storage class.
        infos = [Info.at(b.name, b.size, b.time_created, str(b.generation)) for b in next(listed.pages, ())]
        return infos, listed.next_page_token

    def _get(self, at: At, etag: str | None = None, span: Span = None) -> Got:
        blob = _blob(at, generation=None if etag is None else int(etag))
        body, (start, stop) = retries.Body(), span or (None, None)
        # The store has checksums of whole objects alone.
        blob.download_to_file(
            body, start=start, end=stop and stop - 1, checksum=None if span else "crc32c", raw_download=True, **_ONCE
        )
        return body.getvalue(), str(blob.generation)

    def _put(self, at: At, data: bytes, **condition: Any) -> str:
        blob = _blob(at)
        blob.upload_from_string(data, _BYTES, checksum="crc32c", **_ONCE, **condition)
        return str(blob.generation)

    def _delete(self, at: At) -> None:
        _blob(at).delete(**_ONCE)

    def _put_large(self, address: str, path: Path, size: int, checksum: str, over: str | None) -> str | None:
        """Send a file in the parts of Google's own protocol: its CRC32C goes with the first."""
        self.client(address)
        from google.api_core.exceptions import RetryError
        from google.api_core.retry import Retry
        from google_crc32c import Checksum

        crc32c, sha256 = Checksum(), hashlib.sha256()
        with path.open("rb") as file:
            while data := file.read(2**20):
                crc32c.update(data)
                sha256.update(data)
        check(address, path, sha256, checksum)

        def request(at: At, **condition: Any) -> str:
            def passes(error: Exception) -> bool:
                failure = self._failure(error)  # after damage, all of it is sent again
                return failure.temporary and not (failure.status and failure.passes)

            retry = Retry(  # a part that fails is repeated by itself
                predicate=passes,
                initial=retries.PAUSE,
                maximum=retries.LONGEST_PAUSE,
                timeout=retries.longest_wait(),
                on_error=retries.Notice(address).failed,
            )
            blob = _blob(at, chunk_size=self.PART)
            crc = base64.b64encode(crc32c.digest()).decode()
            sums = {"checksum": "crc32c", "crc32c_checksum_value": crc}
            try:
                blob.upload_from_filename(str(path), _BYTES, **sums, retry=retry, timeout=_ONCE["timeout"], **condition)
            except RetryError as error:
                raise Restart(f"{address}: the store did not answer ({error.cause})") from error
            return str(blob.generation)

        return self._over(over, address, request)


def _blob(at: At, **more: Any) -> Any:
    return at.client.bucket(at.bucket).blob(at.key, **more)
