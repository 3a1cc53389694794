"""Kubernetes objects as JSON, over the API server's own HTTP interface."""

import json

import requests

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

    def __init__(self, status, words):
        super().__init__(f"{status} {words}")
        self.status = status


class Api:
    """One connection, for one thread."""

    def __init__(self, url, certificate, token):
        self.url, self.session = url, requests.Session()
        self.session.verify, self.session.trust_env = str(certificate), False
        self.session.headers["Authorization"] = f"Bearer {token}"

    def ask(self, method, path, body=None, **more):
        """Return the answer to one request."""
        kind = STRATEGIC if method == "PATCH" else "application/json"
        data, headers = None if body is None else json.dumps(body), {"Content-Type": kind}
        answer = self.session.request(method, f"{self.url}/{path}", data=data, headers=headers, timeout=SECONDS, **more)
        if not answer.ok:
            raise Refused(answer.status_code, answer.text)
        return answer.json()

    def path(self, kind, namespace, name="", part=""):
        """Return where objects of a kind are."""
        words = [GROUPS.get(kind, "api/v1")]
        words += ["namespaces", namespace] if namespace else []
        return "/".join(filter(None, [*words, kind, name, part]))

    def find(self, kind, namespace=None, labels=None):
        """Return the objects of a kind that have all of these labels, the oldest first."""
        selector = ",".join(f"{key}={value}" for key, value in (labels or {}).items())
        listed = self.ask("GET", self.path(kind, namespace), params={"labelSelector": selector})
        return sorted(listed["items"], key=lambda item: item["metadata"]["creationTimestamp"])

    def get(self, kind, namespace, name):
        """Return one object."""
        return self.ask("GET", self.path(kind, namespace, name))

    def create(self, kind, namespace, item, part=""):
        """Create an object, or a part of the one of this name, as its eviction."""
        name = item["metadata"]["name"] if part else ""
        return self.ask("POST", self.path(kind, namespace, name, part), item)

    def patch(self, kind, namespace, name, change, part=""):
        """Change an object."""
        return self.ask("PATCH", self.path(kind, namespace, name, part), change)

    def delete(self, kind, namespace, name, **options):
        """Delete an object."""
        return self.ask("DELETE", self.path(kind, namespace, name), options)


def condition(item, kind):
    """Return the condition of a kind where it is true, else nothing."""
    held = item.get("status", {}).get("conditions", [])
    return next((c for c in held if c["type"] == kind and c["status"] == "True"), {})


def ended(pod):
    """Return whether a pod's containers will not run again."""
    return pod["status"].get("phase") in ("Succeeded", "Failed")
