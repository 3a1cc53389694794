"""A small Kubernetes API server over HTTPS: enough for kubectl and for the official client.

Discovery, create, read, list, watch, patch, delete, logs and evictions of the kinds in
`loopback_store`; strict validation against the published schemas; tokens with the rights that the
Roles in the store grant. Paths and answers follow kubernetes.io/docs/reference/using-api.
"""

import json
import re
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import kubernetes_validate
from loopback_openapi import VERSION, openapi_v2, openapi_v3, resources
from loopback_store import KINDS, Object, Refused, Store, merged, now

PATH = re.compile(
    r"/(?:api|apis/(?P<group>[^/]+))/(?P<version>v1)(?:/namespaces/(?P<namespace>[^/]+))?"
    r"(?:/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?)?"
)
VERBS = ["create", "delete", "get", "list", "patch", "watch"]
PATCHES = ("application/strategic-merge-patch+json", "application/merge-patch+json")


def discovery(path: str) -> Object | None:
    """What `/api`, `/apis` and their children say of what there is."""
    groups = sorted({version for version, _ in KINDS.values() if "/" in version})
    if path == "/version":
        major, minor = VERSION.split(".")
        return {"major": major, "minor": minor, "gitVersion": f"v{VERSION}.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        known = [{"groupVersion": version, "version": "v1"} for version in groups]
        listed = [
            {"name": v["groupVersion"].split("/")[0], "versions": [v], "preferredVersion": v}
            for v in known
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    version = path.removeprefix("/apis/").removeprefix("/api/")
    if not resources(version) or path.count("/") > 3:
        return None
    return {
        "kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version,
        "resources": [
            {"name": name, "kind": KINDS[name][1], "singularName": KINDS[name][1].lower(),
             "namespaced": name not in ("namespaces", "nodes"), "verbs": VERBS}
            for name in resources(version)
        ],
    }  # fmt: skip


def table(resource: str, items: list[Object]) -> Object:
    """A list as `kubectl get` prints it."""
    columns = {
        "jobs": ("Name", "Status", "Completions", "Suspend"),
        "pods": ("Name", "Status", "Node", "Exit Code"),
    }.get(resource, ("Name", "Created"))
    return {
        "kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": {},
        "columnDefinitions": [
            {"name": c, "type": "string", "format": "", "description": "", "priority": 0}
            for c in columns
        ],
        "rows": [{"cells": cells(resource, item), "object": item} for item in items],
    }  # fmt: skip


def cells(resource: str, item: Object) -> list[str]:
    """A row of the table."""
    name, status = item["metadata"]["name"], item.get("status") or {}
    if resource == "jobs":
        over = [c["type"] for c in status.get("conditions", []) if c["status"] == "True"]
        done = f"{status.get('succeeded', 0)}/{item['spec'].get('completions', 1)}"
        return [name, (over or ["Running"])[-1], done, str(item["spec"].get("suspend", False))]
    if resource == "pods":
        ends = [
            str(c["state"]["terminated"]["exitCode"])
            for c in status.get("containerStatuses", [])
            if "terminated" in c["state"]
        ]
        node = item["spec"].get("nodeName", "")
        return [name, status.get("phase", "Pending"), node, ",".join(ends)]
    return [name, item["metadata"]["creationTimestamp"]]


def selected(item: Object, query: dict[str, str]) -> bool:
    """Whether an object fits `labelSelector` and `fieldSelector`."""
    labels = item["metadata"].get("labels") or {}
    for term in filter(None, query.get("labelSelector", "").split(",")):
        key, _, value = term.replace("==", "=").partition("=")
        if (labels.get(key) != value) if value else key not in labels:
            return False
    for term in filter(None, query.get("fieldSelector", "").split(",")):
        path, _, value = term.partition("=")
        found: Any = item
        for part in path.split("."):
            found = (found or {}).get(part)
        if str(found) != value:
            return False
    return True


class ApiServer:
    """Serves a store; `logs` and `evict` are the kubelet's part."""

    def __init__(self, store: Store, address: str, certificate: Path, key: Path):
        self.store = store
        self.tokens: dict[str, str | None] = {}  # token -> service account; None: may do all
        self.logs: Callable[[str, str], Path] = lambda namespace, pod: Path("/dev/null")
        self.evict: Callable[[str, str], None] = lambda namespace, pod: None
        handler = type("Handler", (_Handler,), {"api": self})
        self.http = ThreadingHTTPServer((address, 0), handler)
        self.http.daemon_threads = True
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate, key)
        self.http.socket = context.wrap_socket(
            self.http.socket, server_side=True, do_handshake_on_connect=False
        )
        self.address, self.port = address, int(self.http.server_address[1])
        self.stopping = threading.Event()

    def start(self) -> None:
        """Serve, in threads."""
        threading.Thread(target=self.http.serve_forever, args=(0.1,), daemon=True).start()

    def stop(self) -> None:
        """End; open watches end within a second."""
        self.stopping.set()
        self.http.shutdown()
        self.http.server_close()

    def authorize(self, token: str, verb: str, resource: str, namespace: str, name: str) -> None:
        """Check the token's rights by the Roles bound to it."""
        if token not in self.tokens:
            raise Refused(401, "Unauthorized", "no such token")
        account = self.tokens[token]
        if account is None:
            return
        group = KINDS[resource.partition("/")[0]][0].rpartition("/")[0]
        for binding in self.store.find("rolebindings", namespace):
            if all(subject["name"] != account for subject in binding["subjects"]):
                continue
            role = self.store.get("roles", namespace, binding["roleRef"]["name"])
            for rule in role["rules"]:
                if (
                    verb in rule["verbs"]
                    and group in rule["apiGroups"]
                    and resource in rule["resources"]
                    and name in (rule.get("resourceNames") or [name])
                ):
                    return
        raise Refused(
            403, "Forbidden", f'"{account}" cannot {verb} {resource} {name} in {namespace}'
        )

    def validate(self, item: Object) -> None:
        """Refuse what the published schema does not know."""
        try:
            kubernetes_validate.validate(item, VERSION, strict=True)
        except kubernetes_validate.ValidationError as error:
            path = ".".join(map(str, error.path))
            raise Refused(422, "Invalid", f"{item.get('kind')}: {path}: {error.message}") from None

    def write(self, verb: str, place: "Place", body: Object, manager: str, kind: str) -> Object:
        """Create or patch."""
        namespace, resource = place.namespace, place.resource
        if verb == "create":
            self.validate(body)
            return self.store.create(resource, namespace, body, manager)
        if kind not in PATCHES:
            raise Refused(415, "UnsupportedMediaType", f"patches are {', '.join(PATCHES)}")

        def change(old: Object) -> Object:
            new: Object = merged(old, body)
            immutable(resource, old, new)
            return new

        return self.store.change(resource, namespace, place.name, change, manager)

    def delete(self, place: "Place", body: Object) -> Object:
        """Delete; a pod that runs gets its grace first."""
        found = self.store.get(place.resource, place.namespace, place.name)
        if place.resource != "pods":
            self.store.remove(place.resource, place.namespace, place.name)
            return found
        default = found["spec"].get("terminationGracePeriodSeconds", 30)
        grace = body.get("gracePeriodSeconds")
        return self.store.change(
            "pods", place.namespace, place.name,
            lambda pod: terminating(pod, default if grace is None else grace),
        )  # fmt: skip


def terminating(pod: Object, grace: int) -> None:
    """Mark a pod to be ended."""
    pod["metadata"].setdefault("deletionTimestamp", now())
    pod["metadata"].setdefault("deletionGracePeriodSeconds", grace)


def immutable(resource: str, old: Object, new: Object) -> None:
    """Refuse what an API server refuses to change on a Job."""
    if resource != "jobs":
        return
    for key in ("template", "completionMode", "podFailurePolicy", "selector"):
        if old["spec"].get(key) != new["spec"].get(key):
            raise Refused(422, "Invalid", f"Job.spec.{key}: field is immutable")


class Place:
    """What a path names."""

    def __init__(self, path: str):
        found = PATH.fullmatch(path)
        if found is None:
            raise Refused(404, "NotFound", f"the server could not find {path}")
        self.namespace: str = found["namespace"] or ""
        self.resource: str = found["resource"] or "namespaces"
        self.name: str = found["name"] or ("" if found["resource"] else self.namespace)
        self.sub: str = found["sub"] or ""
        if self.resource not in KINDS:
            raise Refused(404, "NotFound", f"the server could not find {path}")


class _Handler(BaseHTTPRequestHandler):
    api: ApiServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        """Say nothing."""

    def handle(self) -> None:
        try:
            super().handle()
        except (OSError, ssl.SSLError):
            self.close_connection = True  # the client went away

    def do_GET(self) -> None:
        self._answer("get")

    def do_POST(self) -> None:
        self._answer("create")

    def do_PATCH(self) -> None:
        self._answer("patch")

    def do_DELETE(self) -> None:
        self._answer("delete")

    def _answer(self, verb: str) -> None:
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            if verb == "get" and url.path == "/openapi/v2":
                return self._stream("application/octet-stream", iter([openapi_v2()]))
            if verb == "get" and url.path.startswith("/openapi/v3"):
                return self._send(200, openapi_v3(url.path))
            found = discovery(url.path) if verb == "get" else None
            if found is not None:
                return self._send(200, found)
            self._serve(verb, Place(url.path), query, json.loads(body or "{}"))
        except Refused as error:
            self._send(
                error.status,
                {
                    "kind": "Status", "apiVersion": "v1", "status": "Failure",
                    "code": error.status, "reason": error.reason, "message": str(error),
                },
            )  # fmt: skip

    def _serve(self, verb: str, place: Place, query: dict[str, str], body: Object) -> None:
        api, store = self.api, self.api.store
        watching = query.get("watch") in ("1", "true")
        if verb == "get" and not place.name:
            verb = "watch" if watching else "list"
        token = self.headers.get("Authorization", "").partition(" ")[2]
        resource = f"{place.resource}/{place.sub}" if place.sub else place.resource
        api.authorize(token, verb, resource, place.namespace, place.name)
        manager = query.get("fieldManager") or self.headers["User-Agent"].partition("/")[0]
        if place.sub == "log":
            return self._log(place, query)
        if place.sub == "eviction":
            api.evict(place.namespace, place.name)
            return self._send(201, {"kind": "Status", "apiVersion": "v1", "status": "Success"})
        if verb == "watch":
            return self._watch(place, query)
        if verb == "list":
            with store.changed:
                items = [i for i in store.find(place.resource, place.namespace or None)
                         if selected(i, query)]  # fmt: skip
                version, kind = KINDS[place.resource]
                metadata = {"resourceVersion": str(store.version)}
            if "as=Table" in self.headers.get("Accept", ""):
                return self._send(200, table(place.resource, items))
            listed = {"kind": f"{kind}List", "apiVersion": version, "metadata": metadata}
            return self._send(200, {**listed, "items": items})
        if verb == "get":
            item = store.get(place.resource, place.namespace, place.name)
            if "as=Table" in self.headers.get("Accept", ""):
                return self._send(200, table(place.resource, [item]))
            return self._send(200, item)
        if verb == "delete":
            return self._send(200, api.delete(place, body))
        kind = self.headers.get("Content-Type", "")
        self._send(200 if verb == "patch" else 201, api.write(verb, place, body, manager, kind))

    def _watch(self, place: Place, query: dict[str, str]) -> None:
        version = int(query.get("resourceVersion") or 0)
        timeout = float(query.get("timeoutSeconds") or 300)

        def lines() -> Iterator[bytes]:
            for event, item in self.api.store.watch(place.resource, version, timeout):
                if self.api.stopping.is_set():
                    return
                if place.namespace in ("", item["metadata"]["namespace"]) and selected(item, query):
                    yield json.dumps({"type": event, "object": item}).encode() + b"\n"

        self._stream("application/json", lines())

    def _log(self, place: Place, query: dict[str, str]) -> None:
        path = self.api.logs(place.namespace, place.name)
        follow = query.get("follow") == "true"

        def parts() -> Iterator[bytes]:
            with path.open("rb") as file:
                while not self.api.stopping.is_set():
                    part = file.read(1 << 16)
                    if part:
                        yield part
                        continue
                    pods = self.api.store.find("pods", place.namespace)
                    pod = next((p for p in pods if p["metadata"]["name"] == place.name), {})
                    if not follow or pod.get("status", {}).get("phase") not in (
                        "Pending",
                        "Running",
                    ):
                        return
                    time.sleep(0.1)

        self._stream("text/plain", parts())

    def _send(self, status: int, answer: Object) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def _stream(self, kind: str, parts: Iterator[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for part in parts:
            self.wfile.write(b"%x\r\n%b\r\n" % (len(part), part))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")
