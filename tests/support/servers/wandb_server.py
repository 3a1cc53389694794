"""W&B's HTTP interface on loopback, as far as its client needs it, and what the client sent."""

import base64
import gzip
import json
import os
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = "0" * 40
SECRET = base64.b64encode(f"api:{KEY}".encode()).decode()
OWNER = {"id": "1", "name": "me"}
PROJECT = {"id": "1", "internalId": "1", "name": "bert-pipeline", "entityName": "me", "createdAt": ""}
PROJECT |= {"isBenchmark": False, "user": None, "entity": OWNER}
VIEWER = {"id": "1", "username": "me", "entity": "me", "flags": "{}", "email": "", "admin": False}
VIEWER |= {"teams": {"edges": []}, "apiKeys": {"edges": []}}
NEW = {"config": "{}", "summaryMetrics": "{}", "description": None, "notes": None, "tags": [], "sweepName": None}
NEW["project"] = PROJECT
ARTIFACT = {"__typename": "Artifact", "versionIndex": 0, "metadata": "{}", "ttlDurationSeconds": -2}
ARTIFACT |= {"ttlIsInherited": True, "tags": [], "aliases": [], "size": 0, "fileCount": 0}
ARTIFACT |= dict.fromkeys(("description", "historyStep", "commitHash", "updatedAt"))
ARTIFACT["createdAt"] = "2026-01-01T00:00:00"
PAGES = {"endCursor": "1", "hasNextPage": False}
FIXED = {
    "viewer": VIEWER,
    "serverInfo": {"features": [], "cliVersionInfo": None, "latestLocalVersionInfo": None},
    "models": {"edges": [{"node": PROJECT, "cursor": "1"}], "pageInfo": PAGES},
    "notifyScriptableRunAlert": {"success": True},
}


