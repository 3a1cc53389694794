"""The part of the hub that takes models: repositories, branches, large files and commits."""

import base64
import hashlib
import json
import re


class Models:
    """Repositories of models by name: their branches, each with the bytes of files by path."""

    def __init__(self):
        self.repositories: dict[str, dict[str, dict[str, bytes]]] = {}
        self.objects: dict[str, bytes] = {}  # large files by sha256
        self.commits = 0

    def answer(self, method, path, body, url):
        """Answer a request with a status and JSON; None: it is not about models."""
        if path == "/api/repos/create":
            fields = json.loads(body)
            name = f"{fields.get('organization', 'me')}/{fields['name']}"
            status = 409 if name in self.repositories else 200
            self.repositories.setdefault(name, {"main": {".gitattributes": b""}})
            return status, {"url": f"{url}/{name}"}
        if path == "/api/validate-yaml":
            return 200, {"errors": [], "warnings": []}
        if match := re.fullmatch(r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch", path):
            return 200, self._batch(json.loads(body)["objects"], url)
        if match := re.fullmatch(r"/lfs/([0-9a-f]{64})", path):
            if hashlib.sha256(body).hexdigest() != match[1]:
                return 400, {}
            self.objects[match[1]] = body
            return 200, {}
        if match := re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/([^/]+)/(.+))?", path):
            if match[1] not in self.repositories:
                return 404, {}
            return self._of(self.repositories[match[1]], match[2], match[3] or "main", body)
        return None

    def _of(self, branches, what, branch, body):
        if what == "branch":
            if branch in branches:
                return 409, {}
            branches[branch] = dict(branches["main"])
            return 201, {}
        if branch not in branches:
            return 404, {}
        files = branches[branch]
        if what == "preupload":
            return 200, {"files": [self._mode(f["path"], files) for f in json.loads(body)["files"]]}
        if what == "tree":
            return 200, [
                {"type": "file", "oid": _blob(data), "size": len(data), "path": name} for name, data in files.items()
            ]
        if what == "commit":
            self._commit(files, body)
            return 200, {"success": True, "commitOid": "c" * 40, "commitUrl": f"commit/{branch}"}
        return 200, {"id": "me/model", "sha": "c" * 40, "siblings": []}

    def _mode(self, path, files):
        large = path.endswith(".safetensors")
        known = files.get(path)
        oid = None
        if known is not None:
            oid = hashlib.sha256(known).hexdigest() if large else _blob(known)
        mode = "lfs" if large else "regular"
        return {"path": path, "uploadMode": mode, "shouldIgnore": False, "oid": oid}

    def _batch(self, wanted, url):
        objects = []
        for each in wanted:
            one = {"oid": each["oid"], "size": each["size"]}
            if each["oid"] not in self.objects:
                one["actions"] = {"upload": {"href": f"{url}/lfs/{each['oid']}"}}
            objects.append(one)
        return {"transfer": "basic", "objects": objects}

    def _commit(self, files, body):
        self.commits += 1
        for line in map(json.loads, body.decode().splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]


def _blob(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
