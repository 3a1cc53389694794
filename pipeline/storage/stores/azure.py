"""Objects of Azure Blob Storage, with azure-storage-blob.

An address is `abfs://CONTAINER/KEY`, in the account that the environment names, or
`abfs://CONTAINER@ACCOUNT.dfs.core.windows.net/KEY`; `abfss://` is the same. Environment variables
are those of Azure's command line: AZURE_STORAGE_CONNECTION_STRING, or AZURE_STORAGE_ACCOUNT with
AZURE_STORAGE_KEY. Without a key, the identity of a pod or a machine, or the user's login, is found
as Azure's own tools find it. The store compares what arrives with its MD5, and Azure's client what
it reads whole.
"""

import logging
import os
import secrets
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from pipeline.errors import first_line
from pipeline.storage.stores import retries
from pipeline.storage.stores.client import At, Client, Failure, Got, Page, Seen, Span
from pipeline.storage.stores.remote_file import Info

CONNECTION = "AZURE_STORAGE_CONNECTION_STRING"


class Azure(Client):
    """Objects of `abfs://`."""

    MOST_PARTS, PAGE = 40_000, 5000
    EXTRA, ENDPOINT, ADVICE = "azure", "primary_hostname", f"the account's name, and {CONNECTION} if it is set"
    CREDENTIALS = f"set {CONNECTION}, or AZURE_STORAGE_ACCOUNT and AZURE_STORAGE_KEY, or run az login"

    def _connect(self, account: str) -> Any:
        from azure.core.credentials import AzureNamedKeyCredential
        from azure.core.pipeline.transport import RequestsTransport
        from azure.storage.blob import BlobServiceClient

        # The client logs what is raised, too, and azure-identity each source that it has tried.
        logging.getLogger("azure").setLevel(logging.CRITICAL)
        transport = RequestsTransport(connection_timeout=10, read_timeout=20, connection_data_block_size=2**16)
        transport.open()
        transport.session.hooks["response"].append(_watch)
        settings: dict[str, Any] = {"retry_total": 0, "transport": transport}
        connection = _connection()
        name = account.partition(".")[0]
        end = urlsplit(connection.get("BLOBENDPOINT", "")).hostname or ""
        if os.environ.get(CONNECTION) and (not account or name == connection.get("ACCOUNTNAME", end.partition(".")[0])):
            return BlobServiceClient.from_connection_string(os.environ[CONNECTION], **settings)
        default, key = os.environ.get("AZURE_STORAGE_ACCOUNT", ""), os.environ.get("AZURE_STORAGE_KEY")
        if not (account or default):
            raise ValueError("no account: neither the address nor the environment names one")
        host = account if "." in account else f"{account or default}.blob.core.windows.net"
        credential = AzureNamedKeyCredential(default, key) if key and name in ("", default) else _identity()
        return BlobServiceClient(f"https://{host.replace('.dfs.', '.blob.', 1)}", credential=credential, **settings)

    def _failure(self, error: Exception) -> Failure:
        import requests
        from azure.core import exceptions as azure

        status = int(getattr(error, "status_code", None) or 0)
        code = getattr(error, "error_code", None) or ""
        code = str(getattr(code, "value", code))
        no_token = isinstance(error, azure.ClientAuthenticationError) and not hasattr(error, "error_code")
        if status:
            return Failure(
                status,
                code,
                missing=code in ("BlobNotFound", "ResourceNotFound"),
                # Another 409 or 412, as of a lease, is an error.
                unmet=code in ("ConditionNotMet", "TargetConditionNotMet", "BlobAlreadyExists"),
                passes=code == "Md5Mismatch",
                words=self._unusable(error) if no_token else "",
            )
        denied = isinstance(error, azure.ClientAuthenticationError)
        away = azure.ServiceRequestError | azure.ServiceResponseError | azure.HttpResponseError
        passing = away | requests.RequestException | ConnectionError | TimeoutError
        if not denied and (isinstance(error, passing) or "MD5 mismatch" in str(error)):
            return Failure(passes=True)
        if denied or isinstance(error, OSError):  # the file of a token
            return Failure(words=self._unusable(error))
        return Failure(words=first_line(error) if isinstance(error, azure.AzureError) else "")

    def _condition(self, etag: str | None) -> dict[str, Any]:
        from azure.core import MatchConditions

        if etag is None:
            return {"match_condition": MatchConditions.IfMissing}
        return {"etag": f'"{etag}"', "match_condition": MatchConditions.IfNotModified}

    def _look(self, at: At) -> Seen | None:
        dates: list[str | None] = []
        properties = _blob(at).get_blob_properties(
            raw_response_hook=lambda answer: dates.append(answer.http_response.headers.get("Date"))
        )
        return None if _is_directory(properties) else (_info(properties), dates[-1])

    def _page(self, at: At, size: int, token: str | None) -> Page:
        container = at.client.get_container_client(at.bucket.partition("@")[0])
        listed = container.list_blobs(name_starts_with=at.key or None, include=["metadata"], results_per_page=size)
        pages = listed.by_page(token)
        infos = [_info(blob) for blob in next(pages, ()) if not _is_directory(blob)]
        return infos, pages.continuation_token or None

    def _get(self, at: At, etag: str | None = None, span: Span = None) -> Got:
        bound: dict[str, Any] = {} if etag is None else self._condition(etag)
        # A range is not decompressed: what was put with a Content-Encoding is read as it is stored.
        part = {"offset": span[0], "length": span[1] - span[0], "decompress": False} if span else {}
        answer = _blob(at).download_blob(validate_content=not span, **part, **bound)
        return answer.readall(), answer.properties.etag.strip('"')

    def _put(self, at: At, data: bytes, **condition: Any) -> str:
        more = {"length": len(data), "validate_content": True, "overwrite": True}
        return str(_blob(at).upload_blob(data, **more, **condition)["etag"]).strip('"')

    def _delete(self, at: At) -> None:
        _blob(at).delete_blob(delete_snapshots="include")

    def _begin(self, at: At) -> str:
        # A block of another upload, which was cut off, never gets among ours. The store removes what
        # was not committed: with the next upload of this object, or after a week.
        return secrets.token_hex(8)

    def _send(self, at: At, upload: str, number: int, data: bytes) -> Any:
        name = f"{upload}{number:05}"
        _blob(at).stage_block(name, data, validate_content=True)
        return name

    def _complete(self, at: At, upload: str, parts: list[Any], **condition: Any) -> str:
        from azure.storage.blob import BlobBlock

        blocks = [BlobBlock(name) for name in parts]
        return str(_blob(at).commit_block_list(blocks, **condition)["etag"]).strip('"')


