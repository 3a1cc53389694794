"""Jobs of stages, made of the templates in k8s/pretrain.yaml: pure functions of the API server's objects.

A template is a suspended CronJob, or a TrainingRuntime of Kubeflow Trainer, with an annotation that
lists stages or kinds of stages. Objects are as the API has them: the client's models drop new fields.
"""

import copy
import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pipeline.common import formatting
from pipeline.common.errors import ConfigError

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


@dataclass(frozen=True)
class Owner:
    """The driver's own Job, with which the Jobs that it makes are deleted."""

    name: str
    uid: str


@dataclass(frozen=True)
class Template:
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
        found: Object = holder["spec"]
        return found

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
        found = [each for each in templates if word in each.stages]
        if len(found) > 1:
            names = " and ".join(each.name for each in found)
            raise ConfigError(f"templates {names} both list stage {word}; list it in one annotation {LISTED}")
        if found:
            return found[0]
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


def described(template: Template, stage: str) -> str:
    """Return one line about the Job that a stage would have."""
    spec = template.job
    limits = spec["template"]["spec"]["containers"][0].get("resources", {}).get("limits") or {}
    most = ", ".join(f"{name} {amount}" for name, amount in limits.items() if name != GPU)
    pods, gpus = spec.get("completions", 1), limits.get(GPU, 0)
    deadline = formatting.duration(spec["activeDeadlineSeconds"]) if "activeDeadlineSeconds" in spec else "none"
    counts = f"pods {pods} x GPUs {gpus}, limits {most or 'none'}"
    return f"{stage:<12}  template {template.name}: {counts}, deadline {deadline}"
