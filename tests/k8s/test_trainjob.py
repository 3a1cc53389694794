"""The overlay `trainjob` is what Kubeflow Trainer's own models take, with the pods of the Jobs."""

import copy
import json
from pathlib import Path
from typing import Any

import kubeflow_trainer_api.models as kubeflow
import pytest
from overlays import Object, kustomize, of, resized
from rules import faults

STAGES = ("train", "train-512", "train-8192", "train-decay")

MODELS = {"TrainJob": kubeflow.TrainerV1alpha1TrainJob, "TrainingRuntime": kubeflow.TrainerV1alpha1TrainingRuntime}


@pytest.fixture(scope="module")
def items(root: Path) -> list[Object]:
    """The objects of the overlay."""
    return kustomize(root / "k8s" / "overlays" / "trainjob")


def is_taken(item: Object) -> bool:
    """Whether the model knows all fields: it drops those that it does not know."""
    found = MODELS[item["kind"]].from_dict(copy.deepcopy(item))
    return found is not None and within(item, found.to_dict())


def within(part: Any, whole: Any) -> bool:
    """Whether all values are there; a model adds defaults."""
    if isinstance(part, dict):
        return all(key in whole and within(value, whole[key]) for key, value in part.items())
    if isinstance(part, list):
        pairs = zip(part, whole, strict=False)
        return len(part) == len(whole) and all(within(*pair) for pair in pairs)
    return bool(part == whole)


def test_its_models_take_all_fields(items: list[Object]) -> None:
    own = [item for item in items if item["kind"] in MODELS]
    assert len(own) == 1 + len(STAGES)
    for item in own:
        assert is_taken(item), item["metadata"]["name"]


@pytest.mark.parametrize("path", ["spec", "spec.template.spec", "spec.template.spec.replicatedJobs.0.template.spec"])
def test_an_unknown_field_is_found(items: list[Object], path: str) -> None:
    runtime = copy.deepcopy(of(items, "TrainingRuntime")["bert-pretrain"])
    place: Any = runtime
    for part in path.split("."):
        place = place[int(part) if part.isdecimal() else part]
    place["suspended"] = True
    assert not is_taken(runtime)


def test_the_other_objects_have_no_fault(items: list[Object]) -> None:
    assert faults([item for item in items if item["kind"] not in MODELS]) == []
    assert not {*STAGES} & of(items, "Job").keys()
    assert "executor.trainjobs=true" in json.dumps(of(items, "Job")["driver"])


@pytest.mark.parametrize("stage", STAGES)
def test_its_pods_are_those_of_the_stages_job(root: Path, items: list[Object], stage: str) -> None:
    """But for what Trainer sets itself: names, ranks and addresses."""
    job = of(kustomize(root / "k8s" / "overlays" / "site"), "Job")[stage]["spec"]
    runtime = of(items, "TrainingRuntime")["bert-pretrain"]["spec"]["template"]["spec"]
    theirs = copy.deepcopy(runtime["replicatedJobs"][0]["template"]["spec"])
    trainer = of(items, "TrainJob")[stage]["spec"]["trainer"]
    text = json.dumps(job).replace('"containerName": "stage"', '"containerName": "node"')
    ours = json.loads(text)
    for key in ("suspend", "completions", "parallelism", "ttlSecondsAfterFinished"):
        del ours[key]
    pods = ours["template"]["spec"], theirs["template"]["spec"]
    assert pods[0].pop("subdomain") == "train"
    containers = pods[0]["containers"][0], pods[1]["containers"][0]
    assert containers[0].pop("args") == trainer["args"]
    assert [container.pop("name") for container in containers] == ["stage", "node"]
    known = ("SERVICE", "NODES", "GPUS")
    containers[0]["env"] = [v for v in containers[0]["env"] if v["name"] not in known]
    del ours["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
    assert theirs == ours


def test_nodes_and_gpus_are_named_once(root: Path, tmp_path: Path) -> None:
    items = resized(root, tmp_path, "trainjob")
    for job in of(items, "TrainJob").values():
        trainer = job["spec"]["trainer"]
        assert (trainer["numNodes"], trainer["numProcPerNode"]) == (5, 4)
    runtime = json.dumps(of(items, "TrainingRuntime"))
    assert runtime.count('"nvidia.com/gpu": "4"') == 2
    assert faults([item for item in items if item["kind"] not in MODELS]) == []
