"""TrainJobs of Kubeflow Trainer v2 as the driver reads and changes Jobs (`executor.trainjobs`).

A TrainJob makes a JobSet, which makes one Job with the pods; the counts of pods are that Job's.
"""

import datetime
from types import SimpleNamespace
from typing import Any

GROUP, VERSION, PLURAL = "trainer.kubeflow.org", "v1alpha1", "trainjobs"
JOBSET = "jobset.sigs.k8s.io/jobset-name"  # label of a JobSet's Jobs and pods
MERGE = "application/merge-patch+json"  # custom resources have no strategic merge
ANSWER = (10.0, 30.0)  # connect and read timeouts of the API server, in seconds


class TrainJob:
    """A TrainJob with the attributes of a client's Job that the driver uses."""

    resource = "trainjob"  # its name for kubectl

    def __init__(self, item: dict[str, Any], child: Any = None):
        meta, spec = item["metadata"], item["spec"]
        counts = child.status if child is not None and child.status else None
        conditions = [
            SimpleNamespace(
                type=found["type"],
                status=found["status"],
                reason=found.get("reason", ""),
                message=found.get("message", ""),
                last_transition_time=moment(found["lastTransitionTime"]),
            )
            for found in item.get("status", {}).get("conditions", [])
        ]
        over = [c for c in conditions if c.type == "Complete" and c.status == "True"]
        created = moment(meta["creationTimestamp"])
        self.metadata = SimpleNamespace(
            name=meta["name"],
            uid=meta["uid"],
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            creation_timestamp=created,
        )
        self.spec = SimpleNamespace(
            suspend=spec.get("suspend", False),
            completions=spec.get("trainer", {}).get("numNodes", 1),
        )
        self.status = SimpleNamespace(
            conditions=conditions,
            ready=counts and counts.ready,
            succeeded=counts and counts.succeeded,
            failed=counts and counts.failed,
            start_time=(counts and counts.start_time) or created,
            completion_time=over[0].last_transition_time if over else None,
        )
        self.children = {child.metadata.uid} if child is not None else set()


class TrainJobs:
    """The TrainJobs of a namespace."""

    def __init__(self, namespace: str):
        from kubernetes import client

        self.api, self.batch, self.namespace = (
            client.CustomObjectsApi(),
            client.BatchV1Api(),
            namespace,
        )

    def find(self, selector: str) -> dict[str, TrainJob]:
        """Return the TrainJobs that have these labels, by name."""
        found = self.api.list_namespaced_custom_object(
            GROUP, VERSION, self.namespace, PLURAL, label_selector=selector, _request_timeout=ANSWER
        )
        jobs = self.batch.list_namespaced_job(
            self.namespace, label_selector=JOBSET, _request_timeout=ANSWER
        )
        children = {job.metadata.labels[JOBSET]: job for job in jobs.items}
        names = {item["metadata"]["name"]: item for item in found["items"]}
        return {name: TrainJob(item, children.get(name)) for name, item in names.items()}

    def patch(self, name: str, patch: dict[str, Any], manager: str) -> TrainJob:
        """Change a TrainJob and return it."""
        return TrainJob(
            self.api.patch_namespaced_custom_object(
                GROUP, VERSION, self.namespace, PLURAL, name, patch,
                field_manager=manager, _content_type=MERGE, _request_timeout=ANSWER,
            )
        )  # fmt: skip


def moment(text: str) -> datetime.datetime:
    """Return a time as the API writes it."""
    return datetime.datetime.fromisoformat(text)
