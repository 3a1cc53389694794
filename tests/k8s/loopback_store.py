"""The objects of a small cluster: versions, watches, patches, and who set which part of a spec."""

import copy
import datetime
import threading
import uuid
from collections.abc import Callable, Iterator
from typing import Any

Object = dict[str, Any]
Key = tuple[str, str, str]  # resource, namespace, name

# (group version, kind) by resource.
KINDS = {
    "configmaps": ("v1", "ConfigMap"),
    "events": ("v1", "Event"),
    "namespaces": ("v1", "Namespace"),
    "nodes": ("v1", "Node"),
    "persistentvolumeclaims": ("v1", "PersistentVolumeClaim"),
    "pods": ("v1", "Pod"),
    "secrets": ("v1", "Secret"),
    "serviceaccounts": ("v1", "ServiceAccount"),
    "services": ("v1", "Service"),
    "jobs": ("batch/v1", "Job"),
    "networkpolicies": ("networking.k8s.io/v1", "NetworkPolicy"),
    "poddisruptionbudgets": ("policy/v1", "PodDisruptionBudget"),
    "rolebindings": ("rbac.authorization.k8s.io/v1", "RoleBinding"),
    "roles": ("rbac.authorization.k8s.io/v1", "Role"),
}
# What identifies an element of a list, so that a strategic merge patch can find it.
MERGE_KEYS = ("mountPath", "containerPort", "name", "type", "uid")


class Refused(Exception):
    """An answer other than success: HTTP status, reason, message."""

    def __init__(self, status: int, reason: str, message: str):
        super().__init__(message)
        self.status, self.reason = status, reason


def now() -> str:
    """This second, as the API writes it."""
    return datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch, with lists of named objects merged by name: a strategic merge patch."""
    if isinstance(patch, list) and isinstance(old, list):
        return merged_list(old, patch)
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    if patch.get("$patch") == "replace":
        result = {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif not key.startswith("$"):
            result[key] = merged(result.get(key), value)
    return result


def merged_list(old: list[Any], patch: list[Any]) -> list[Any]:
    """The list with the patch's elements merged in, or replaced where nothing names an element."""
    by = next(
        (k for k in MERGE_KEYS if patch and all(isinstance(p, dict) and k in p for p in patch)),
        None,
    )
    if by is None:
        return patch
    result = {item[by]: item for item in old}
    for item in patch:
        if item.get("$patch") == "delete":
            result.pop(item[by], None)
        else:
            result[item[by]] = merged(result.get(item[by]), item)
    return list(result.values())


def matches(labels: dict[str, str], selector: dict[str, str]) -> bool:
    """Whether all of the selector's labels are there."""
    return all(labels.get(key) == value for key, value in selector.items())


class Store:
    """All objects, in memory; every change gets the next version and is an event."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.objects: dict[Key, Object] = {}
        self.events: list[tuple[int, str, str, Object]] = []  # version, type, resource, object
        self.version = 0

    def get(self, resource: str, namespace: str, name: str) -> Object:
        """A copy; `Refused` 404 where there is none."""
        with self.changed:
            found = self.objects.get((resource, namespace, name))
            if found is None:
                raise Refused(404, "NotFound", f'{resource} "{name}" not found')
            return copy.deepcopy(found)

    def find(
        self, resource: str, namespace: str | None = None, labels: dict[str, str] | None = None
    ) -> list[Object]:
        """Copies of those with all of `labels`, oldest first."""
        with self.changed:
            return [
                copy.deepcopy(item)
                for (kind, space, _), item in self.objects.items()
                if kind == resource
                and namespace in (None, space)
                and matches(item["metadata"].get("labels") or {}, labels or {})
            ]

    def create(self, resource: str, namespace: str, item: Object, manager: str) -> Object:
        """Add an object."""
        with self.changed:
            version, kind = KINDS[resource]
            item = {"apiVersion": version, "kind": kind, **copy.deepcopy(item)}
            metadata = item["metadata"]
            if "name" not in metadata:
                metadata["name"] = metadata["generateName"] + uuid.uuid4().hex[:5]
            key = (resource, namespace, metadata["name"])
            if key in self.objects:
                raise Refused(409, "AlreadyExists", f'{resource} "{key[2]}" already exists')
            metadata |= {"namespace": namespace, "uid": str(uuid.uuid4()), "generation": 1}
            metadata["creationTimestamp"] = now()
            if resource == "jobs":  # the server makes it, and refuses one that is given
                mine = {"batch.kubernetes.io/controller-uid": metadata["uid"]}
                item["spec"]["selector"] = {"matchLabels": mine}
            metadata["managedFields"] = owners({}, item, manager)
            return self._put("ADDED", key, item)

    def change(
        self, resource: str, namespace: str, name: str, change: Callable[[Object], Object | None],
        manager: str = "kube-controller-manager",
    ) -> Object:  # fmt: skip
        """Change an object in place, or into what `change` returns."""
        with self.changed:
            old = self.get(resource, namespace, name)
            new = copy.deepcopy(old)
            new = change(new) or new
            if new == old:
                return old
            if new.get("spec") != old.get("spec"):
                new["metadata"]["generation"] = old["metadata"]["generation"] + 1
            new["metadata"]["managedFields"] = owners(old, new, manager)
            return self._put("MODIFIED", (resource, namespace, name), new)

    def remove(self, resource: str, namespace: str, name: str) -> None:
        """Take an object out, and what it owns: the garbage collector's work."""
        with self.changed:
            item = self.objects.pop((resource, namespace, name), None)
            if item is None:
                return
            self._record("DELETED", resource, item)

    def watch(self, resource: str, version: int, timeout: float) -> Iterator[tuple[str, Object]]:
        """Events of a resource after `version`, as they come; ends after `timeout` seconds."""
        place = 0
        until = datetime.datetime.now().timestamp() + timeout
        while (left := until - datetime.datetime.now().timestamp()) > 0:
            with self.changed:
                fresh = self.events[place:]
                place = len(self.events)
                if not fresh:
                    self.changed.wait(min(left, 1.0))
                    continue
            for number, kind, found, item in fresh:
                if number > version and found == resource:
                    yield kind, item

    def _put(self, event: str, key: Key, item: Object) -> Object:
        self.objects[key] = item
        self._record(event, key[0], item)
        return copy.deepcopy(item)

    def _record(self, event: str, resource: str, item: Object) -> None:
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self.events.append((self.version, event, resource, copy.deepcopy(item)))
        self.changed.notify_all()


def owners(old: Object, new: Object, manager: str) -> list[Object]:
    """`metadata.managedFields` of the spec's first level: the last to change a field has it."""
    held = {
        entry["manager"]: dict(entry["fieldsV1"]["f:spec"])
        for entry in old.get("metadata", {}).get("managedFields", [])
    }
    before, after = old.get("spec") or {}, new.get("spec") or {}
    for key in after:
        if before.get(key) != after[key]:
            for fields in held.values():
                fields.pop(f"f:{key}", None)
            held.setdefault(manager, {})[f"f:{key}"] = {}
    return [
        {
            "manager": name,
            "operation": "Update",
            "fieldsType": "FieldsV1",
            "fieldsV1": {"f:spec": fields},
        }
        for name, fields in held.items()
        if fields
    ]
