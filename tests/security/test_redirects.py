"""A server sends no request on into this machine's own networks, nor to where anyone can listen."""

import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pipeline.errors import InputError, UserError
from pipeline.storage import http_transfer, places, redirects
from pipeline.storage.http_transfer import RetryPolicy
from tests.support.certificates import certify
from tests.support.servers import hub_server

ONCE = RetryPolicy(timeout=5, tries=1)
PUBLIC, METADATA = "93.184.215.14", "169.254.169.254"


class Handler(BaseHTTPRequestHandler):
    """Redirect to what follows `/to?`; anything else is the secret of whoever is asked."""

    def do_GET(self):
        _, redirected, there = self.path.partition("/to?")
        self.send_response(302 if redirected else 200)
        if redirected:
            self.send_header("Location", there)
        self.end_headers()
        self.wfile.write(b"" if redirected else b"credentials")

    def log_message(self, *_):
        """Stay silent."""


class Server(ThreadingHTTPServer):
    """A server whose threads a failed test does not wait for."""

    daemon_threads = True
    block_on_close = False


@pytest.fixture
def port(monkeypatch):
    """Serve on all loopback addresses of this machine: 127.0.0.1, 127.0.0.2, …"""
    monkeypatch.setenv("NO_PROXY", "*")
    with Server(("0.0.0.0", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield server.server_port
        server.shutdown()


def test_what_a_user_names_may_be_private_and_redirect_to_itself(port):
    for there in ("/file", f"http://127.0.0.2:{port}/file", f"//127.0.0.2:{port}/file"):
        assert http_transfer.read(f"http://127.0.0.2:{port}/to?{there}", ONCE) == b"credentials"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0.0.0.0"])
@pytest.mark.parametrize("hops", [1, 2])
def test_another_host_of_a_private_network_is_refused(port, host, hops, tmp_path):
    there = f"http://{host}:{port}/latest/meta-data"
    for _ in range(hops):
        there = f"http://127.0.0.2:{port}/to?{there}"
    with pytest.raises(InputError, match="private"):
        http_transfer.read(there, ONCE)
    with pytest.raises(InputError, match="private"):
        http_transfer.fetch(there, tmp_path / "a.part", ONCE, digest=None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("there", ["http://[::1]:80/a", "http://[", "http://a:b/", "ftp://a/b", "file:///etc/passwd"])
def test_a_redirect_to_what_is_no_address_is_one_line(port, there):
    with pytest.raises(UserError):
        http_transfer.read(f"http://127.0.0.2:{port}/to?{there}", ONCE)


def test_a_secure_address_does_not_become_an_open_one(tmp_path, monkeypatch):
    monkeypatch.setenv("NO_PROXY", "*")
    certificate, key = certify(tmp_path, "127.0.0.1")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(certificate))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with Server(("127.0.0.1", 0), Handler) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        place = f"127.0.0.1:{server.server_port}"
        assert http_transfer.read(f"https://{place}/to?/file", ONCE) == b"credentials"
        with pytest.raises(InputError, match="https to http"):
            http_transfer.read(f"https://{place}/to?http://{place}/file", ONCE)
        server.shutdown()


PRIVATE = f"{METADATA} 10.1.2.3 172.16.0.1 192.168.1.1 100.100.100.200 127.0.0.1 0.0.0.0 ::1 fd00:ec2::254 fe80::1%lo"
PRIVATE += f" fec0::1 ::ffff:{METADATA} 64:ff9b::a9fe:a9fe 2002:a9fe:a9fe::1"


@pytest.mark.parametrize("private", PRIVATE.split())
def test_only_public_addresses_are_open_to_a_redirect(private):
    assert redirects.closed({PUBLIC}, {private}) == {private}
    assert redirects.closed({"10.9.9.9"}, {private}) == {private}
    assert redirects.closed({PUBLIC}, {PUBLIC, private}) == {private}, "one of a name's addresses"
    assert not redirects.closed({private}, {private}), "the user named it"
    assert not redirects.closed({private}, {PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"})


def test_the_hub_is_followed_no_further(tmp_path):
    with hub_server.server() as hub, hub_server.environment(hub, str(tmp_path)):
        sha = hub.commit({"a.txt": b"text"})
        place = f"hf://datasets/{hub_server.REPOSITORY}@{sha}/a.txt"
        assert places.at(place).read_bytes() == b"text"
        port = hub.url.rpartition(":")[2]
        away = {"Location": f"http://127.0.0.2:{port}/content/{sha}/a.txt"}
        hub.fault = lambda path, number: (302, away) if "/resolve/" in path else None
        with pytest.raises(InputError, match="private"):
            places.at(place).read_bytes()
