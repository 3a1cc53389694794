"""A server of the hub's HTTP interface on 127.0.0.1: data sets, their commits, listings and files.

Models are in `tests.support.hub_models`.

huggingface_hub, the real client, talks to it. Files are answered by a redirect to another host
name, as the hub's content network does.
"""

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pytest

from tests.support.hub_models import Models

# What a request is answered with instead: a status and headers, or "cut" for half of the body, or
# "whole" for the file instead of a range of it; None for the usual answer.
Fault = tuple[int, dict[str, str]] | str | None


class Hub:
    """Data sets: commits by name, files by commit, branches; and the requests that came."""

    PAGE = 3  # entries of a page of a listing

    def __init__(self):
        self.commits: dict[str, dict[str, bytes]] = {}
        self.branches: dict[str, str] = {}
        self.models = Models()
        self.token: str | None = None  # the only one that is accepted
        self.gated = False
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.fault: Callable[[str, int], Fault] = lambda path, number: None
        self.url = ""

    def commit(self, files, branch="main"):
        """Add a commit of these files to a branch; return its name."""
        digest = hashlib.sha1(repr((sorted(files.items()), len(self.commits))).encode())
        self.commits[digest.hexdigest()] = dict(files)
        self.branches[branch] = digest.hexdigest()
        return digest.hexdigest()

    def paths(self, part):
        """Return the paths of the requests that have a part."""
        return [path for _, path, _ in self.requests if part in path]


REPOSITORY = "some/texts"
_ERRORS = {"RepoNotFound": 404, "RevisionNotFound": 404, "EntryNotFound": 404, "GatedRepo": 403}


