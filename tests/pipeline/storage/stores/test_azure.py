"""Azure Blob Storage's own: accounts, credentials, blocks, directories, checksums on the way."""

import logging
import os
import socket

import pytest

from pipeline.console.redact import redact
from pipeline.errors import Restart, StoreError
from pipeline.storage import cached_folders, places
from pipeline.storage.checksums import sha256
from tests.support import objects
from tests.support.refusals import refused
from tests.support.servers import azure_server
from tests.support.servers.store_proxy import RIGHT

pytestmark = pytest.mark.store
AZURE = objects.CLIENTS["abfs"]
served = pytest.mark.parametrize("store_kind", ["abfs"], indirect=True, scope="session")


@pytest.fixture
def nothing(monkeypatch):
    """An environment that names no account and no credentials; a network that has no identity."""
    for name in os.environ:
        if name.startswith("AZURE_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AZURE_POD_IDENTITY_AUTHORITY_HOST", "http://127.0.0.1:1")
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    level = logging.getLogger("azure").level
    AZURE.made.clear()
    yield
    AZURE.made.clear()
    logging.getLogger("azure").setLevel(level)


FEDERATED = {"FEDERATED_TOKEN_FILE": "/absent", "CLIENT_ID": "c", "TENANT_ID": "t"}
WRONG = [{"STORAGE_KEY": "not base64"}, {"TOKEN_CREDENTIALS": "EnvironmentCredential"}, FEDERATED]
WRONG = [{}, {"STORAGE_CONNECTION_STRING": "nothing"}, *({"STORAGE_ACCOUNT": "a", **each} for each in WRONG)]


@pytest.mark.parametrize("environment", [{f"AZURE_{name}": value for name, value in each.items()} for each in WRONG])
@pytest.mark.usefixtures("nothing")
def test_missing_credentials_are_a_line(monkeypatch, capfd, environment):
    pytest.importorskip("azure.storage.blob", reason="its client is missing: see make test-store")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with refused(StoreError, "AZURE_STORAGE_KEY", path="abfs://container/x") as caught:
        places.at("abfs://container/x").is_file()
    assert "\n" not in str(caught.value)
    assert capfd.readouterr().err == ""


@pytest.mark.usefixtures("nothing")
def test_a_pod_that_cannot_ask_for_a_token_yet_waits(monkeypatch, tmp_path):
    pytest.importorskip("azure.storage.blob", reason="its client is missing: see make test-store")
    (tmp_path / "token").write_text("token")
    for name, value in {
        "AZURE_STORAGE_ACCOUNT": "a",
        "AZURE_FEDERATED_TOKEN_FILE": str(tmp_path / "token"),
        "AZURE_CLIENT_ID": "c",
        "AZURE_TENANT_ID": "t",
        "AZURE_AUTHORITY_HOST": "https://127.0.0.1:1",
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("pipeline.storage.stores.retries.is_unknown", lambda endpoint: False)  # no network here
    with pytest.raises(Restart):
        places.at("abfs://container/x").is_file()


@pytest.mark.usefixtures("nothing")
def test_a_server_that_is_away_when_a_process_starts_is_waited_for(monkeypatch):
    pytest.importorskip("azure.storage.blob", reason="its client is missing: see make test-store")
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection(url))
        with pytest.raises(Restart, match=r"abfs://container/x: .* AZURE_STORAGE_CONNECTION_STRING"):
            places.at("abfs://container/x").is_file()


@pytest.mark.parametrize("address", ["abfs:///x", "abfs://@a.dfs.core.windows.net/x", "abfs://c@/x"])
def test_an_address_without_a_container_or_an_account_is_a_line(address):
    with pytest.raises(StoreError, match="CONTAINER"):
        AZURE.head(address)


def test_copies_of_stores_do_not_mix(tmp_path):
    tops = "s3://abfs s3://abfss s3://bucket gs://abfs abfs://bucket abfs://bucket@a.dfs.core.windows.net abfs://abfs"
    addresses = [f"{top}/run/a.txt" for top in tops.split(" ")]
    paths = [cached_folders.local_path(tmp_path, address) for address in addresses]
    assert len({*paths}) == len(addresses)
    assert [cached_folders.restore_addresses(tmp_path, f"{path} is made") for path in paths] == [
        f"{address} is made" for address in addresses
    ]


def test_a_container_is_no_secret_and_a_connection_string_is_one(monkeypatch):
    for address in ("abfs://c@a.dfs.core.windows.net/x", "abfss://c@a.dfs.core.windows.net/x"):
        assert redact(f"'{address}'") == f"'{address}'"
    assert "secret" not in redact("https://me:secret@example.com abfs://c@a.dfs.core.windows.net")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", azure_server.connection("http://a"))
    assert azure_server.KEY not in redact(f"used {azure_server.connection('http://a')}")