def environment(home, **more):
    """Return an environment without what this machine says of W&B."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    return clean | {"HOME": str(home)} | more


class WandbServer:
    """The server in threads; one of its methods answers each operation of GraphQL, by name."""

    def __init__(self, address="127.0.0.1"):
        handler = type("Handler", (Handler,), {"kept": self})
        self.http = ThreadingHTTPServer((address, 0), handler)
        self.http.daemon_threads = True
        self.url = f"http://{address}:{self.http.server_port}"
        self.lock = threading.Lock()
        self.asked: list[tuple[str, dict]] = []
        self.runs: dict[str, dict] = {}
        self.lines: dict[str, list[str]] = {}
        self.artifacts: list[dict] = []
        self.files: dict[str, bytes] = {}
        threading.Thread(target=self.http.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self):
        """End the server."""
        self.http.shutdown()
        self.http.server_close()

    def asked_for(self, operation):
        """Return the variables of all requests of an operation."""
        return [variables for name, variables in self.asked if name == operation]

    def history(self, run):
        """Return the rows that a run has logged."""
        return [json.loads(line) for line in self.lines.get(run, [])]

    def summary(self, run):
        """Return the newest values of a run's metrics."""
        return json.loads(self.files[f"{run}/wandb-summary.json"])

    def references(self, artifact):
        """Return the entries of the newest artifact of a name."""
        return json.loads(self.files[f"{self.newest(artifact)['id']}/manifest"])["contents"]

    def newest(self, name):
        """Return the newest artifact of a name, or an empty one."""
        made = [one for one in self.artifacts if one["artifactCollectionName"] == name]
        done = [one for one in made if one["state"] == "COMMITTED"]
        return done[-1] if done else {}

    def answer(self, operation, variables):
        """Return the data of a response."""
        with self.lock:
            self.asked.append((operation, variables))
            given = getattr(self, f"_{operation}", None)
            return FIXED if given is None else given(**variables)

    def keep_rows(self, run, sent):
        """Keep the lines of a run's history; the client says from which line on."""
        part = sent.get("files", {}).get("wandb-history.jsonl")
        if part:
            with self.lock:
                self.lines.setdefault(run, [])[part["offset"] :] = part["content"]

    def _RunResumeStatus(self, name, **_):
        if name not in self.runs:
            return {"model": {**PROJECT, "bucket": None}}
        lines = self.lines.get(name, [])
        counts = {"historyLineCount": len(lines), "logLineCount": 0, "eventsLineCount": 0}
        tails = {"historyTail": json.dumps(lines[-1:]), "eventsTail": "[]", "wandbConfig": '{"t": 1}'}
        return {"model": {**PROJECT, "bucket": {**self.runs[name], **counts, **tails}}}

    def _UpsertBucket(self, name, **given):
        inserted = name not in self.runs
        run = self.runs.setdefault(name, {**NEW, "id": name, "name": name, "displayName": name})
        run |= {k: v for k, v in given.items() if v is not None and k not in ("id", "project")}
        bucket = {**run, "historyLineCount": len(self.lines.get(name, []))}
        return {"upsertBucket": {"bucket": bucket, "inserted": inserted}}

    def _CreateRunFiles(self, run, files, **_):
        places = [{"name": name, "uploadUrl": f"{self.url}/upload/{run}/{name}"} for name in files]
        return {"createRunFiles": {"runID": run, "uploadHeaders": [], "files": places}}

    def _ArtifactType(self, name, **_):
        found = self.newest(name.partition(":")[0])
        kind = {"artifactType": {"name": found["artifactTypeName"]}} if found else None
        return {"project": {"artifact": kind}}

    def _ArtifactMembershipByName(self, name, **_):
        base = name.partition(":")[0]
        found = self.newest(base)
        if not found:
            return {"project": {"artifactCollectionMembership": None}}
        sequence = {"__typename": "ArtifactSequence", "name": base, "project": PROJECT}
        kinds = {"artifactSequence": sequence, "artifactType": {"name": found["artifactTypeName"]}}
        artifact = {**ARTIFACT, **{key: found[key] for key in ("id", "state", "digest")}, **kinds}
        member = {"__typename": "ArtifactCollectionMembership", "id": "1", "versionIndex": 0, "createdAt": ""}
        member |= {"aliases": [], "artifactCollection": sequence, "artifact": artifact}
        return {"project": {"artifactCollectionMembership": member}}

    def _UseArtifact(self, **given):
        return {"useArtifact": {"artifact": {"id": given.get("input", given)["artifactID"]}}}

    def _CreateArtifact(self, input):
        made = {**input, "id": f"artifact-{len(self.artifacts)}", "state": "PENDING"}
        self.artifacts.append(made)
        sequence = {"id": "1", "name": input["artifactCollectionName"], "latestArtifact": None}
        shown = {"id": made["id"], "state": "PENDING", "artifactSequence": sequence}
        return {"createArtifact": {"artifact": shown}}

    def _CreateArtifactManifest(self, artifactID, includeUpload, **_):
        url = f"{self.url}/upload/{artifactID}/manifest" if includeUpload else None
        file = {"id": artifactID, "uploadUrl": url, "uploadHeaders": []}
        return {"createArtifactManifest": {"artifactManifest": {"id": artifactID, "file": file}}}

    def _CreateArtifactFiles(self, input):
        nodes = [
            {
                "storagePath": one["name"],
                "uploadHeaders": [],
                "uploadMultipartUrls": None,
                "uploadUrl": f"{self.url}/upload/{one['artifactID']}/{one['name']}",
                "artifact": {"id": one["artifactID"]},
            }
            for one in input["artifactFiles"]
        ]
        return {"createArtifactFiles": {"files": {"edges": [{"node": node} for node in nodes]}}}

    def _CommitArtifact(self, artifactID):
        made = next(one for one in self.artifacts if one["id"] == artifactID)
        made["state"] = "COMMITTED"
        return {"commitArtifact": {"artifact": {"id": artifactID, "digest": made["digest"]}}}

    def _UpsertView2(self, spec, **_):
        view = {"id": "Vmlldzox", "name": "v", "type": "runs", "displayName": "d", "description": ""}
        view |= {"spec": spec, "project": PROJECT, "user": None}
        return {"upsertView": {"view": view, "inserted": True}}

    _upsertView = _UpsertView2  # of a report


class Handler(BaseHTTPRequestHandler):
    """One connection of the client."""

    protocol_version = "HTTP/1.1"
    kept: WandbServer

    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"] or 0))
        if self.headers["Content-Encoding"] == "gzip":
            text = gzip.decompress(text)
        known = (self.headers["Authorization"] or "").endswith(SECRET)
        if self.path.startswith("/upload/"):
            self.kept.files[self.path.removeprefix("/upload/")] = text
            self.reply(200, {})
        elif self.path.endswith("/graphql"):
            request = json.loads(text)
            (name,) = re.findall(r"(?:query|mutation)\s+(\w+)", request["query"])[:1] or [""]
            if known:
                self.reply(200, {"data": self.kept.answer(name, request.get("variables") or {})})
            else:
                self.reply(401, {"errors": [{"message": "user is not logged in"}]})
        elif self.path.endswith("/file_stream"):
            self.kept.keep_rows(self.path.split("/")[-2], json.loads(text))
            self.reply(200, {"exitcode": None, "limits": {}})
        else:
            self.reply(404, {})

    do_PUT = do_POST

    def reply(self, status, body):
        """Send a response."""
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def handle(self):
        """Serve a connection, which the client may drop."""
        try:
            super().handle()
        except ConnectionError:
            self.close_connection = True

    def log_message(self, *words):
        """Print nothing."""