def own_account() -> str:
    """Return the account of the addresses that name none: its name, or its URL; empty if none."""
    settings = _connection()
    return settings.get("BLOBENDPOINT") or settings.get("ACCOUNTNAME") or os.environ.get("AZURE_STORAGE_ACCOUNT", "")


def _connection() -> dict[str, str]:
    """Return the settings of the connection string, by their names in capital letters."""
    pairs = (part.partition("=") for part in os.environ.get(CONNECTION, "").split(";"))
    return {name.strip().upper(): value for name, _, value in pairs}


def _identity() -> Any:
    """Return the credential of a pod, a machine, or the user's login."""
    from azure.identity import DefaultAzureCredential, WorkloadIdentityCredential

    # Of a pod of AKS. By itself: a chain calls a network that is away a wrong credential.
    if os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return WorkloadIdentityCredential(retry_total=0)
    return DefaultAzureCredential()


def _watch(answer: Any, **_: Any) -> None:
    """Look at the bytes of an answer as they come: they may be cut off, or come too slowly.

    The client itself would ask again at once, without a word and without an end in sight. A hook of
    the client's comes too late: it has read an answer that has a checksum by then.
    """
    from urllib3.exceptions import HTTPError

    whole = answer.raw.stream

    def stream(*args: Any, **kwargs: Any) -> Iterator[bytes]:
        pace = retries.Pace()
        try:
            for part in whole(*args, **kwargs):
                pace.add(len(part))
                yield part
        except (HTTPError, ConnectionError) as error:
            raise retries.Again(first_line(error)) from error

    answer.raw.stream = stream


def _blob(at: At) -> Any:
    return at.client.get_blob_client(at.bucket.partition("@")[0], at.key)


def _is_directory(blob: Any) -> bool:
    """Return whether a blob is the marker of a directory of a hierarchical namespace."""
    metadata = {name.lower(): value for name, value in (blob.metadata or {}).items()}
    return metadata.get("hdi_isfolder") == "true"


def _info(blob: Any) -> Info:
    # A list has ETags without the quotes that they have elsewhere.
    return Info.at(blob.name, blob.size, blob.last_modified, blob.etag.strip('"'))
