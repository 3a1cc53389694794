"""The objects of a manifest, found by what refers to them."""

import re
from collections.abc import Iterator
from typing import Any

from pipeline.orchestration import job_status

Object = dict[str, Any]

SUFFIXES = {
    "": 1.0,
    "m": 1e-3,
    "k": 1e3,
    "M": 1e6,
    "G": 1e9,
    "T": 1e12,
    "Ki": 2.0**10,
    "Mi": 2.0**20,
    "Gi": 2.0**30,
    "Ti": 2.0**40,
}


def quantity(text: str | int | float) -> float | None:
    """A resource quantity in units (bytes, cores); None where it is none."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([a-zA-Z]*)", str(text))
    if found is None or found[2] not in SUFFIXES:
        return None
    return float(found[1]) * SUFFIXES[found[2]]


def number(text: str | int) -> int | str:
    """A whole number, as one."""
    return int(text) if str(text).isdecimal() else str(text)


def unknown(holder: Object, key: str, choices: tuple[str, ...]) -> Iterator[str]:
    """A value that the API does not have; the published schemas say only that it is text."""
    if key in holder and holder[key] not in choices:
        yield f"{key}: {holder[key]}: one of {', '.join(choices)}"


class World:
    """All objects that are applied together, and the Jobs that the driver makes of the templates."""

    def __init__(self, items: list[Object]):
        self.given = items
        self.templates = job_status.templates_of(items)
        self.made = [
            job_status.job_of(template, stage, "0a", "/data/run/run.json", job_status.Owner("driver", "7"))
            for template in self.templates
            if not template.is_runtime
            for stage in template.stages
        ]
        self.items = [*items, *self.made]

    def all(self, kind: str) -> list[Object]:
        """Those of a kind."""
        return [item for item in self.items if item["kind"] == kind]

    def get(self, kind: str, name: str) -> Object | None:
        """The one of this name."""
        return next((i for i in self.all(kind) if i["metadata"]["name"] == name), None)

    def settings(self) -> dict[str, str]:
        """What the user sets."""
        found = self.get("ConfigMap", "pretrain")
        return found["data"] if found else {}

    def selected(self, labels: dict[str, str]) -> list[Object]:
        """The Jobs whose pods have all of these labels."""
        return [
            job
            for job in self.all("Job")
            if labels.items() <= (job["spec"]["template"]["metadata"].get("labels") or {}).items()
        ]

    def mounts(self, job: Object) -> list[Object]:
        """Where volumes are mounted in a Job's pods."""
        containers = job["spec"]["template"]["spec"]["containers"]
        return [mount for container in containers for mount in container.get("volumeMounts", [])]

    def environment(self, container: Object) -> dict[str, str]:
        """The variables of a container whose values are known before it runs."""
        found = {}
        for entry in container.get("env", []):
            reference = (entry.get("valueFrom") or {}).get("configMapKeyRef")
            if "value" in entry:
                found[entry["name"]] = entry["value"]
            elif reference:
                held = self.get("ConfigMap", reference["name"])
                found[entry["name"]] = ((held or {}).get("data") or {}).get(reference["key"], "")
        return found
