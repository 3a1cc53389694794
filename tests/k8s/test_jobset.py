"""The overlay `jobset` has the pods of the Jobs that it replaces, and one place for each number."""

import copy
import json
from pathlib import Path

import pytest
from overlays import Object, kustomize, of, resized
from rules import faults

STAGES = ("train", "train-512", "train-8192", "train-decay")


@pytest.fixture(scope="module")
def items(root: Path) -> list[Object]:
    """The objects of the overlay."""
    return kustomize(root / "k8s" / "overlays" / "jobset")


def job_of(item: Object) -> Object:
    """Return the spec of a JobSet's only Job."""
    (replicated,) = item["spec"]["replicatedJobs"]
    assert replicated["replicas"] == 1
    spec: Object = replicated["template"]["spec"]
    return spec


def test_the_other_objects_have_no_fault(items: list[Object]) -> None:
    assert faults([item for item in items if item["kind"] != "JobSet"]) == []
    assert not {*STAGES} & of(items, "Job").keys()
    assert "executor.jobsets=true" in json.dumps(of(items, "Job")["driver"])


@pytest.mark.parametrize("stage", STAGES)
def test_its_job_is_that_of_the_stage(root: Path, items: list[Object], stage: str) -> None:
    """But for how the ranks find the first: JobSet names the pods, and makes their Service."""
    ours = of(kustomize(root / "k8s" / "base"), "Job")[stage]["spec"]
    made = of(items, "JobSet")[stage]
    theirs = copy.deepcopy(job_of(made))
    assert made["spec"]["suspend"] is ours.pop("suspend") is True
    assert made["spec"]["ttlSecondsAfterFinished"] == ours.pop("ttlSecondsAfterFinished")
    assert ours["template"]["spec"].pop("subdomain") == "train"
    own, other = (spec["template"]["spec"]["containers"][0] for spec in (ours, theirs))
    assert other.pop("image") == f"registry.example.com/{own.pop('image')}"
    own["env"].remove({"name": "SERVICE", "value": "train"})
    other["env"].remove({"name": "PET_MASTER_ADDR", "value": f"{stage}-node-0-0.{stage}"})
    assert theirs == ours


def test_nodes_and_gpus_are_named_once(root: Path, tmp_path: Path) -> None:
    items = resized(root, tmp_path, "jobset")
    for item in of(items, "JobSet").values():
        spec = job_of(item)
        assert (spec["completions"], spec["parallelism"]) == (5, 5)
        assert json.dumps(spec).count('"nvidia.com/gpu": "4"') == 2
    assert faults([item for item in items if item["kind"] != "JobSet"]) == []
