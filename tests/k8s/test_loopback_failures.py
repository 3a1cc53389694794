"""What breaks while pretrain.yaml runs is repaired, or ends with its reason."""

import contextlib
import json
import re

import psutil
import pytest

from pipeline.records import checkpoint_folder
from pipeline.records.manifest import require_manifest
from pipeline.storage.checksums import sha256
from tests.k8s.api import Refused, condition
from tests.k8s.cluster import NAMESPACE
from tests.k8s.documented import of_the_manifest

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(1800)]

WAYS = {
    "kubectl": (),
    "argo": ("--field-manager=argocd-controller",),
    "flux": ("--server-side", "--force-conflicts", "--field-manager=kustomize-controller"),
}
STEPS, BREAK = 80, 15  # steps in all, and before something happens


class Training:
    """The train stage, as `kubectl apply` starts it; the stages before it are done once."""

    def __init__(self, cluster, manifest):
        self.cluster, self.manifest = cluster, manifest
        settings = manifest["items"][0]["data"]
        for name, value in (("steps", STEPS), ("save_every", 1000)):
            settings["overrides"] += f"train.{name}={value}\n"

    @property
    def job(self):
        """The Job's spec, before it is applied."""
        return next(
            item["spec"]["jobTemplate"]["spec"]
            for item in self.manifest["items"]
            if (item["kind"], item["metadata"]["name"]) == ("CronJob", "train")
        )

    def begin(self):
        """Up to some steps into the training."""
        self.cluster.apply(self.manifest)
        self.cluster.wait(lambda: self.steps() >= BREAK, 240, "train")

    def steps(self):
        """The steps that are done."""
        path = self.cluster.claim / "sample" / "train" / "metrics.jsonl"
        return path.read_text().count('"kind": "train"') if path.exists() else 0

    def end(self):
        """Wait until it is done; the checksum of its weights."""
        self.cluster.wait(lambda: self.cluster.is_over("train"), 240, "train")
        assert self.cluster.is_over("train") == "Complete", self.cluster.log("train")
        out = self.cluster.claim / "sample" / "train"
        made = require_manifest(out, "train", "out")
        return sha256(out / made.figures["checkpoint"] / checkpoint_folder.WEIGHTS)

    def pod(self, index):
        """The newest pod of a rank."""
        named = f"train-{index}-"
        pods = self.cluster.pods("train")
        return [pod for pod in pods if pod["metadata"]["name"].startswith(named)][-1]

    def name(self, index):
        """Its name."""
        return str(self.pod(index)["metadata"]["name"])

    @property
    def failed(self):
        """How many pods count as failed."""
        return int(self.cluster.job("train")["status"].get("failed", 0))


@pytest.fixture
def training(cluster, manifest):
    yield Training(cluster, manifest)
    cluster.kubelet.unnamed.clear()
    cluster.kubectl("delete", "job", "driver")
    cluster.wait(lambda: not cluster.api.find("jobs", NAMESPACE) + cluster.api.find("pods", NAMESPACE), 120)
    cluster.forget("sample/train")


@pytest.fixture(scope="module")
def undisturbed():
    """The weights of a run that nothing happens to, once there was one."""
    return {}


def killed(training):
    training.cluster.kubelet.kill(NAMESPACE, training.name(1))


def cut(training):
    training.cluster.kubelet.cut(NAMESPACE, training.name(0))


def deleted(training):
    training.cluster.kubectl("delete", "pod", training.name(1), "--wait=false")