@contextlib.contextmanager
def server():
    """Serve an empty hub."""
    hub = Hub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def handle_any(self):
            body = self.body()
            hub.requests.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}))
            fault = hub.fault(self.path, len(hub.requests))
            if isinstance(fault, tuple):
                self.answer(fault[0], b"", fault[1])
                return
            url = urlsplit(self.path)
            path = unquote(url.path)
            try:
                if path.startswith("/content/"):
                    self.content(path.removeprefix("/content/"), fault)
                    return
                if not path.startswith("/lfs/"):  # those addresses are signed
                    self.check_token()
                made = hub.models.answer(self.command, path, body, hub.url)
                if made is not None:
                    self.answer(made[0], json.dumps(made[1]).encode(), {})
                    return
                self.api(path, url, parse_qs(body.decode()), parse_qs(url.query))
            except LookupError as error:
                code = str(error.args[0])
                self.answer(_ERRORS.get(code, 404), b"", {"X-Error-Code": code})

        def body(self):
            if self.headers.get("Transfer-Encoding") != "chunked":
                return self.rfile.read(int(self.headers.get("Content-Length") or 0))
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)

        def check_token(self):
            given = self.headers.get("Authorization")
            if given is not None and given != f"Bearer {hub.token}":
                message = "Invalid credentials in Authorization header"
                self.answer(401, b"", {"X-Error-Message": message})
                raise _Answered
            if given is None and hub.token is not None and not hub.gated:
                raise LookupError("RepoNotFound")

        def api(self, path, url, form, query):
            prefix = f"/api/datasets/{REPOSITORY}"
            if match := re.fullmatch(rf"/datasets/{REPOSITORY}/resolve/([^/]+)/(.+)", path):
                if hub.gated and self.headers.get("Authorization") is None:
                    raise LookupError("GatedRepo")
                files = self.files(match[1])
                if match[2] not in files:
                    raise LookupError("EntryNotFound")
                port = hub.url.rpartition(":")[2]
                there = f"http://localhost:{port}/content/{self.sha(match[1])}/{match[2]}"
                self.answer(302, b"", {"Location": there})
            elif match := re.fullmatch(rf"{prefix}/revision/(.+)", path):
                self.json({"id": REPOSITORY, "sha": self.sha(match[1]), "siblings": []})
            elif path == prefix:
                self.json({"id": REPOSITORY, "sha": self.sha("main"), "siblings": []})
            elif match := re.fullmatch(rf"{prefix}/tree/([^/]+)(?:/(.+))?", path):
                entries = self.entries(match[1], match[2] or "", query["recursive"] == ["true"])
                start = int(query.get("cursor", ["0"])[0])
                more = {}
                if start + hub.PAGE < len(entries):
                    recursive = query["recursive"][0]
                    after = f"{hub.url}{url.path}?recursive={recursive}&cursor={start + hub.PAGE}"
                    more = {"Link": f'<{after}>; rel="next"'}
                self.json(entries[start : start + hub.PAGE], more)
            elif match := re.fullmatch(rf"{prefix}/paths-info/(.+)", path):
                listed = self.entries(match[1], "", True)
                self.json([item for item in listed if item["path"] in form["paths"]])
            else:
                raise LookupError("RepoNotFound")

        def sha(self, revision):
            sha = hub.branches.get(revision, revision)
            if sha not in hub.commits:
                raise LookupError("RevisionNotFound")
            return sha

        def files(self, revision):
            return hub.commits[self.sha(revision)]

        def entries(self, revision, folder, recursive):
            found = {}
            top = f"{folder}/" if folder else ""
            for name, data in sorted(self.files(revision).items()):
                if not name.startswith(top):
                    continue
                *folders, _ = name.removeprefix(top).split("/")
                for depth in range(1, len(folders) + 1):
                    path = top + "/".join(folders[:depth])
                    found[path] = {"type": "directory", "oid": "0" * 40, "size": 0, "path": path}
                oid = hashlib.sha1(data).hexdigest()
                found[name] = {"type": "file", "oid": oid, "size": len(data), "path": name}
            if not found:
                raise LookupError("EntryNotFound")
            return [e for p, e in found.items() if recursive or "/" not in p.removeprefix(top)]

        def content(self, place, fault):
            sha, _, name = place.partition("/")
            data = hub.commits[sha][name]
            span = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range") or "")
            if span is None or fault == "whole":
                self.answer(200, data, {})
                return
            part = data[int(span[1]) : int(span[2]) + 1]
            note = f"bytes {span[1]}-{int(span[1]) + len(part) - 1}/{len(data)}"
            self.answer(206, part, {"Content-Range": note}, cut=fault == "cut")

        def json(self, value, headers=None):
            self.answer(200, json.dumps(value).encode(), headers or {})

        def answer(self, status, data, headers, cut=False):
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(data))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data[: len(data) // 2] if cut else data)
            self.close_connection = self.close_connection or cut

        def handle_one(self):
            with contextlib.suppress(_Answered):
                self.handle_any()

        do_GET = do_HEAD = do_POST = do_PUT = handle_one

        def log_message(self, *_):
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as listening:
        hub.url = f"http://127.0.0.1:{listening.server_port}"
        threading.Thread(target=listening.serve_forever, daemon=True).start()
        yield hub
        listening.shutdown()


class _Answered(Exception):
    """The request has been answered."""


@contextlib.contextmanager
def environment(hub, home):
    """Point the environment to a server, without the token and files of this machine."""
    from huggingface_hub import HfFileSystem

    with pytest.MonkeyPatch.context() as patch:
        for key, value in {
            "HF_ENDPOINT": hub.url,
            "HF_HOME": home,
            "HF_HUB_DISABLE_TELEMETRY": "1",
            "BERT_STORE_TIMEOUT": "60",
        }.items():
            patch.setenv(key, value)
        # This process may have imported the library before.
        patch.setattr("huggingface_hub.constants.HF_HUB_DISABLE_TELEMETRY", True)
        patch.delenv("HF_TOKEN", raising=False)
        HfFileSystem.clear_instance_cache()
        yield patch
    HfFileSystem.clear_instance_cache()
