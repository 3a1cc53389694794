"""The driver runs TrainJobs with the real controllers of Kubeflow Trainer and JobSet.

Without their webhooks, which need a Service that the API server can reach.
"""

import json
import os
import subprocess

import pytest
import yaml

from pipeline.orchestration import run_stage
from tests.k8s import control_plane
from tests.k8s.control_plane import KUBECTL
from tests.k8s.documented import of_the_page, words
from tests.k8s.small import Driver

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(600)]

KINDS = ("ServiceAccount", "Role", "RoleBinding", "PersistentVolumeClaim", "ConfigMap", "Service", "TrainingRuntime")
TRAINJOB = "apis/trainer.kubeflow.org/v1alpha1/namespaces/{}/trainjobs/train"


@pytest.fixture(scope="module")
def kubeflow(control):
    """The control plane with both controllers."""
    if not (control_plane.KUBEFLOW / "kubeflow-controllers").exists():
        pytest.skip("Kubeflow's controllers are not there: run tests/k8s/build-kubeflow")
    control.start_kubeflow()
    return control


@pytest.fixture
def overlay(root):
    """The overlay for two nodes without GPUs, that are one."""
    made = subprocess.run(
        [KUBECTL, "kustomize", root / "k8s" / "overlays" / "trainjob"], capture_output=True, check=True
    ).stdout
    items = list(yaml.safe_load_all(made))
    (runtime,) = (item["spec"] for item in items if item["kind"] == "TrainingRuntime")
    runtime["mlPolicy"]["numNodes"] = 2
    job = runtime["template"]["spec"]["replicatedJobs"][0]["template"]["spec"]
    job |= {"completions": 2, "parallelism": 2}
    del job["template"]["spec"]["affinity"]
    job["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "1"}}
    return items


def apply(small, items):
    """Apply what training needs of the overlay."""
    chosen = [item for item in items if item["kind"] in KINDS]
    given = json.dumps({"apiVersion": "v1", "kind": "List", "items": chosen})
    said = small.kubectl("apply", "--validate=strict", "-f", "-", given=given)
    assert said.count(" created\n") == len(chosen), said


def pods(small):
    """Its pods that have not ended."""
    found = small.api.find("pods", small.namespace, {"jobset.sigs.k8s.io/jobset-name": "train"})
    return [pod for pod in found if pod["status"]["phase"] in ("Pending", "Running")]


def running(begin, ends, overlay, capsys):
    """Start training by the driver; both pods run until `ends` says how they end."""
    small = begin(lambda job: ends[0] if ends else None)
    apply(small, overlay)
    small.started()
    driver = Driver(capsys, small, node(small))
    driver.wait(lambda story: len(pods(small)) == 2)
    return small, driver


def node(small):
    """The stage, which is one of training by its name."""
    return small.node("train")


def test_the_server_takes_the_overlay_as_it_is(kubeflow, begin, root):
    small = begin(lambda job: (0, ""))
    folder = str(root / "k8s" / "overlays" / "trainjob")
    said = small.kubectl("apply", "--dry-run=server", "--validate=strict", "-k", folder)
    assert "trainingruntime.trainer.kubeflow.org/train created (server dry run)" in said, said
    assert "rror" not in said, said


def test_it_is_made_and_its_ranks_meet(kubeflow, begin, overlay, capsys, monkeypatch):
    ends = []
    small, driver = running(begin, ends, overlay, capsys)
    pod = next(
        pod for pod in pods(small) if pod["metadata"]["labels"]["batch.kubernetes.io/job-completion-index"] == "1"
    )
    assert (pod["spec"]["hostname"], pod["spec"]["subdomain"]) == ("train-node-0-1", "train")
    monkeypatch.setenv("BERT_HOSTFILE", "")
    monkeypatch.setenv("JOB_COMPLETION_INDEX", "1")  # the kubelet would, of the annotation
    container = pod["spec"]["containers"][0]
    settings = next(item["data"] for item in overlay if item["kind"] == "ConfigMap")
    for variable in container["env"]:
        reference = variable.get("valueFrom", {}).get("configMapKeyRef")
        if "value" in variable or reference:
            value = variable["value"] if reference is None else settings[reference["key"]]
            monkeypatch.setenv(variable["name"], value)
    words = run_stage.multi_node_options("train")
    assert words[:5] == ["--no_ssh", "--node_rank", "1", "--master_addr", "train-node-0-0.train"]
    known = {variable["name"]: variable.get("value") for variable in container["env"]}
    assert container["args"][3:] == ["--from", "$(BERT_RECORD)"]
    assert str(known["BERT_RECORD"]).endswith("/run.json#train")
    assert os.environ["BERT_HOSTFILE"].split()[2] == "train-node-0-1.train"
    ends.append((0, ""))
    story = driver.end()
    assert "train made" in story
    assert small.order == ["train", "train"]


def test_kubectl_pauses_and_restarts_it_and_it_ends_with_the_driver(kubeflow, begin, overlay, capsys, root):
    ends = []
    small, driver = running(begin, ends, overlay, capsys)
    (pause,) = map(words, of_the_page(root, "kubectl patch trainjob"))
    small.kubectl(*pause)
    driver.wait(lambda story: "paused; to resume: kubectl patch trainjob train" in story)
    driver.wait(lambda story: not pods(small))
    small.kubectl(*(word.replace("true", "false") for word in pause))
    driver.wait(lambda story: len(pods(small)) == 2)
    before = small.api.ask("GET", TRAINJOB.format(small.namespace))["metadata"]["uid"]
    (restart,) = map(words, of_the_page(root, "kubectl delete trainjob"))
    small.kubectl(*restart)
    driver.wait(lambda story: story.count("made of template train") == 2 and len(pods(small)) == 2)
    made = small.api.ask("GET", TRAINJOB.format(small.namespace))["metadata"]
    assert made["uid"] != before
    assert [owner["name"] for owner in made["ownerReferences"]] == ["driver"]
    ends.append((0, ""))
    assert "train made" in driver.end()
