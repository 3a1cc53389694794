"""Objects of Azure Blob Storage, read with azure-storage-blob.

A read is bound to the ETag that was seen first: bytes of two versions of an object never mix. Every
request is made once by Azure's client, and repeated here as those of the other stores are.
"""

from collections.abc import Callable, Iterator
from typing import Any, TypeVar

from pipeline.common.errors import Restart, StoreError, first_line
from pipeline.common.stores import patience
from pipeline.common.stores.azure_account import CONNECTION, client, place, unusable
from pipeline.common.stores.remote_file import Info, RangeFile, RemoteFile, key_prefix, listed_prefix, objects_of

MISSING = ("BlobNotFound", "ResourceNotFound")  # error codes of an object that is not there
_REASONS = {
    "ContainerNotFound": "container not found; check the name and the account",
    "ContainerBeingDeleted": "the container is being deleted",
    "InvalidResourceName": "no container has such a name; check it",
    "AuthenticationFailed": "the key is wrong; check AZURE_STORAGE_KEY, and this machine's clock",
    "AuthorizationPermissionMismatch": ("access denied; the role Storage Blob Data Contributor has the rights"),
    "BlobArchived": "is in the archive tier; rehydrate it first",
}

Result = TypeVar("Result")


def head(address: str) -> Info | None:
    """Return what the store says of an object; None if it is missing.

    Raises:
        StoreError: the store refuses.
        Restart: it does not answer.
    """
    if not place(address)[2]:
        return None
    found = call(address, lambda blob: blob.get_blob_properties(), MISSING)
    return None if found is None or _is_directory(found) else _info(found)


def below(address: str) -> list[Info]:
    """List all objects below a folder, or whose keys begin as a prefix ending in `*` does.

    Raises:
        StoreError, Restart: as `head`.
    """
    return objects_of(_pages(address, listed_prefix(place(address)[2]), 5000))


def is_folder(address: str) -> bool:
    """Return whether there is an object below the address."""
    return any(_pages(address, key_prefix(place(address)[2]), 10))


def _pages(address: str, prefix: str, size: int) -> Iterator[list[Info]]:
    """Yield the objects whose keys begin with a prefix, one list for each request."""
    token: str | None = None
    while True:

        def request(container: Any) -> tuple[list[Info], str | None]:
            pages = container.list_blobs(
                name_starts_with=prefix or None, include=["metadata"], results_per_page=size
            ).by_page(token)  # noqa: B023
            page = [_info(blob) for blob in next(pages, ()) if not _is_directory(blob)]
            return page, pages.continuation_token

        infos, token = call_container(address, request)
        yield infos
        if not token:
            return


class AzureFile(RangeFile):
    """An object as a file to read, in any order, bound to one version of it."""

    def _range(self, start: int, stop: int) -> bytes:
        from azure.core import MatchConditions

        def request(blob: Any) -> bytes:
            # Not decompressed: what was put with a Content-Encoding is read as it is stored.
            answer = blob.download_blob(
                start,
                stop - start,
                etag=f'"{self.info.etag}"',
                decompress=False,
                match_condition=MatchConditions.IfNotModified,
            )
            data: bytes = answer.readall()
            if len(data) != stop - start:
                raise patience.Again("the answer was cut off", answered=True)
            return data

        found: bytes = call(self.address, request)
        return found


def opened(address: str, info: Info) -> RemoteFile:
    """Return an object as a file to read."""
    return AzureFile(address, info)


def call(address: str, request: Callable[[Any], Result], missing: tuple[str, ...] = ()) -> Any:
    """Ask for an object until it succeeds; None if the error's code is in `missing`.

    Raises:
        ConfigError: azure-storage-blob is not installed.
        StoreError: the store refuses.
        Restart: it does not answer.
    """
    _, container, key = place(address)
    service = client(address)
    return _call(address, service, lambda: request(service.get_blob_client(container, key)), missing)


def call_container(address: str, request: Callable[[Any], Result]) -> Result:
    """Ask for a container until it succeeds.

    Raises:
        ConfigError, StoreError, Restart: as `call`.
    """
    container, service = place(address)[1], client(address)
    found: Any = _call(address, service, lambda: request(service.get_container_client(container)), ())
    return found  # type: ignore[no-any-return]


def _call(address: str, service: Any, request: Callable[[], Result], missing: tuple[str, ...]) -> Result | None:
    def attempt() -> Result | None:
        try:
            return request()
        except (patience.Again, StoreError, Restart):
            raise
        except Exception as error:
            if _code(error) in missing:
                return None
            if _passes(error):
                raise patience.Again(first_line(error), answered=_status(error) > 0) from error
            raise _refusal(address, error) from error

    advice = f"the account's name, and {CONNECTION} if it is set"
    return patience.until_answered(address, service.primary_hostname, advice, attempt)


def _passes(error: BaseException) -> bool:
    """Return whether the same request may succeed: after time-outs, damage, an overload."""
    import requests
    from azure.core import exceptions as azure

    if status := _status(error):
        return status >= 500 or status in (408, 429) or _code(error) == "Md5Mismatch"
    if isinstance(error, azure.ClientAuthenticationError):
        return False
    return "MD5 mismatch" in str(error) or isinstance(
        error,
        azure.ServiceRequestError
        | azure.ServiceResponseError
        | azure.HttpResponseError
        | requests.RequestException
        | ConnectionError
        | TimeoutError,
    )


def _status(error: BaseException) -> int:
    """Return the HTTP status of an error; 0 if there was no answer."""
    return int(getattr(error, "status_code", None) or 0)


def _code(error: BaseException) -> str:
    """Return the store's word for an error; empty if it is not the store's."""
    code = getattr(error, "error_code", None) or ""
    return str(getattr(code, "value", code))


def _refusal(address: str, error: Exception) -> Exception:
    """Return the error for an answer that will not change."""
    from azure.core import exceptions as azure

    status, code = _status(error), _code(error)
    if not code and isinstance(error, azure.ClientAuthenticationError) and not hasattr(error, "error_code"):
        return unusable(address, error)
    if isinstance(error, OSError):  # the file of a token
        return unusable(address, error)
    if not isinstance(error, azure.AzureError | ValueError):
        return error
    if code in _REASONS:
        words = _REASONS[code]
    elif status in (401, 403):
        words = "access denied; check the credentials, their rights, and the account's firewall"
    elif status in (404, 412, 416) or code == "InvalidBlockList":
        words = "was changed or deleted during the run; rerun the command"
    else:
        words = first_line(error)
    said = f"{status or ''} {code}".strip()
    return StoreError(f"{words}{f' ({said})' if said else ''}", path=address)


def _is_directory(found: Any) -> bool:
    """Return whether a blob is the marker of a directory of a hierarchical namespace."""
    metadata = {name.lower(): value for name, value in (found.metadata or {}).items()}
    return metadata.get("hdi_isfolder") == "true"


def _info(found: Any) -> Info:
    written = int(found.last_modified.timestamp() * 1000) * 1_000_000
    # A list has ETags without the quotes that they have elsewhere.
    return Info(found.name, found.size, written, found.etag.strip('"'))
