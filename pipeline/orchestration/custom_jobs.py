"""Objects of the cluster that the client library has no models of, or whose models drop new fields.

A TrainJob of Kubeflow Trainer v2 makes a JobSet, which makes one Job with the pods: the counts of
pods are that Job's.
"""

import datetime
from types import SimpleNamespace
from typing import Any

JOBSET = "jobset.sigs.k8s.io/jobset-name"  # label of a JobSet's Jobs and pods
ANSWER = (10.0, 30.0)  # connect and read timeouts of the API server, in seconds
CONDITIONS = {"Completed": "Complete"}  # names of conditions that differ from a Job's
CRONJOBS = ("batch", "v1", "cronjobs")
RUNTIMES = ("trainer.kubeflow.org", "v1alpha1", "trainingruntimes")
TRAINJOBS = ("trainer.kubeflow.org", "v1alpha1", "trainjobs")


class TrainJob:
    """A TrainJob with the attributes of a client's Job that the driver uses."""

    resource = "trainjob"  # for kubectl

    def __init__(self, item: dict[str, Any], child: Any = None):
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
        self.metadata = SimpleNamespace(
            name=meta["name"],
            uid=meta["uid"],
            labels=meta.get("labels") or {},
            annotations=meta.get("annotations") or {},
            creation_timestamp=created,
            deletion_timestamp=meta.get("deletionTimestamp"),
            owner_references=[SimpleNamespace(uid=owner["uid"]) for owner in meta.get("ownerReferences") or []],
        )
        self.spec = SimpleNamespace(
            suspend=spec.get("suspend", False), completions=child.spec.completions if child is not None else 1
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


class CustomObjects:
    """Objects of a namespace as the API has them."""

    def __init__(self, namespace: str):
        from kubernetes import client

        self.api, self.namespace = client.CustomObjectsApi(), namespace

    def find(self, kind: tuple[str, str, str]) -> list[dict[str, Any]]:
        """Return all objects of a kind."""
        group, version, plural = kind
        listed = self.api.list_namespaced_custom_object(group, version, self.namespace, plural, _request_timeout=ANSWER)
        found: list[dict[str, Any]] = listed["items"]
        return found

    def create(self, item: dict[str, Any]) -> None:
        """Create an object; one that is there already stays, and the next look finds it."""
        from kubernetes.client.exceptions import ApiException

        place = (*item["apiVersion"].split("/"), self.namespace, f"{item['kind'].lower()}s")
        try:
            self.api.create_namespaced_custom_object(*place, item, _request_timeout=ANSWER)
        except ApiException as error:
            if error.status != 409:
                raise


def trainjobs(items: list[dict[str, Any]], jobs: list[Any]) -> dict[str, TrainJob]:
    """Return TrainJobs by name, with those of the namespace's Jobs that have their pods."""
    children = {(job.metadata.labels or {}).get(JOBSET): job for job in jobs}
    return {item["metadata"]["name"]: TrainJob(item, children.get(item["metadata"]["name"])) for item in items}


def moment(text: str) -> datetime.datetime:
    """Return a time as the API writes it."""
    return datetime.datetime.fromisoformat(text)
