"""The driver against a real control plane; pods end as each test says."""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import control_plane
import pytest
import requests
from api import Object, Refused, ended
from control_plane import ControlPlane
from kubelet import CAPACITY, now

from pipeline.common.errors import ConfigError, Restart, UserError
from pipeline.common.manifest import Manifest
from pipeline.config import ExecutorConfig, ReportConfig
from pipeline.orchestration import kubernetes
from pipeline.orchestration.graph import Node
from pipeline.orchestration.local import StageFailed

pytestmark = [pytest.mark.k8s, pytest.mark.timeout(300)]

PART = {"app.kubernetes.io/part-of": "bert-pretrain"}
QUEUE = "kueue.x-k8s.io/queue-name"
Ends = Callable[[str], tuple[int, str] | None]  # of a Job's pod: exit code, last words; None: runs
Begin = Callable[[Ends], "Small"]


class Small:
    """A namespace whose pods do nothing and end as told, on a node that is not there."""

    def __init__(self, control: ControlPlane, namespace: str, folder: Path, ends: Ends):
        self.control, self.namespace, self.folder = control, namespace, folder
        self.ends, self.order, self.stories = ends, list[str](), list[str]()
        self.api, self.nodes = control.api(), control.api()
        self.stopping = threading.Event()
        self.pods = threading.Thread(target=self._look, daemon=True)

    def declare(self, name: str, labels: dict[str, str] | None = None, **more: object) -> None:
        """A suspended Job, as an apply of the manifest creates it."""
        pod = {"restartPolicy": "Never", "containers": [{"name": "stage", "image": "i:1"}]}
        policy = {
            "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}]
        }
        template = {"metadata": {"labels": PART}, "spec": pod}
        spec = {"suspend": True, "backoffLimit": 0, "podFailurePolicy": policy, **more}
        metadata = {"name": name, "labels": {**PART, **(labels or {})}}
        item = {"metadata": metadata, "spec": {**spec, "template": template}}
        self.api.create("jobs", self.namespace, item)

    def node(self, name: str, *needs: str) -> Node:
        """A stage that has to run."""
        out = self.folder / name
        return Node(
            name=name, kind="report", needs=needs, fingerprint=name,
            config=ReportConfig(workdir=str(self.folder), out=str(out)), reason="not made yet",
        )  # fmt: skip

    def job(self, name: str) -> Object:
        """A Job as it is now."""
        return self.api.get("jobs", self.namespace, name)

    def change(self, name: str, manager: str, change: Object) -> None:
        """Change a Job as the tool of this name does."""
        path = self.api.path("jobs", self.namespace, name)
        self.api.ask("PATCH", path, change, params={"fieldManager": manager})

    def drive(self, *nodes: Node, **settings: object) -> None:
        """Run the driver."""
        config = ExecutorConfig(
            name="kubernetes", poll=0.2, patience=2.0, namespace=self.namespace, **settings
        )  # type: ignore[arg-type]
        kubernetes.KubernetesExecutor(config).run(list(nodes))

    def _look(self) -> None:
        while not self.stopping.wait(0.1):
            beat = {"type": "Ready", "status": "True", "lastHeartbeatTime": now()}
            status = {"capacity": CAPACITY, "allocatable": CAPACITY, "conditions": [beat]}
            self.nodes.patch("nodes", None, "desk", {"status": status}, "status")
            for pod in self.nodes.find("pods", self.namespace):
                try:
                    self._sync(pod, pod["metadata"]["labels"]["batch.kubernetes.io/job-name"])
                except Refused:
                    continue  # deleted meanwhile

    def _sync(self, pod: Object, job: str) -> None:
        name, leaves = pod["metadata"]["name"], "deletionTimestamp" in pod["metadata"]
        if not ended(pod) and pod["spec"].get("nodeName"):
            end = (143, "") if leaves else self.ends(job)
            if end is not None:
                self._end(name, job, *end)
        if leaves:
            self.nodes.delete("pods", self.namespace, name, gracePeriodSeconds=0)

    def _end(self, pod: str, job: str, code: int, words: str) -> None:
        self.order.append(job)
        if code == 0:
            (self.folder / job).mkdir(exist_ok=True)
            Manifest(
                stage="report", fingerprint=job, version=1, config={}, inputs={}, files={},
                figures={}, summary=f"{job} made", seconds=1.0, finished=now(),
            ).write(self.folder / job)  # fmt: skip
        state = {"terminated": {"exitCode": code, "message": words, "reason": "Error",
                                "startedAt": now(), "finishedAt": now()}}  # fmt: skip
        status = {
            "phase": "Failed" if code else "Succeeded",
            "containerStatuses": [
                {"name": "stage", "image": "i:1", "imageID": "", "ready": False,
                 "restartCount": 0, "state": state}
            ],
        }  # fmt: skip
        self.nodes.patch("pods", self.namespace, pod, {"status": status}, "status")