@served
def test_an_account_in_the_address_is_that_of_the_environment(bucket):
    place = f"{bucket}@{azure_server.ACCOUNT}.dfs.core.windows.net".replace("abfs", "abfss")
    etag = objects.put(f"{place}/run/a.txt", b"a")
    assert objects.read(f"{bucket}/run/a.txt") == (b"a", etag)
    (found,) = places.matching(f"{place}/r*/*.txt")
    assert (str(found), found.read_bytes()) == (f"{place}/run/a.txt", b"a")


@served
def test_a_name_that_no_container_has_is_a_line(store):
    for use in (objects.head, objects.below, objects.read, AZURE.is_folder):
        for name in ("-a", "A_b"):
            with refused(StoreError, path=f"abfs://{name}/b") as caught:
                use(f"abfs://{name}/b")
            assert "\n" not in str(caught.value)


@served
def test_a_wrong_key_is_a_line(bucket, store, monkeypatch):
    wrong = azure_server.connection(store.url).replace(azure_server.KEY, "A" * 86 + "==")
    monkeypatch.setenv("AZURE_STORAGE_CONNECTION_STRING", wrong)
    AZURE.made.clear()
    for use in (objects.head, objects.below, objects.read):
        # Azurite calls it AuthorizationFailure, the service AuthenticationFailed.
        with pytest.raises(StoreError, match="403 Auth") as caught:
            use(f"{bucket}/b")
        assert "\n" not in str(caught.value)


@served
def test_a_large_file_that_is_damaged_on_the_way_is_sent_again(bucket, store, tmp_path, monkeypatch):
    monkeypatch.setattr(AZURE, "PART", len(RIGHT) + 1)
    file = tmp_path / "large"
    file.write_bytes(b"-" + RIGHT + b"and less")
    seen = set()

    def fault(method, path, number):
        first = path not in seen
        seen.add(path)
        return "damage" if first and "comp=block&" in path else None

    store.fault = fault
    objects.put_file(f"{bucket}/large", file, sha256(file))
    assert store.count("PUT") == 4  # two blocks, one of them twice, and their list
    info = objects.head(f"{bucket}/large")
    objects.fetch(f"{bucket}/large", info, tmp_path / "fetched", sha256(file))


@served
def test_an_upload_that_was_cut_off_leaves_nothing_and_the_next_is_whole(bucket, store, tmp_path, monkeypatch):
    monkeypatch.setattr(AZURE, "PART", 1000)
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    file = tmp_path / "large"
    file.write_bytes(os.urandom(3500))
    store.fault = lambda method, path, number: 503 if "comp=blocklist" in path else None
    with pytest.raises(Restart, match=f"{bucket}/large"):
        objects.put_file(f"{bucket}/large", file, sha256(file))
    assert objects.head(f"{bucket}/large") is None
    assert objects.below(bucket) == []
    store.fault = lambda method, path, number: None
    file.write_bytes(os.urandom(2500))
    etag = objects.put_file(f"{bucket}/large", file, sha256(file))
    info = objects.head(f"{bucket}/large")
    assert (info.size, info.etag) == (2500, etag)
    assert [found.etag for found in objects.below(bucket)] == [etag]
    assert places.at(f"{bucket}/large").open().read() == file.read_bytes()


@served
def test_a_file_that_changes_while_it_is_put_is_not_there(bucket, store, tmp_path, monkeypatch):
    monkeypatch.setattr(AZURE, "PART", 1000)
    monkeypatch.setattr("pipeline.common.parallel.THREADS", 1)
    path = tmp_path / "a"
    path.write_bytes(b"before" * 10_000)
    checksum = sha256(path)
    store.fault = lambda method, place, number: lambda: path.write_bytes(b"afters" * 10_000)
    with refused(StoreError, path=str(path)):
        objects.put_file(f"{bucket}/a", path, checksum)
    assert objects.head(f"{bucket}/a") is None


@served
def test_directories_are_not_objects(bucket, store):
    """As an account with a hierarchical namespace, and Hadoop in one without, has them."""
    container = azure_server.service(store.url).get_container_client(bucket.partition("//")[2])
    for name in ("run", "run/empty"):
        container.upload_blob(name, b"", metadata={"hdi_isfolder": "true"})
    assert not AZURE.is_folder(f"{bucket}/run")
    assert objects.head(f"{bucket}/run") is None
    objects.put(f"{bucket}/run/a.txt", b"a")
    assert [info.key for info in objects.below(bucket)] == ["run/a.txt"]
    assert AZURE.is_folder(f"{bucket}/run")


@served
def test_what_is_stored_with_an_encoding_is_read_as_it_is_stored(bucket, store):
    from azure.storage.blob import ContentSettings

    container = azure_server.service(store.url).get_container_client(bucket.partition("//")[2])
    container.upload_blob("a.gz", b"not unpacked", content_settings=ContentSettings(content_encoding="gzip"))
    assert places.at(f"{bucket}/a.gz").open().read() == b"not unpacked"
