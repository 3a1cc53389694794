"""S3's own: where keys come from."""

import socketserver
import ssl
import threading

import pytest

from pipeline.errors import StoreError
from pipeline.storage import places
from tests.support import objects
from tests.support.certificates import certify


def test_no_keys_are_a_line(monkeypatch):
    monkeypatch.setenv("AWS_PROFILE", "absent")
    objects.CLIENTS["s3"].made.clear()
    with pytest.raises(StoreError, match="AWS_PROFILE"):
        places.at("s3://bucket/x").is_file()


@pytest.mark.parametrize("address", ["s3://My Bucket/x", "s3://bucket*/x.txt", "s3://b:1/x"])
def test_a_name_that_no_bucket_has_is_a_line(address, monkeypatch):
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    objects.CLIENTS["s3"].made.clear()
    with pytest.raises(StoreError) as caught:
        places.matching(address)
    assert str(caught.value).startswith(f"{address}: ")
    assert "\n" not in str(caught.value)
    objects.CLIENTS["s3"].made.clear()


@pytest.mark.parametrize(
    ("address", "cure"), [("s3://bucket/x", "AWS_ENDPOINT_URL"), (places.normal("s3:///x"), "s3://BUCKET/")]
)
def test_an_address_without_its_bucket_and_a_server_without_its_scheme_are_a_line(address, cure, monkeypatch):
    objects.CLIENTS["s3"].made.clear()
    monkeypatch.setenv("AWS_ENDPOINT_URL", "minio:9000")
    with pytest.raises(StoreError, match=cure):
        places.at(address).is_file()


@pytest.mark.parametrize("bundle", [None, "/nonexistent/authority.pem"])
def test_a_certificate_that_is_not_trusted_is_no_outage(bundle, tmp_path, monkeypatch):
    objects.CLIENTS["s3"].made.clear()
    certificate, key = certify(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "any")
    if bundle is not None:
        monkeypatch.setenv("AWS_CA_BUNDLE", bundle)
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), socketserver.BaseRequestHandler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"https://127.0.0.1:{server.server_address[1]}")
        with pytest.raises(StoreError, match="AWS_CA_BUNDLE"):
            places.at("s3://bucket/x").is_file()
        server.shutdown()
    objects.CLIENTS["s3"].made.clear()
