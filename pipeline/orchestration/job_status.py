"""Jobs of stages, their pods and events: pure functions of the API server's objects.

Objects are as the API has them: the client's models drop new fields. Jobs are made of the templates in
k8s/pretrain.yaml: a suspended CronJob, or a TrainingRuntime of Kubeflow Trainer, with an annotation
that lists stages or kinds of stages.

A TrainJob of Kubeflow Trainer v2 makes a JobSet, which makes one Job with the pods: the counts of
pods are that Job's.
"""

import copy
import datetime
import hashlib
import json
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from pipeline.console import formatting
from pipeline.errors import ConfigError, Exit

LISTED = "bert-pretrain/stages"  # annotation of a template
RUN = "bert-pretrain/run"  # label of Jobs and pods: the name of the driver's Job
STAGE = "bert-pretrain/stage"
MADE_OF = "bert-pretrain/template"  # annotation of a Job: its template's name and content
FOR = "bert-pretrain/digest"  # annotation of a Job: the digest of its stages
COMPONENT = "app.kubernetes.io/component"
RECORD = "BERT_RECORD"  # environment of pods: RUN/run.json#STAGE, which the template passes to `run_stage`
DIGEST = "BERT_DIGEST"  # environment of pods: what the record has to be of
GPU = "nvidia.com/gpu"
RUNTIME = "TrainingRuntime"
TRAINER = "trainer.kubeflow.org"

Object = dict[str, Any]
Pods = list[Any]


class Owner(NamedTuple):
    """The driver's own Job, with which the Jobs that it makes are deleted."""

    name: str
    uid: str


class Template(NamedTuple):
    """What Jobs of some stages are made of."""

    item: Object

    @property
    def name(self) -> str:
        """Return its name."""
        return str(self.item["metadata"]["name"])

    @property
    def stages(self) -> list[str]:
        """Return the names and kinds of its stages."""
        return str(self.item["metadata"]["annotations"][LISTED]).split()

    @property
    def is_runtime(self) -> bool:
        """Return whether TrainJobs are made of it."""
        return "jobTemplate" not in self.item["spec"]

    @property
    def job(self) -> Object:
        """Return the spec of the Job with the pods."""
        spec = self.item["spec"]
        holder = spec["template"]["spec"]["replicatedJobs"][0]["template"] if self.is_runtime else spec["jobTemplate"]
        return dict(holder["spec"])

    @property
    def content(self) -> str:
        """Return its name, and what changes with what Jobs are made of."""
        text = json.dumps(self.item["spec"], sort_keys=True)
        return f"{self.name}-{hashlib.sha256(text.encode()).hexdigest()[:10]}"


def templates_of(items: Iterable[Object]) -> list[Template]:
    """Return the templates among objects of the cluster."""
    return [Template(item) for item in items if LISTED in (item["metadata"].get("annotations") or {})]


def choose(templates: Iterable[Template], stage: str, kind: str) -> Template:
    """Return the template that lists a stage, or else its kind.

    Raises:
        ConfigError: none does, or several do.
    """
    for word in (stage, kind):
        matches = [each for each in templates if word in each.stages]
        if len(matches) > 1:
            names = " and ".join(each.name for each in matches)
            raise ConfigError(f"templates {names} both list stage {word}; list it in one annotation {LISTED}")
        if matches:
            return matches[0]
    raise ConfigError(
        f"no template lists stage {stage} or kind {kind}; apply k8s/pretrain.yaml or your overlay, and list it in the "
        f"annotation {LISTED} of a CronJob"
    )


def job_of(template: Template, stage: str, digest: str, record: str, owner: Owner | None) -> Object:
    """Return the Job of a stage, or its TrainJob, whose pods read the run's `record`."""
    labels = {STAGE: stage, COMPONENT: stage} | ({RUN: owner.name} if owner else {})
    environment = [{"name": RECORD, "value": f"{record}#{stage}"}, {"name": DIGEST, "value": digest}]
    source = template.item if template.is_runtime else template.item["spec"]["jobTemplate"]
    metadata: Object = {
        "name": stage,
        "labels": {**(source.get("metadata", {}).get("labels") or {}), **labels},
        "annotations": {MADE_OF: template.content, FOR: digest},
    }
    if owner:
        # Neither `controller`, which Kueue would follow, nor `blockOwnerDeletion`, which needs more rights.
        metadata["ownerReferences"] = [{"apiVersion": "batch/v1", "kind": "Job", "name": owner.name, "uid": owner.uid}]
    if template.is_runtime:
        runtime = {"apiGroup": TRAINER, "kind": RUNTIME, "name": template.name}
        spec: Object = {"runtimeRef": runtime, "trainer": {"env": environment}}
        return {"apiVersion": f"{TRAINER}/v1alpha1", "kind": "TrainJob", "metadata": metadata, "spec": spec}
    spec = copy.deepcopy(template.job)
    spec["template"].setdefault("metadata", {}).setdefault("labels", {}).update(labels)
    for container in spec["template"]["spec"]["containers"]:
        container["env"] = [*(container.get("env") or []), *environment]
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata, "spec": spec}


