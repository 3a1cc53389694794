"""Google Cloud Storage's own: credentials, checksums on the way, long uploads, pages of a list."""

import pytest

from pipeline.errors import Restart, StoreError
from pipeline.storage import places
from pipeline.storage.checksums import sha256
from tests.support import objects
from tests.support.refusals import refused
from tests.support.servers.store_proxy import RIGHT

pytestmark = pytest.mark.store
GS = objects.CLIENTS["gs"]
served = pytest.mark.parametrize("store_kind", ["gs"], indirect=True, scope="session")


def test_missing_credentials_are_a_line(monkeypatch, tmp_path):
    pytest.importorskip("google.cloud.storage", reason="its client is missing: see make test-store")
    monkeypatch.delenv("STORAGE_EMULATOR_HOST", raising=False)
    for content in (None, "not JSON", '{"type": "service_account"}'):
        key = tmp_path / "key.json"
        if content is not None:
            key.write_text(content)
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
        GS.made.clear()
        with refused(StoreError, "GOOGLE_APPLICATION_CREDENTIALS", path="gs://bucket/x") as caught:
            places.at("gs://bucket/x").is_file()
        assert "\n" not in str(caught.value)
    GS.made.clear()


@served
def test_a_name_that_no_bucket_has_is_a_line(store):
    for use in (objects.head, objects.below, objects.read, GS.is_folder):
        with pytest.raises(StoreError, match=r"(?i)bucket") as caught:
            use("gs://-a/b")
        assert "\n" not in str(caught.value)


@pytest.mark.slow
@served
def test_a_large_file_that_is_damaged_on_the_way_is_sent_again(bucket, store, tmp_path):
    file = tmp_path / "large"
    file.write_bytes(RIGHT + bytes(GS.PART))
    first = [True]

    def fault(method, path, number):
        damage = method == "PUT" and first[0]
        first[0] = first[0] and method != "PUT"
        return "damage" if damage else None

    store.fault = fault
    objects.put_file(f"{bucket}/large", file, sha256(file))
    info = objects.head(f"{bucket}/large")
    objects.fetch(f"{bucket}/large", info, tmp_path / "fetched", sha256(file))
    assert store.count("PUT") == 4  # two requests, each of them twice


@served
def test_a_large_file_waits_for_a_store_that_stays_away_as_long_as_all_do(bucket, store, tmp_path, monkeypatch):
    file = tmp_path / "large"
    file.write_bytes(bytes(GS.PART + 1))
    monkeypatch.setenv("BERT_STORE_TIMEOUT", "1")
    store.fault = lambda method, path, number: 503 if method == "PUT" else None
    with pytest.raises(Restart, match=f"{bucket}/large"):
        objects.put_file(f"{bucket}/large", file, sha256(file))
    assert objects.head(f"{bucket}/large") is None


@served
def test_the_other_name_of_the_scheme_is_read(bucket):
    objects.put(f"{bucket}/a/b.txt", b"b")
    (found,) = places.matching(f"gcs://{bucket.removeprefix('gs://')}/a/*.txt")
    assert found.read_bytes() == b"b"
