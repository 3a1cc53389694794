"""The Job controller of the small cluster, as kubernetes.io documents Jobs:
suspension, Indexed completion, pod failure policy, back-off, deadline and clean-up.
"""

import contextlib
import datetime
import threading
import time
import traceback
import uuid
from typing import Any

from loopback_store import Object, Refused, Store, now

BACKOFF = 0.5  # seconds before a failed pod is made anew, doubling; a real cluster begins with 10
OVER = ("Complete", "Failed")


def condition(item: Object, kind: str) -> bool:
    """Whether a condition of an object is true."""
    found = (item.get("status") or {}).get("conditions") or []
    return any(c["type"] == kind and c["status"] == "True" for c in found)


def set_condition(item: Object, kind: str, status: bool, reason: str = "", words: str = "") -> None:
    """Set one condition in an object's status."""
    conditions = item.setdefault("status", {}).setdefault("conditions", [])
    value = "True" if status else "False"
    if any(c["type"] == kind and c["status"] == value for c in conditions):
        return
    conditions[:] = [c for c in conditions if c["type"] != kind]
    conditions.append(
        {"type": kind, "status": value, "reason": reason, "message": words,
         "lastTransitionTime": now(), "lastProbeTime": now()}
    )  # fmt: skip


def ended(pod: Object) -> bool:
    """Whether a pod has come to its end."""
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def exit_codes(pod: Object) -> dict[str, int]:
    """The exit codes of a pod's containers."""
    return {
        c["name"]: c["state"]["terminated"]["exitCode"]
        for c in pod["status"].get("containerStatuses", [])
        if "terminated" in c["state"]
    }


def verdict(job: Object, pod: Object) -> tuple[str, str]:
    """What `podFailurePolicy` says of a failed pod: the action of the first rule that fits."""
    rules = job["spec"].get("podFailurePolicy", {}).get("rules", [])
    for index, rule in enumerate(rules):
        on = rule.get("onExitCodes")
        if on:
            for name, code in exit_codes(pod).items():
                inside = code in on["values"]
                if (
                    on.get("containerName") in (None, name)
                    and code != 0
                    and inside == (on["operator"] == "In")
                ):
                    return rule["action"], (
                        f"Container {name} for pod {pod['metadata']['namespace']}/"
                        f"{pod['metadata']['name']} failed with exit code {code} matching "
                        f"{rule['action']} rule at index {index}"
                    )
        elif any(condition(pod, c["type"]) for c in rule.get("onPodConditions", [])):
            return rule["action"], f"rule at index {index}"
    return "Count", ""


