"""The driver runs TrainJobs with the real controllers of Kubeflow Trainer and JobSet.

Without their webhooks, which need a Service that the API server can reach.
"""

import json
import subprocess
from pathlib import Path

import control_plane
import pytest
import yaml
from api import Object
from control_plane import KUBECTL, ControlPlane
from small import Begin, Driver, Small

from pipeline.common.errors import UserError
from pipeline.orchestration import kubernetes, run_stage

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]

KINDS = ("ServiceAccount", "Role", "RoleBinding", "PersistentVolumeClaim", "Service",
         "TrainingRuntime", "TrainJob")  # fmt: skip
API = "apis/trainer.kubeflow.org/v1alpha1/namespaces"


@pytest.fixture(scope="module")
def kubeflow(control: ControlPlane) -> ControlPlane:
    """The control plane with both controllers."""
    if not (control_plane.KUBEFLOW / "kubeflow-controllers").exists():
        pytest.skip("Kubeflow's controllers are not there: run tests/k8s/build-kubeflow")
    control.start_kubeflow()
    return control


def kubectl(small: Small, *words: str, given: str = "") -> str:
    """What kubectl prints."""
    config = small.control.administrator
    done = subprocess.run(
        [KUBECTL, f"--kubeconfig={config}", f"--cache-dir={small.folder}/cache",
         f"--namespace={small.namespace}", *words],
        input=given, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


@pytest.fixture
def overlay(root: Path) -> list[Object]:
    """The overlay for one node without GPUs."""
    made = subprocess.run(
        [KUBECTL, "kustomize", root / "k8s" / "overlays" / "trainjob"],
        capture_output=True, check=True,
    ).stdout  # fmt: skip
    items: list[Object] = list(yaml.safe_load_all(made))
    runtime = next(item for item in items if item["kind"] == "TrainingRuntime")
    job = runtime["spec"]["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    del job["template"]["spec"]["affinity"]
    job["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return items


def apply(small: Small, items: list[Object]) -> None:
    """Apply what training needs of the overlay."""
    chosen = [item for item in items if item["kind"] in KINDS]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": chosen})
    said = kubectl(small, "apply", "--validate=strict", "-f", "-", given=given)
    assert said.count(" created\n") == len(chosen), said


def train(small: Small) -> Object:
    """The TrainJob as it is now."""
    return small.api.ask("GET", f"{API}/{small.namespace}/trainjobs/train")


def pods(small: Small) -> list[Object]:
    """The pods of the TrainJob that have not ended."""
    found = small.api.find("pods", small.namespace, {"jobset.sigs.k8s.io/jobset-name": "train"})
    return [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")]


def test_the_server_takes_the_overlay_as_it_is(
    kubeflow: ControlPlane, begin: Begin, root: Path
) -> None:
    small = begin(lambda job: (0, ""))
    folder = str(root / "k8s" / "overlays" / "trainjob")
    said = kubectl(small, "apply", "--dry-run=server", "--validate=strict", "-k", folder)
    assert "trainjob.trainer.kubeflow.org/train-512 created (server dry run)" in said, said
    assert "rror" not in said, said


def test_a_trainjob_is_resumed_and_its_ranks_meet(
    kubeflow: ControlPlane, begin: Begin, overlay: list[Object],
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    ends: list[tuple[int, str]] = []
    small = begin(lambda job: ends[0] if ends else None)
    apply(small, overlay)
    driver = Driver(capsys, small, small.node("train"), trainjobs=True)
    driver.wait(lambda story: len(pods(small)) == 2)
    pod = next(
        pod
        for pod in pods(small)
        if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    )
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-node-0-1", "train")
    monkeypatch.setenv("TRAIN_HOSTFILE", "")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")  # the kubelet would, of the annotation
    container = pod["spec"]["containers"][0]
    for variable in container["env"]:
        if "value" in variable:
            monkeypatch.setenv(variable["name"], variable["value"])
    words = run_stage.on_many_nodes("train")
    assert words[:5] == ["--no_ssh", "--node_rank", "1", "--master_addr", "train-node-0-0.train"]
    assert container["args"][3] == "train"
    ends.append((0, ""))
    story = driver.end()
    assert "train made" in story
    assert "resumed" in story
    assert train(small)["spec"]["suspend"] is False


def test_an_annotation_pauses_a_trainjob(
    kubeflow: ControlPlane, begin: Begin, overlay: list[Object],
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    ends: list[tuple[int, str]] = []
    small = begin(lambda job: ends[0] if ends else None)
    apply(small, overlay)
    driver = Driver(capsys, small, small.node("train"), trainjobs=True)
    driver.wait(lambda story: len(pods(small)) == 2)
    kubectl(small, "annotate", "trainjob", "train", f"{kubernetes.PAUSED}=true")
    driver.wait(lambda story: "kubectl annotate trainjob train" in story)
    driver.wait(lambda story: not pods(small))
    kubectl(small, "annotate", "trainjob", "train", f"{kubernetes.PAUSED}-")
    driver.wait(lambda story: len(pods(small)) == 2)
    ends.append((0, ""))
    assert "train made" in driver.end()


def test_bad_configuration_ends_a_trainjob_in_its_own_words(
    kubeflow: ControlPlane, begin: Begin, overlay: list[Object]
) -> None:
    small = begin(lambda job: (2, "error: steps=0: at least 1\n"))
    apply(small, overlay)
    with pytest.raises(UserError, match="stage train: steps=0: at least 1"):
        small.drive(small.node("train"), trainjobs=True)


def test_the_driver_may_change_no_more(
    kubeflow: ControlPlane, begin: Begin, overlay: list[Object]
) -> None:
    small = begin(lambda job: (0, ""))
    apply(small, overlay)
    account = f"--as=system:serviceaccount:{small.namespace}:driver"
    for verb, name, answer in (
        ("list", "trainjobs", "yes"), ("patch", "trainjobs/train-512", "yes"),
        ("patch", "trainjobs/other", "no"), ("patch", "jobs/train", "no"),
    ):  # fmt: skip
        assert kubectl(small, "auth", "can-i", verb, name, account).split()[-1] == answer, name
