"""The overlay `trainjob` is what Kubeflow Trainer's own models take, with the pods of the template."""

import copy
import json

import kubeflow_trainer_api.models as kubeflow
import pytest

from pipeline.orchestration import job_status
from tests.k8s.overlays import extended, kustomize, of
from tests.k8s.rules import faults

MODELS = {"TrainJob": kubeflow.TrainerV1alpha1TrainJob, "TrainingRuntime": kubeflow.TrainerV1alpha1TrainingRuntime}
LEFT_TO_IT = {"Service/train: selects no pods", "PodDisruptionBudget/train: selects no pods"}  # before a TrainJob


@pytest.fixture(scope="module")
def items(root):
    """The objects of the overlay."""
    return kustomize(root / "k8s" / "overlays" / "trainjob")


def template(items):
    """The template of training."""
    return job_status.choose(job_status.templates_of(items), "train-512", "train")


def is_taken(item):
    """Whether the model knows all fields: it drops those that it does not know."""
    found = MODELS[item["kind"]].from_dict(copy.deepcopy(item))
    return found is not None and within(item, found.to_dict())


def within(part, whole):
    """Whether all values are there; a model adds defaults."""
    if isinstance(part, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        pairs = zip(part, whole, strict=False)
        return len(part) == len(whole) and all(within(*pair) for pair in pairs)
    return bool(part == whole)


def test_its_models_take_all_fields(items):
    made = job_status.job_of(template(items), "train-512", "0a", "/data/wiki/run.json", None)
    assert made["kind"] == "TrainJob"
    assert all(map(is_taken, (made, template(items).item)))


def test_the_other_objects_have_no_fault(items):
    others = [fault for fault in faults(items) if "trainjobs" not in fault and "trainingruntimes" not in fault]
    assert {*others} == LEFT_TO_IT
    assert "train" not in of(items, "CronJob"), "it is copied, and not applied"
    granted = {(kind, *rule["verbs"]) for rule in of(items, "Role")["driver"]["rules"] for kind in rule["resources"]}
    assert {("trainjobs", "list", "create"), ("trainingruntimes", "list")} <= granted


def test_its_pods_are_those_of_the_template(root, items):
    """But for what Trainer sets itself: names, ranks and addresses."""
    ours = copy.deepcopy(template(kustomize(root / "k8s" / "overlays" / "site")).job)
    theirs = template(items).job
    text = json.dumps(ours).replace('"containerName": "stage"', '"containerName": "node"')
    ours = json.loads(text)
    del ours["ttlSecondsAfterFinished"]
    assert ours["template"]["spec"].pop("subdomain") == "train"
    container = ours["template"]["spec"]["containers"][0]
    container["name"] = "node"
    container["env"] = [variable for variable in container["env"] if variable["name"] != "BERT_SERVICE"]
    assert theirs == ours


def test_all_that_an_overlay_sets_reaches_the_runtime(root, tmp_path):
    extended(root, tmp_path, "site", "small-nodes", "kueue", "rdma")
    site = tmp_path / "k8s" / "overlays" / "site" / "kustomization.yaml"
    site.write_text(site.read_text().replace("nodes=4", "nodes=5").replace("gpus=8", "gpus=1"))
    runtime = template(kustomize(tmp_path / "k8s" / "overlays" / "trainjob"))
    resources = runtime.job["template"]["spec"]["containers"][0]["resources"]
    assert runtime.item["spec"]["mlPolicy"]["numNodes"] == runtime.job["completions"] == 5
    assert resources["requests"]["cpu"] == "3"
    assert resources["limits"]["nvidia.com/gpu"] == resources["limits"]["rdma/hca"] == "1"
    made = job_status.job_of(runtime, "train", "0a", "/data/wiki/run.json", None)
    assert made["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "bert-pretrain"