@pytest.fixture(scope="module")
def control(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with one node."""
    why = control_plane.missing()
    if why:
        pytest.skip(why)
    made = ControlPlane(tmp_path_factory.mktemp("control"), "127.0.0.1")
    try:
        made.start().api().create("nodes", None, {"metadata": {"name": "desk"}})
        yield made
    finally:
        made.stop()


@pytest.fixture
def begin(
    control: ControlPlane, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Begin]:
    """A namespace of its own, which the client library finds by its kubeconfig."""
    made: list[Small] = []
    count = next(NUMBERS)

    def make(ends: Ends) -> Small:
        control.namespace(f"test-{count}", "privileged")
        made.append(Small(control, f"test-{count}", tmp_path, ends))
        made[0].pods.start()
        return made[0]

    place = str(control.configuration("administrator", "default"))
    monkeypatch.setenv("KUBECONFIG", place)
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", place)
    yield make
    for small in made:
        small.stopping.set()
        small.pods.join()


NUMBERS = itertools.count()


class Driver:
    """The driver in a thread, while a test does something to its Jobs."""

    def __init__(
        self, capsys: pytest.CaptureFixture[str], small: Small, *nodes: Node, **settings: object
    ):
        self.capsys, self.story, self.error = capsys, "", list[BaseException]()
        self.thread = threading.Thread(target=self._run, args=(small, nodes, settings), daemon=True)
        self.thread.start()

    def _run(self, small: Small, nodes: tuple[Node, ...], settings: dict[str, object]) -> None:
        try:
            small.drive(*nodes, **settings)
        except BaseException as error:
            self.error.append(error)

    def wait(self, what: Callable[[str], object]) -> None:
        """Until something is so, of what the driver has said."""
        until = time.monotonic() + 60
        while not what(self.story):
            assert not self.error, self.error
            assert time.monotonic() < until, self.story
            time.sleep(0.1)
            self.story += self.capsys.readouterr().out

    def end(self) -> str:
        """Wait until it is done; all that it said."""
        self.thread.join(60)
        assert not self.thread.is_alive()
        assert not self.error, self.error
        return self.story + self.capsys.readouterr().out


def test_jobs_are_resumed_when_their_inputs_are_done(
    begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    small = begin(lambda job: (0, ""))
    for name in ("c", "b", "a"):
        small.declare(name)
    small.drive(small.node("a"), small.node("b", "a"), small.node("c", "a", "b"))
    assert small.order == ["a", "b", "c"]
    assert "c made" in capsys.readouterr().out


def test_bad_configuration_is_reported_in_its_own_words(begin: Begin) -> None:
    small = begin(lambda job: (2, "trace\nerror: steps=0: at least 1\n"))
    small.declare("train")
    small.declare("convert")
    with pytest.raises(UserError, match="stage train: steps=0: at least 1"):
        small.drive(small.node("train"), small.node("convert", "train"))
    assert small.order == ["train"]


def test_a_fault_is_reported_with_the_jobs_reason(begin: Begin) -> None:
    small = begin(lambda job: (9, "out of luck"))
    small.declare("train")
    with pytest.raises(StageFailed, match=r"BackoffLimitExceeded(?s:.*)code 9(?s:.*)out of luck"):
        small.drive(small.node("train"))


def test_a_stage_without_a_job_is_named_before_anything_runs(begin: Begin) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a")
    with pytest.raises(ConfigError, match=f"{small.namespace} has no Job for stage b"):
        small.drive(small.node("a"), small.node("b", "a"))
    assert small.order == []


def test_a_server_that_stays_away_asks_for_a_restart(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small = begin(lambda job: (0, ""))
    away = tmp_path / "away"
    port = control_plane.free_port("127.0.0.1")
    text = small.control.administrator.read_text()
    away.write_text(text.replace(str(small.control.port), str(port)))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION", str(away))
    with pytest.raises(Restart, match="API server"):
        small.drive(small.node("a"))


def test_a_pause_is_an_annotation(begin: Begin, capsys: pytest.CaptureFixture[str]) -> None:
    ends: list[tuple[int, str]] = []
    pause, resume = ({"metadata": {"annotations": {kubernetes.PAUSED: v}}} for v in ("true", None))
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: small.job("a")["status"].get("active"))
    small.change("a", "kubectl-annotate", pause)
    driver.wait(lambda story: "paused" in story)
    driver.wait(lambda story: not small.job("a")["status"].get("active"))
    assert small.job("a")["spec"]["suspend"]
    ends.append((0, ""))
    small.change("a", "kubectl-annotate", resume)
    assert "a made" in driver.end()


@pytest.mark.parametrize("manager", ["argocd-controller", "kustomize-controller", "helm"])
def test_a_suspension_by_any_tool_is_undone(
    begin: Begin, capsys: pytest.CaptureFixture[str], manager: str
) -> None:
    ends: list[tuple[int, str]] = []
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    driver = Driver(capsys, small, small.node("a"))
    for count in (1, 2):  # they do it again and again
        driver.wait(lambda story: small.job("a")["status"].get("active"))
        small.change("a", manager, {"spec": {"suspend": True}})
        driver.wait(lambda story, count=count: story.count("another client suspended it") == count)
    ends.append((0, ""))
    assert "a made" in driver.end()


def test_what_keeps_pods_from_being_created_is_said_once(
    begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a")
    quota = {"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}}
    small.api.create("resourcequotas", small.namespace, quota)
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: "exceeded quota" in story)
    driver.wait(lambda story: len(small.api.find("events", small.namespace)) > 3)  # one an attempt
    assert driver.story.count("exceeded quota") == 1
    assert "FailedCreate" in driver.story
    small.api.delete("resourcequotas", small.namespace, "none")
    assert "a made" in driver.end()


def test_a_queue_gets_the_job_instead(begin: Begin) -> None:
    """Kueue resumes it; here nobody does until the label is seen."""
    small = begin(lambda job: (0, ""))
    small.declare("a", {QUEUE: kubernetes.WAITS})

    def admit() -> None:
        api = small.control.api()
        while (
            api.get("jobs", small.namespace, "a")["metadata"]["labels"][QUEUE] == kubernetes.WAITS
        ):
            small.stopping.wait(0.1)
        api.patch("jobs", small.namespace, "a", {"spec": {"suspend": False}})

    kueue = threading.Thread(target=admit, daemon=True)
    kueue.start()
    small.drive(small.node("a"), queue="night")
    assert small.job("a")["metadata"]["labels"][QUEUE] == "night"


def test_without_a_queue_the_label_of_none_goes_before_the_job_runs(begin: Begin) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a", {QUEUE: kubernetes.WAITS})
    small.drive(small.node("a"))
    assert QUEUE not in small.job("a")["metadata"]["labels"]


def test_a_job_in_a_queue_of_the_clusters_own_is_left_to_it(
    begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    small = begin(lambda job: (0, ""))
    small.declare("a", {QUEUE: "default"})
    driver = Driver(capsys, small, small.node("a"))
    driver.wait(lambda story: "queued in default" in story)
    assert small.order == []
    small.change("a", "kueue", {"spec": {"suspend": False}})
    assert "a made" in driver.end()


def test_the_states_of_stages_are_served_to_prometheus(
    begin: Begin, capsys: pytest.CaptureFixture[str]
) -> None:
    ends: list[tuple[int, str]] = []
    small = begin(lambda job: ends[0] if ends else None)
    small.declare("a")
    small.declare("b")
    port = control_plane.free_port("127.0.0.1")
    driver = Driver(
        capsys, small, small.node("a"), small.node("b", "a"), prometheus_port=port
    )  # fmt: skip
    driver.wait(lambda story: small.job("a")["status"].get("active"))
    address = f"http://127.0.0.1:{port}/metrics"
    wanted = {
        'bert_stage_state{stage="a",state="starting"} 1.0',
        'bert_stage_state{stage="b",state="suspended"} 1.0',
        'bert_stage_failed_pods{stage="a"} 0.0',
    }
    driver.wait(lambda story: wanted <= set(requests.get(address, timeout=30).text.splitlines()))
    ends.append((0, ""))
    assert "b made" in driver.end()
