"""A proxy before the server of a store that counts requests and injects faults."""

import contextlib
import http.client
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

# What happens to a request: None passes it on; a number answers with that status; "cut" closes the
# connection in the middle of the body; "damage" changes bytes on both ways; a function is called
# before the request is passed on.
Fault = int | str | None | Callable[[], None]
RIGHT, WRONG = b"the right bytes", b"the wrong bytes"  # what "damage" changes into what


class Proxy:
    """Faults to inject, and the requests that came, as (method, path with the object's name)."""

    def __init__(self, host, port):
        self.host, self.port = host, port
        self.requests: list[tuple[str, str]] = []
        self.fault: Callable[[str, str, int], Fault] = lambda method, path, number: None
        self.dropped: set[str] = set()  # headers that are not passed on, in small letters
        self.url = ""

    def count(self, method):
        return sum(name == method for name, _ in self.requests)


@contextlib.contextmanager
def proxy(host, port):
    """Serve a proxy before the server at an address."""
    state = Proxy(host, port)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet: the second would wait for an answer

        def handle_any(self):
            self.wfile.flush()  # "100 Continue"
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            # An upload to Google's storage names its object in the body.
            named = re.search(rb'"name": "([^"]+)"', body) if "uploadType" in self.path else None
            path = f"{self.path}&name={named[1].decode()}" if named else self.path
            state.requests.append((self.command, path))
            fault = state.fault(self.command, path, len(state.requests))
            if callable(fault):
                fault()
                fault = None
            if isinstance(fault, int):
                self.send_response(fault)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fault == "damage":
                body = body.replace(RIGHT, WRONG)
            there = http.client.HTTPConnection(state.host, state.port, timeout=30)
            headers = {k: v for k, v in self.headers.items() if k.lower() not in state.dropped}
            there.request(self.command, self.path, body, headers)
            answer = there.getresponse()
            data = answer.read()
            if fault == "damage":
                data = data.replace(RIGHT, WRONG)
            self.send_response_only(answer.status)
            behind = f"http://{state.host}:{state.port}"
            for name, value in answer.getheaders():
                value = value.replace(behind, state.url) if name == "Location" else value
                if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                    self.send_header(name, value)
            size = answer.getheader("Content-Length") if self.command == "HEAD" else str(len(data))
            self.send_header("Content-Length", size or "0")
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if fault == "cut" else data)
            if fault == "cut":
                self.close_connection = True

        do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_any

        def log_message(self, *_):
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        state.url = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield state
        server.shutdown()
