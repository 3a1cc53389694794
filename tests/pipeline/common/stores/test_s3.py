"""S3's own: where keys come from."""

import pytest

from pipeline.common import storage
from pipeline.common.errors import StoreError
from tests import objects


def test_no_keys_are_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "absent")
    objects.CLIENTS["s3"].made.clear()
    with pytest.raises(StoreError, match="AWS_PROFILE"):
        storage.at("s3://bucket/x").is_file()


@pytest.mark.parametrize("address", ["s3://My Bucket/x", "s3://bucket*/x.txt", "s3://b:1/x"])
def test_a_name_that_no_bucket_has_is_a_line(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    objects.CLIENTS["s3"].made.clear()
    with pytest.raises(StoreError) as caught:
        storage.matching(address)
    assert str(caught.value).startswith(f"{address}: ")
    assert "\n" not in str(caught.value)
    objects.CLIENTS["s3"].made.clear()


@pytest.mark.parametrize(
    ("address", "cure"), [("s3://bucket/x", "AWS_ENDPOINT_URL"), (storage.normal("s3:///x"), "s3://BUCKET/")]
)
def test_an_address_without_its_bucket_and_a_server_without_its_scheme_are_a_line(
    address: str, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects.CLIENTS["s3"].made.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    with pytest.raises(StoreError, match=cure):
        storage.at(address).is_file()
