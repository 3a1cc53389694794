"""The driver runs TrainJobs and JobSets with the real controllers of Kubeflow Trainer and JobSet.

Without their webhooks, which need a Service that the API server can reach.
"""

import json
import os
import subprocess
from pathlib import Path

import control_plane
import pytest
import yaml
from api import Object
from control_plane import KUBECTL, ControlPlane
from small import Begin, Driver, Small

from pipeline.common.errors import ConfigError, UserError
from pipeline.orchestration import kubernetes, run_stage

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]

KINDS = (
    "ServiceAccount",
    "Role",
    "RoleBinding",
    "PersistentVolumeClaim",
    "Service",
    "TrainingRuntime",
    "TrainJob",
    "JobSet",
)
GROUPS = {"trainjob": "trainer.kubeflow.org", "jobset": "jobset.x-k8s.io"}
VERSIONS = {"trainjob": "v1alpha1", "jobset": "v1alpha2"}


@pytest.fixture(params=list(GROUPS))
def kind(request: pytest.FixtureRequest) -> str:
    """The resource that training is."""
    return str(request.param)


@pytest.fixture(scope="module")
def kubeflow(control: ControlPlane) -> ControlPlane:
    """The control plane with both controllers."""
    if not (control_plane.KUBEFLOW / "kubeflow-controllers").exists():
        pytest.skip("Kubeflow's controllers are not there: run tests/k8s/build-kubeflow")
    control.start_kubeflow()
    return control


@pytest.fixture
def overlay(root: Path, kind: str) -> list[Object]:
    """The overlay for one node without GPUs."""
    made = subprocess.run(
        [KUBECTL, "kustomize", root / "k8s" / "overlays" / kind], capture_output=True, check=True
    ).stdout
    items: list[Object] = list(yaml.safe_load_all(made))
    specs = [item["spec"] for item in items if item["kind"] == "JobSet"]
    runtimes = [item["spec"] for item in items if item["kind"] == "TrainingRuntime"]
    for spec in specs + [runtime["template"]["spec"] for runtime in runtimes]:
        pod = spec["replicatedJobs"][0]["template"]["spec"]["template"]["spec"]
        del pod["affinity"]
        pod["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return items


def apply(small: Small, items: list[Object]) -> None:
    """Apply what training needs of the overlay."""
    chosen = [item for item in items if item["kind"] in KINDS]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": chosen})
    said = small.kubectl("apply", "--validate=strict", "-f", "-", given=given)
    assert said.count(" created\n") == len(chosen), said


def train(small: Small, kind: str) -> Object:
    """The resource as it is now."""
    place = f"apis/{GROUPS[kind]}/{VERSIONS[kind]}/namespaces/{small.namespace}"
    return small.api.ask("GET", f"{place}/{kind}s/train")


def pods(small: Small) -> list[Object]:
    """Its pods that have not ended."""
    found = small.api.find("pods", small.namespace, {"jobset.sigs.k8s.io/jobset-name": "train"})
    return [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")]


def running(
    begin: Begin, ends: list[tuple[int, str]], overlay: list[Object], kind: str, capsys: pytest.CaptureFixture[str]
) -> tuple[Small, Driver]:
    """Start training by the driver; both pods run until `ends` says how they end."""
    small = begin(lambda job: ends[0] if ends else None)
    apply(small, overlay)
    driver = Driver(capsys, small, small.node("train"), **{f"{kind}s": True})
    driver.wait(lambda story: len(pods(small)) == 2)
    return small, driver


def test_the_server_takes_the_overlay_as_it_is(kubeflow: ControlPlane, begin: Begin, root: Path, kind: str) -> None:
    small = begin(lambda job: (0, ""))
    folder = str(root / "k8s" / "overlays" / kind)
    said = small.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", folder)
    assert f"{kind}.{GROUPS[kind]}/train-512 created (server dry run)" in said, said
    assert "rror" not in said, said


def test_it_is_resumed_and_its_ranks_meet(
    kubeflow: ControlPlane,
    begin: Begin,
    overlay: list[Object],
    kind: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends: list[tuple[int, str]] = []
    small, driver = running(begin, ends, overlay, kind, capsys)
    pod = next(
        pod for pod in pods(small) if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    )
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-node-0-1", "train")
    monkeypatch.setenv("TRAIN_HOSTFILE", "")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")  # the kubelet would, of the annotation
    container = pod["spec"]["containers"][0]
    settings = next(item["data"] for item in overlay if item["kind"] == "ConfigMap")
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("configMapKeyRef")
        if "value" in variable or reference:
            value = variable["value"] if reference is None else settings[reference["key"]]
            monkeypatch.setenv(variable["name"], value)
    words = run_stage.on_many_nodes("train")
    assert words[:5] == ["--no_ssh", "--node_rank", "1", "--master_addr", "train-node-0-0.train"]
    assert container["args"][3] == "train"
    assert os.environ["TRAIN_HOSTFILE"].split()[2] == "train-node-0-1.train"
    ends.append((0, ""))
    story = driver.end()
    assert "train made" in story
    assert "resumed" in story
    assert train(small, kind)["spec"]["suspend"] is False


def test_an_annotation_pauses_it(
    kubeflow: ControlPlane, begin: Begin, overlay: list[Object], kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[tuple[int, str]] = []
    small, driver = running(begin, ends, overlay, kind, capsys)
    small.kubectl("annotate", kind, "train", f"{kubernetes.PAUSED}=true")
    driver.wait(lambda story: f"kubectl annotate {kind} train" in story)
    driver.wait(lambda story: not pods(small))
    small.kubectl("annotate", kind, "train", f"{kubernetes.PAUSED}-")
    driver.wait(lambda story: len(pods(small)) == 2)
    ends.append((0, ""))
    assert "train made" in driver.end()


def test_bad_configuration_ends_it_in_its_own_words(
    kubeflow: ControlPlane, begin: Begin, overlay: list[Object], kind: str
) -> None:
    small = begin(lambda job: (2, json.dumps(ConfigError("at least 1", "steps", 0).record())))
    apply(small, overlay)
    with pytest.raises(UserError, match="stage train: steps=0: at least 1"):
        small.drive(small.node("train"), **{f"{kind}s": True})


def test_the_driver_may_change_no_more(kubeflow: ControlPlane, begin: Begin, overlay: list[Object], kind: str) -> None:
    small = begin(lambda job: (0, ""))
    apply(small, overlay)
    account = f"--as=system:serviceaccount:{small.namespace}:driver"
    for verb, name, answer in (
        ("list", f"{kind}s", "yes"),
        ("patch", f"{kind}s/train-512", "yes"),
        ("patch", f"{kind}s/other", "no"),
        ("patch", "jobs/train", "no"),
    ):
        assert small.kubectl("auth", "can-i", verb, name, account).split()[-1] == answer, name
