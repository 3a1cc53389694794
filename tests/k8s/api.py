"""Kubernetes objects as JSON, over the API server's own HTTP interface."""

import json
from pathlib import Path
from typing import Any

import requests

Object = dict[str, Any]

GROUPS = {
    "jobs": "apis/batch/v1",
    "cronjobs": "apis/batch/v1",
    "poddisruptionbudgets": "apis/policy/v1",
    "validatingadmissionpolicies": "apis/admissionregistration.k8s.io/v1",
    "validatingadmissionpolicybindings": "apis/admissionregistration.k8s.io/v1",
    "leases": "apis/coordination.k8s.io/v1",
}
SECONDS = 60  # for an answer
STRATEGIC = "application/strategic-merge-patch+json"


class Refused(Exception):
    """The API server does not do it; `status` is HTTP's."""

    def __init__(self, status: int, words: str):
        super().__init__(f"{status} {words}")
        self.status = status


class Api:
    """One connection, for one thread."""

    def __init__(self, url: str, certificate: Path, token: str):
        self.url, self.session = url, requests.Session()
        self.session.verify, self.session.trust_env = str(certificate), False
        self.session.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method: str, path: str, body: Object | None = None, **more: Any) -> Object:
        """Return the answer to one request."""
        kind = STRATEGIC if method == "PATCH" else "application/json"
        data, headers = None if body is None else json.dumps(body), {"Content-Type": kind}
        answer = self.session.request(method, f"{self.url}/{path}", data=data, headers=headers, timeout=SECONDS, **more)
        if not answer.ok:
            raise Refused(answer.status_code, answer.text)
        found: Object = answer.json()
        return found

    def path(self, kind: str, namespace: str | None, name: str = "", part: str = "") -> str:
        """Return where objects of a kind are."""
        words = [GROUPS.get(kind, "api/v1")]
        words += ["namespaces", namespace] if namespace else []
        return "/".join(filter(None, [*words, kind, name, part]))

    def find(self, kind: str, namespace: str | None = None, labels: dict[str, str] | None = None) -> list[Object]:
        """Return the objects of a kind that have all of these labels, the oldest first."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        listed = self.ask("GET", self.path(kind, namespace), params={"labelSelector": selector})
        return sorted(listed["items"], key=lambda item: item["metadata"]["creationTimestamp"])

    def get(self, kind: str, namespace: str | None, name: str) -> Object:
        """Return one object."""
        return self.ask("GET", self.path(kind, namespace, name))

    def create(self, kind: str, namespace: str | None, item: Object, part: str = "") -> Object:
        """Create an object, or a part of the one of this name, as its eviction."""
        name = item["metadata"]["name"] if part else ""
        return self.ask("POST", self.path(kind, namespace, name, part), item)

    def patch(self, kind: str, namespace: str | None, name: str, change: Object, part: str = "") -> Object:
        """Change an object."""
        return self.ask("PATCH", self.path(kind, namespace, name, part), change)

    def delete(self, kind: str, namespace: str | None, name: str, **options: Any) -> Object:
        """Delete an object."""
        return self.ask("DELETE", self.path(kind, namespace, name), options)


def condition(item: Object, kind: str) -> Object:
    """Return the condition of a kind where it is true, else nothing."""
    held = item.get("status", {}).get("conditions", [])
    return next((c for c in held if c["type"] == kind and c["status"] == "True"), {})


def ended(pod: Object) -> bool:
    """Return whether a pod's containers will not run again."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")
