"""Training as a custom resource, which the driver reads and changes as it does a Job.

A TrainJob of Kubeflow Trainer v2 (`executor.trainjobs`) makes a JobSet, and a JobSet
(`executor.jobsets`) makes one Job with the pods; the counts of pods are that Job's.
"""

import datetime
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

JOBSET = "jobset.sigs.k8s.io/jobset-name"  # label of a JobSet's Jobs and pods
MERGE = "application/merge-patch+json"  # custom resources have no strategic merge
ANSWER = (10.0, 30.0)  # connect and read timeouts of the API server, in seconds
CONDITIONS = {"Completed": "Complete"}  # names of conditions that differ from a Job's


@dataclass(frozen=True)
class Kind:
    """A kind of custom resource: its names in the API, and how many pods one has."""

    group: str
    version: str
    plural: str
    resource: str  # for kubectl
    pods: Callable[[dict[str, Any]], int]  # of its spec


TRAINJOBS = Kind(
    "trainer.kubeflow.org", "v1alpha1", "trainjobs", "trainjob", lambda spec: spec.get("trainer", {}).get("numNodes", 1)
)
JOBSETS = Kind(
    "jobset.x-k8s.io",
    "v1alpha2",
    "jobsets",
    "jobset",
    lambda spec: spec["replicatedJobs"][0]["template"]["spec"].get("completions", 1),
)


class CustomJob:
    """A custom resource with the attributes of a client's Job that the driver uses."""

    def __init__(self, kind: Kind, item: dict[str, Any], child: Any = None):
        meta, spec = item["metadata"], item["spec"]
        counts = child.status if child is not None and child.status else None
        conditions = [
            SimpleNamespace(
                type=CONDITIONS.get(found["type"], found["type"]),
                status=found["status"],
                reason=found.get("reason", ""),
                message=found.get("message", ""),
                last_transition_time=moment(found["lastTransitionTime"]),
            )
            for found in item.get("status", {}).get("conditions", [])
        ]
        over = [c for c in conditions if c.type == "Complete" and c.status == "True"]
        created = moment(meta["creationTimestamp"])
        self.kind, self.resource = kind, kind.resource
        self.metadata = SimpleNamespace(
            name=meta["name"],
            uid=meta["uid"],
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            creation_timestamp=created,
        )
        self.spec = SimpleNamespace(suspend=spec.get("suspend", False), completions=kind.pods(spec))
        self.status = SimpleNamespace(
            conditions=conditions,
            ready=counts and counts.ready,
            succeeded=counts and counts.succeeded,
            failed=counts and counts.failed,
            start_time=(counts and counts.start_time) or created,
            completion_time=over[0].last_transition_time if over else None,
        )
        self.children = {child.metadata.uid} if child is not None else set()


class CustomJobs:
    """The custom resources of some kinds in a namespace."""

    def __init__(self, namespace: str, *kinds: Kind):
        from kubernetes import client

        self.api, self.batch = client.CustomObjectsApi(), client.BatchV1Api()
        self.namespace, self.kinds = namespace, kinds

    def find(self, selector: str) -> dict[str, CustomJob]:
        """Return those that have these labels, by name."""
        if not self.kinds:
            return {}
        jobs = self.batch.list_namespaced_job(self.namespace, label_selector=JOBSET, _request_timeout=ANSWER)
        children = {job.metadata.labels[JOBSET]: job for job in jobs.items}
        found = {}
        for kind in self.kinds:
            listed = self.api.list_namespaced_custom_object(
                kind.group, kind.version, self.namespace, kind.plural, label_selector=selector, _request_timeout=ANSWER
            )
            for item in listed["items"]:
                name = item["metadata"]["name"]
                found[name] = CustomJob(kind, item, children.get(name))
        return found

    def patch(self, job: CustomJob, patch: dict[str, Any], manager: str) -> CustomJob:
        """Change one and return it."""
        kind = job.kind
        return CustomJob(
            kind,
            self.api.patch_namespaced_custom_object(
                kind.group,
                kind.version,
                self.namespace,
                kind.plural,
                job.metadata.name,
                patch,
                field_manager=manager,
                _content_type=MERGE,
                _request_timeout=ANSWER,
            ),
        )


def moment(text: str) -> datetime.datetime:
    """Return a time as the API writes it."""
    return datetime.datetime.fromisoformat(text)