class JobController(threading.Thread):
    """Makes Jobs so, until stopped."""

    def __init__(self, store: Store):
        super().__init__(daemon=True)
        self.store = store
        self.stopping = threading.Event()
        self.error = ""  # the trace that ended this thread
        self.counted: set[str] = set()  # uids of ended pods that are in a Job's status
        self.not_before: dict[str, float] = {}  # Job uid -> when a pod may be made again

    def run(self) -> None:
        """Look at everything, often."""
        while not self.stopping.wait(0.1):
            try:
                for job in self.store.find("jobs"):
                    with contextlib.suppress(Refused):  # deleted meanwhile
                        self.sync(job)
                self.collect()
            except Exception:
                self.error = traceback.format_exc()
                raise

    def collect(self) -> None:
        """Delete the pods of Jobs that are gone, and deleted pods that have been counted."""
        alive = {job["metadata"]["uid"] for job in self.store.find("jobs")}
        for pod in self.store.find("pods"):
            metadata = pod["metadata"]
            orphan = metadata["ownerReferences"][0]["uid"] not in alive
            if orphan:
                self.delete(pod)
            counted = orphan or metadata["uid"] in self.counted
            if counted and ended(pod) and "deletionTimestamp" in metadata:
                self.store.remove("pods", metadata["namespace"], metadata["name"])

    def delete(self, pod: Object) -> None:
        """Have a pod ended, with its grace."""
        grace = pod["spec"].get("terminationGracePeriodSeconds", 30)

        def mark(new: Object) -> None:
            new["metadata"].setdefault("deletionTimestamp", now())
            new["metadata"].setdefault("deletionGracePeriodSeconds", grace)

        self.store.change("pods", pod["metadata"]["namespace"], pod["metadata"]["name"], mark)

    def sync(self, job: Object) -> None:
        """Take one Job one step further."""
        metadata, spec = job["metadata"], job["spec"]
        pods = [
            pod
            for pod in self.store.find("pods", metadata["namespace"])
            if pod["metadata"]["ownerReferences"][0]["uid"] == metadata["uid"]
        ]
        if any(condition(job, kind) for kind in OVER):
            self.clean_up(job)
            return
        failure = self.count(job, pods) or failing(job)
        live = [pod for pod in pods if not ended(pod)]
        status = job.setdefault("status", {})
        if failure is None and spec.get("backoffLimit", 6) < status.get("failed", 0):
            failure = ("BackoffLimitExceeded", "Job has reached the specified backoff limit")
        began = status.get("startTime")
        if failure is None and began and age(began) > spec.get("activeDeadlineSeconds", 1e9):
            failure = ("DeadlineExceeded", "Job was active longer than specified deadline")
        if failure is not None:
            set_condition(job, "FailureTarget", True, *failure)
            for pod in live:
                self.delete(pod)
            if not live:
                set_condition(job, "Failed", True, *failure)
        elif spec.get("suspend"):
            for pod in live:
                self.delete(pod)
            status.pop("startTime", None)
            set_condition(job, "Suspended", True, "JobSuspended", "Job suspended")
        elif status.get("succeeded", 0) >= spec.get("completions", 1):
            status["completionTime"] = now()
            set_condition(job, "Complete", True, "CompletionsReached", "Reached expected number")
        else:
            if "startTime" not in status:
                status["startTime"] = now()
                set_condition(job, "Suspended", False, "JobResumed", "Job resumed")
            self.make_pods(job, pods)
        status["active"] = len(live)
        status["ready"] = sum(condition(pod, "Ready") for pod in live)
        self.store.change(
            "jobs", metadata["namespace"], metadata["name"],
            lambda new: new.update(status=status),
        )  # fmt: skip

    def count(self, job: Object, pods: list[Object]) -> tuple[str, str] | None:
        """Account for pods that ended; the reason where that fails the Job."""
        status = job.setdefault("status", {})
        for pod in pods:
            metadata = pod["metadata"]
            if not ended(pod) or metadata["uid"] in self.counted:
                continue
            self.counted.add(metadata["uid"])
            if pod["status"]["phase"] == "Succeeded":
                status["succeeded"] = status.get("succeeded", 0) + 1
                continue
            if job["spec"].get("suspend"):
                continue
            action, why = verdict(job, pod)
            if action == "FailJob":
                return "PodFailurePolicy", why
            if action == "Count":
                status["failed"] = status.get("failed", 0) + 1
                wait = BACKOFF * 2 ** min(status["failed"] - 1, 4)
                self.not_before[job["metadata"]["uid"]] = time.monotonic() + wait
        return None

    def make_pods(self, job: Object, pods: list[Object]) -> None:
        """Make the pods that are missing: of an Indexed Job one an index that has none."""
        spec, uid = job["spec"], job["metadata"]["uid"]
        if time.monotonic() < self.not_before.get(uid, 0.0):
            return
        failed_only = spec.get("podReplacementPolicy") == "Failed"
        taken = {
            pod["metadata"]["annotations"].get("batch.kubernetes.io/job-completion-index", "0")
            for pod in pods
            if pod["status"]["phase"] == "Succeeded"
            or (not ended(pod) and (failed_only or "deletionTimestamp" not in pod["metadata"]))
        }
        running = sum(not ended(pod) for pod in pods)
        for index in range(spec.get("completions", 1)):
            if str(index) not in taken and running < spec.get("parallelism", 1):
                running += 1
                made = pod_of(job, index)
                self.store.create("pods", job["metadata"]["namespace"], made, "job-controller")

    def clean_up(self, job: Object) -> None:
        """Remove a Job whose time after its end is over."""
        keep = job["spec"].get("ttlSecondsAfterFinished")
        over = next(c for c in job["status"]["conditions"] if c["type"] in OVER)
        if keep is not None and age(over["lastTransitionTime"]) > keep:
            self.store.remove("jobs", job["metadata"]["namespace"], job["metadata"]["name"])


def failing(job: Object) -> tuple[str, str] | None:
    """Why a Job is about to fail, while its last pods end."""
    for found in job.get("status", {}).get("conditions", []):
        if found["type"] == "FailureTarget":
            return found["reason"], found["message"]
    return None


def age(stamp: str) -> float:
    """Seconds since a time of the API."""
    then = datetime.datetime.fromisoformat(stamp)
    return (datetime.datetime.now(datetime.UTC) - then).total_seconds()


def pod_of(job: Object, index: int) -> Object:
    """A pod of a Job, with what the controller adds to the template."""
    metadata, template = job["metadata"], job["spec"]["template"]
    name = metadata["name"]
    indexed = job["spec"].get("completionMode") == "Indexed"
    labels = {
        **template.get("metadata", {}).get("labels", {}),
        "batch.kubernetes.io/job-name": name,
        "batch.kubernetes.io/controller-uid": metadata["uid"],
        "job-name": name,
    }
    spec: dict[str, Any] = {**template["spec"]}
    annotations = {}
    if indexed:
        key = "batch.kubernetes.io/job-completion-index"
        labels[key] = annotations[key] = str(index)
        spec["hostname"] = f"{name}-{index}"
        reference = {"fieldRef": {"fieldPath": f"metadata.labels['{key}']"}}
        more = {"name": "JOB_COMPLETION_INDEX", "valueFrom": reference}
        spec["containers"] = [
            {**container, "env": [*container.get("env", []), more]}
            for container in spec["containers"]
        ]
    suffix = uuid.uuid4().hex[:5]
    return {
        "metadata": {
            "name": f"{name}-{index}-{suffix}" if indexed else f"{name}-{suffix}",
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [
                {"apiVersion": "batch/v1", "kind": "Job", "name": name, "uid": metadata["uid"],
                 "controller": True}
            ],
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }  # fmt: skip