def describe_job(template: Template, stage: str) -> str:
    """Return one line about the Job that a stage would have."""
    spec = template.job
    limits = spec["template"]["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    most = ", ".join(f"{name} {amount}" for name, amount in limits.items() if name != GPU)
    pods, gpus = spec.get("completions", 1), limits.get(GPU, 0)
    deadline = formatting.duration(spec["activeDeadlineSeconds"]) if "activeDeadlineSeconds" in spec else "none"
    counts = f"pods {pods} x GPUs {gpus}, limits {most or 'none'}"
    return f"{stage:<12}  template {template.name}: {counts}, deadline {deadline}"


PREFLIGHT = "preflight"  # the Job that checks the nodes, which is not a stage of a recipe
PROGRESS = ("waiting", "suspended", "starting", "running", "complete", "failed")
LOST_AFTER = 60.0  # seconds that a pod may take to end before its node is considered lost
LATE = 30.0  # seconds beyond a pod's grace period


def final_condition(job: Object) -> Object | None:
    """Return the condition of a finished Job, "Complete" or "Failed", else None."""
    conditions = job["status"].get("conditions", [])
    return next((c for c in conditions if c["type"] in ("Complete", "Failed") and c["status"] == "True"), None)


def resource(job: Object) -> str:
    """Return the name for kubectl of a Job's resource, or of a TrainJob's."""
    return str(job.get("kind", "Job")).lower()  # a list of Jobs leaves it out


def count_pods(job: Object) -> tuple[int, int]:
    """Return how many pods of a Job run or have run, and of how many."""
    status = job["status"]
    over = status.get("uncountedTerminatedPods", {}).get("succeeded", [])  # neither ready any more nor counted yet
    good = status.get("ready", 0) + status.get("succeeded", 0) + len(over)
    return good, job["spec"].get("completions") or 1


def progress(job: Object | None) -> str:
    """Return one of PROGRESS."""
    if job is None:
        return PROGRESS[0]
    if over := final_condition(job):
        return str(over["type"]).lower()
    if job["spec"].get("suspend"):
        return "suspended"
    return "running" if count_pods(job)[0] else "starting"


def pending_reason(pod: Any) -> str:
    """Return why a pod is pending, or an empty string if the cluster gives no reason."""
    for condition in pod.status.conditions or []:
        if condition.type == "PodScheduled" and condition.status == "False":
            return f"{pod.metadata.name}: {condition.reason}: {condition.message}"
    for container in pod.status.container_statuses or []:
        waiting = container.state.waiting
        if waiting is not None and waiting.reason not in ("ContainerCreating", "PodInitializing"):
            return f"{pod.metadata.name}: {waiting.reason}: {waiting.message or ''}"
    return ""


def lost_node(pod: Any, now: datetime.datetime) -> str:
    """Return instructions for a pod that cannot end because its node does not respond.

    Such a pod is never replaced: only its node could confirm that its processes have ended.
    """
    due = pod.metadata.deletion_timestamp  # includes the grace period
    if due is None or pod.status.phase in ("Succeeded", "Failed"):
        return ""
    deleted_at = due - datetime.timedelta(seconds=pod.metadata.deletion_grace_period_seconds or 0)
    marks = {condition.type: (condition.status, condition.reason) for condition in pod.status.conditions or []}
    tainted = marks.get("DisruptionTarget") == ("True", "DeletionByTaintManager")
    silent = tainted and marks.get("Ready", ("", ""))[0] == "False"
    if (now - deleted_at).total_seconds() < LOST_AFTER or not (silent or (now - due).total_seconds() > LATE):
        return ""
    node = pod.spec.node_name
    return (
        f"{pod.metadata.name} cannot end: node {node} does not respond. If the node is lost: "
        f"kubectl taint node {node} node.kubernetes.io/out-of-service=nodeshutdown:NoExecute"
    )


def describe_pods(job: Object, pods: Pods) -> str:
    """Return how many pods of a Job run, and why one of `pods` does not."""
    (good, total), failed = count_pods(job), job["status"].get("failed")
    now = datetime.datetime.now(datetime.UTC)
    reasons = [*(lost_node(pod, now) for pod in pods), *map(pending_reason, pods)]
    waiting = next(filter(None, reasons), "")
    again = f", {failed} failed and replaced" if failed else ""
    return f"{good} of {total} pods run or have run{again}{waiting and f', {waiting}'}"


def newest_warning(job: Object, pods: Pods, events: list[Any]) -> str:
    """Return the latest warning about a Job, its pods or its Workload of Kueue since its start."""
    names = {pod.metadata.name for pod in pods}
    owners = {job["metadata"]["uid"], job.get("child")}
    workload = re.compile(rf"{resource(job)}-{re.escape(job['metadata']['name'])}-[0-9a-f]{{5}}")
    since = start_time(job)
    warnings = [
        (when, event)
        for event in events
        if (when := event_time(event))
        and when >= since
        and event.reason != "FailedScheduling"  # which repeats a pod's condition
        and (
            event.involved_object.uid in owners
            or (event.involved_object.kind == "Pod" and event.involved_object.name in names)
            or (event.involved_object.kind == "Workload" and workload.fullmatch(event.involved_object.name))
        )
    ]
    if not warnings:
        return ""
    _, event = max(warnings, key=lambda pair: pair[0])
    about = event.involved_object
    return f"{about.kind.lower()} {about.name}: {event.reason}: {' '.join(event.message.split())}"


def strip_suffixes(warning: str) -> str:
    """Return a warning without the random suffixes of pod names, which differ per attempt."""
    return re.sub(r"-[bcdfghjklmnpqrstvwxz2456789]{5}\b", "", warning)


def event_time(event: Any) -> datetime.datetime | None:
    """Return when an event was last seen; the two event APIs fill different fields."""
    series = event.series.last_observed_time if event.series else None
    when: datetime.datetime | None = series or event.last_timestamp or event.event_time
    return when


def start_time(job: Object) -> datetime.datetime:
    """Return when a Job was started, or else made."""
    return datetime.datetime.fromisoformat(job["status"].get("startTime") or job["metadata"]["creationTimestamp"])


def termination_message(pods: Pods) -> tuple[int, str]:
    """Return exit code and last output of the most relevant failed pod: user errors first."""
    ends = [
        container.state.terminated
        for pod in pods
        for container in pod.status.container_statuses or []
        if container.state.terminated is not None and container.state.terminated.exit_code != 0
    ]
    ends.sort(key=lambda end: end.exit_code != Exit.USER)  # stable: newest first among equals
    return (ends[0].exit_code, (ends[0].message or "").strip()) if ends else (0, "")


JOBSET = "jobset.sigs.k8s.io/jobset-name"  # label of a JobSet's Jobs and pods
ANSWER = (10.0, 30.0)  # connect and read timeouts of the API server, in seconds
CONDITIONS = {"Completed": "Complete"}  # names of conditions that differ from a Job's
JOBS = ("batch", "v1", "jobs")
CRONJOBS = ("batch", "v1", "cronjobs")
RUNTIMES = (TRAINER, "v1alpha1", "trainingruntimes")
TRAINJOBS = (TRAINER, "v1alpha1", "trainjobs")


class CustomObjects:
    """Objects of a namespace."""

    def __init__(self, namespace: str):
        from kubernetes import client

        self.api, self.namespace = client.CustomObjectsApi(), namespace

    def find(self, kind: tuple[str, str, str]) -> list[Object]:
        """Return all objects of a kind."""
        group, version, plural = kind
        listed = self.api.list_namespaced_custom_object(group, version, self.namespace, plural, _request_timeout=ANSWER)
        return list(listed["items"])

    def create(self, item: Object) -> None:
        """Create an object; one that is there already stays, and the next look finds it."""
        from kubernetes.client.exceptions import ApiException

        place = (*item["apiVersion"].split("/"), self.namespace, f"{item['kind'].lower()}s")
        try:
            self.api.create_namespaced_custom_object(*place, item, _request_timeout=ANSWER)
        except ApiException as error:
            if error.status != 409:
                raise


def by_name(jobs: list[Object], trainjobs: list[Object]) -> dict[str, Object]:
    """Return Jobs by name, and TrainJobs as Jobs with the counts of those that have their pods."""
    children = {job["metadata"].get("labels", {}).get(JOBSET): job for job in jobs}
    objects = [*jobs, *(convert_trainjob(item, children.get(item["metadata"]["name"], {})) for item in trainjobs)]
    return {job["metadata"]["name"]: {"status": {}, **job} for job in objects}


def convert_trainjob(item: Object, child: Object) -> Object:
    """Return a TrainJob as a Job; `child` is the one that has its pods, or empty."""
    of_trainjob = item.get("status", {}).get("conditions", [])
    conditions = [{**one, "type": CONDITIONS.get(one["type"], one["type"])} for one in of_trainjob]
    spec = {"completions": child.get("spec", {}).get("completions"), **item["spec"]}
    status = {**child.get("status", {}), "conditions": conditions}
    return {**item, "spec": spec, "status": status, "child": child.get("metadata", {}).get("uid")}