def second_rank_started():
    """Return whether the launcher of train-1 has started its rank."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            ours = any(word.startswith("--local_rank") for word in process.cmdline())
            if ours and process.environ().get("RANK") == "1":
                return True
    return False


def test_a_name_that_comes_late_is_waited_for(training, undisturbed):
    cluster = training.cluster
    cluster.kubelet.unnamed.add("train-0")
    cluster.apply(training.manifest)
    cluster.wait(lambda: len(cluster.running("train")) == 2, 240)
    cluster.wait(second_rank_started, 120, "train")
    cluster.kubelet.unnamed.clear()
    undisturbed["weights"] = training.end()
    assert training.failed == 0


@pytest.mark.parametrize(("happens", "counted"), [(killed, 1), (deleted, 0), (cut, 0)])
def test_training_goes_on_and_ends_as_if_nothing_had_been(training, undisturbed, happens, counted):
    training.begin()
    first = training.name(0)
    happens(training)
    weights = training.end()
    assert training.name(0) != first
    assert training.failed == counted
    assert weights == undisturbed.get("weights", weights)
    again = training.cluster.log(training.name(0))
    assert ("resumed after step" in again) == (happens is deleted), "it can save"


def test_a_driver_that_dies_leaves_the_stages_alone(training):
    cluster = training.cluster
    training.begin()
    cluster.kubelet.kill(NAMESPACE, cluster.running("driver")[0])
    training.end()
    assert training.failed == 0
    second = cluster.pods("driver")[-1]["metadata"]["name"]
    cluster.wait(lambda: "convert" in cluster.log(second), 120)  # it came past the training
    assert cluster.job("driver")["status"]["failed"] == 1


def test_a_drain_is_refused_while_it_trains(cluster, training):
    training.begin()
    cluster.wait(lambda: refused(training), 60)
    training.end()
    assert training.failed == 0


def refused(training):
    """Whether the disruption budget, as the controller has it by now, keeps a pod."""
    try:
        training.cluster.evict(training.name(1))
    except Refused as error:
        return error.status == 429
    raise AssertionError("it was evicted")


def test_a_dead_node_is_named_and_training_goes_on_when_it_is_given_up(cluster, training, undisturbed):
    training.begin()
    lost = training.pod(1)
    node = lost["spec"]["nodeName"]
    cluster.kubelet.die(node)
    try:
        cluster.wait(lambda: f"node {node} does not respond" in cluster.log("driver"), 300)
        stuck = cluster.api.get("pods", NAMESPACE, lost["metadata"]["name"])
        assert "deletionTimestamp" in stuck["metadata"]
        assert stuck["status"]["phase"] == "Running", "nobody knows better"
        advice = re.findall(r"kubectl (taint node \S+ \S+)", cluster.log("driver"))
        cluster.kubectl(*advice[-1].split())
        weights = training.end()
    finally:
        cluster.kubectl("delete", "node", node)
        cluster.kubelet.revive(node)
    assert weights == undisturbed.get("weights", weights)
    assert training.pod(1)["spec"]["nodeName"] != node
    assert training.failed == 0


def test_kubectl_pauses_and_all_is_saved(cluster, training, root):
    training.begin()
    pause = of_the_manifest(root, "pause")
    cluster.kubectl(*pause)
    cluster.wait(lambda: "paused" in cluster.log("driver"), 60)
    cluster.wait(lambda: not cluster.running("train"), 120)
    cluster.kubectl(*(word.replace("true", "false") for word in pause))
    training.end()
    assert "resumed after step" in cluster.log(training.name(0))
    assert training.failed == 0


@pytest.mark.parametrize("words", WAYS.values(), ids=WAYS)
def test_an_apply_while_it_trains_changes_nothing_that_runs(cluster, training, undisturbed, words):
    training.begin()
    pods = [training.name(index) for index in (0, 1)]
    training.job["template"]["spec"]["containers"][0]["image"] = "bert-pipeline/trainer:next"
    cluster.apply(training.manifest, *words)
    cluster.wait(lambda: "its template has changed" in cluster.log("driver"), 60)
    weights = training.end()
    assert [training.name(index) for index in (0, 1)] == pods
    assert weights == undisturbed.get("weights", weights)
    assert training.failed == 0


def test_a_restart_of_one_stage_takes_the_new_template(cluster, training, root):
    training.begin()
    training.job["template"]["spec"]["terminationGracePeriodSeconds"] = 500
    cluster.apply(training.manifest)
    cluster.kubectl(*of_the_manifest(root, "restart"))
    cluster.wait(lambda: "waits for the end of" in cluster.log("driver"), 60)
    cluster.wait(lambda: cluster.log("driver").count("made of template train") == 2, 120)
    training.end()
    assert training.pod(0)["spec"]["terminationGracePeriodSeconds"] == 500
    assert "resumed after step" in cluster.log(training.name(0))


def test_a_mistake_in_the_overrides_fails_the_driver_at_once(cluster, training):
    training.manifest["items"][0]["data"]["overrides"] += "recipe=devlyn\n"
    cluster.apply(training.manifest)
    cluster.kubectl("wait", "--for=condition=failed", "job/driver", "--timeout=300s")
    assert len(cluster.pods("driver")) == 1
    assert reason(cluster, "driver") == "PodFailurePolicy"
    said = cluster.kubectl("logs", "job/driver")
    assert said.startswith("error: ")
    assert "devlyn" in said
    assert "Traceback" not in said


def test_bad_configuration_of_training_is_not_tried_twice(cluster, training):
    container = training.job["template"]["spec"]["containers"][0]
    variable = next(entry for entry in container["env"] if entry["name"] == "BERT_NODES")
    variable |= {"value": "1"}
    del variable["valueFrom"]
    cluster.apply(training.manifest)
    cluster.wait(lambda: cluster.is_over("driver"), 240)
    assert reason(cluster, "train") == reason(cluster, "driver") == "PodFailurePolicy"
    assert "BERT_NODES=1: " in cluster.log("driver")
    assert len(list(cluster.folder.glob("*.train-1-*.log"))) == 1


def test_a_stage_that_fails_for_good_ends_the_run_with_its_last_words(cluster, training):
    training.job["template"]["spec"]["containers"][0]["args"] = ["sh", "-c", "echo no; exit 9"]
    cluster.apply(training.manifest)
    cluster.wait(lambda: cluster.is_over("driver"), 240)
    assert reason(cluster, "train") == "MaxFailedIndexesExceeded"
    assert reason(cluster, "driver") == "PodFailurePolicy"
    logs = [len(list(cluster.folder.glob(f"*.train-{index}-*.log"))) for index in (0, 1)]
    assert max(logs) == 3, "a fault that repeats ends after three tries"
    story = cluster.log("driver")
    assert "MaxFailedIndexesExceeded" in story
    assert "exit code 9" in story


def test_deleting_the_driver_ends_all_and_saves_what_was_trained(cluster, training, root):
    training.begin()
    cluster.kubectl(*of_the_manifest(root, "stop"))
    cluster.wait(lambda: not cluster.api.find("jobs", NAMESPACE) + cluster.api.find("pods", NAMESPACE), 120)
    saved = cluster.claim / "sample" / "train" / "checkpoints"
    assert [path for path in saved.iterdir() if not path.name.startswith(".")]
    cluster.apply(training.manifest)
    training.end()
    assert "resumed after step" in cluster.log(training.name(0))


def reason(cluster, job):
    """Why a Job failed."""
    found = cluster.job(job)
    assert condition(found, "Failed"), json.dumps(found["status"])
    return next(str(c["reason"]) for c in found["status"]["conditions"] if c["type"] == "Failed")
