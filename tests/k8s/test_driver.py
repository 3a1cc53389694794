"""The driver against a real HTTPS API server and Job controller; pods end as each test says."""

import json
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from loopback import NAMESPACE, certify, kubeconfig
from loopback_jobs import JobController
from loopback_server import ApiServer
from loopback_store import Object, Store, now

from pipeline.common.errors import ConfigError, Restart, UserError
from pipeline.common.manifest import Manifest
from pipeline.config import ExecutorConfig, ReportConfig
from pipeline.orchestration import kubernetes
from pipeline.orchestration.graph import Node
from pipeline.orchestration.local import StageFailed

PART = {"app.kubernetes.io/part-of": "bert-pretrain"}
Ends = Callable[[str], tuple[int, str]]  # of a Job's pod: exit code, last words


class Small:
    """An API server with Jobs, whose pods do nothing and end at once."""

    def __init__(self, folder: Path, ends: Ends):
        self.folder, self.ends, self.order = folder, ends, list[str]()
        self.store = Store()
        certificate, key = certify(folder, "127.0.0.1")
        self.server = ApiServer(self.store, "127.0.0.1", certificate, key)
        self.server.tokens = {"administrator": None}
        url = f"https://127.0.0.1:{self.server.port}"
        (folder / "kubeconfig").write_text(json.dumps(kubeconfig(url, certificate)))
        self.jobs = JobController(self.store)
        self.stopping = threading.Event()
        self.pods = threading.Thread(target=self._end_pods, daemon=True)

    def __enter__(self) -> "Small":
        self.server.start()
        self.jobs.start()
        self.pods.start()
        return self

    def __exit__(self, *exception: object) -> None:
        for thread, stop in ((self.jobs, self.jobs.stopping), (self.pods, self.stopping)):
            stop.set()
            thread.join()
        self.server.stop()

    def declare(self, name: str, **more: object) -> None:
        """A suspended Job, as `kubectl apply` creates it."""
        container = {"name": "stage", "image": "i:1"}
        pod = {"restartPolicy": "Never", "containers": [container]}
        policy = {
            "rules": [{"action": "FailJob", "onExitCodes": {"operator": "In", "values": [2]}}]
        }
        spec = {"suspend": True, "backoffLimit": 0, "podFailurePolicy": policy, **more}
        template = {"metadata": {"labels": PART}, "spec": pod}
        item = {"metadata": {"name": name, "labels": PART}, "spec": {**spec, "template": template}}
        self.store.create("jobs", NAMESPACE, item, "kubectl-client-side-apply")

    def node(self, name: str, *needs: str) -> Node:
        """A stage that has to run."""
        out = self.folder / name
        return Node(
            name=name, kind="report", needs=needs, fingerprint=name,
            config=ReportConfig(workdir=str(self.folder), out=str(out)), reason="not made yet",
        )  # fmt: skip

    def _end_pods(self) -> None:
        while not self.stopping.wait(0.05):
            for pod in self.store.find("pods"):
                if pod["status"]["phase"] == "Pending":
                    self._end(pod, pod["metadata"]["labels"]["job-name"])

    def _end(self, pod: Object, job: str) -> None:
        code, words = self.ends(job)
        self.order.append(job)
        if code == 0:
            (self.folder / job).mkdir(exist_ok=True)
            Manifest(
                stage="report", fingerprint=job, version=1, config={}, inputs={}, files={},
                figures={}, summary=f"{job} made", seconds=1.0, finished=now(),
            ).write(self.folder / job)  # fmt: skip
        state = {"terminated": {"exitCode": code, "message": words, "reason": "Error"}}

        def over(new: Object) -> None:
            new["status"]["phase"] = "Failed" if code else "Succeeded"
            new["status"]["containerStatuses"] = [
                {"name": "stage", "image": "i:1", "imageID": "", "ready": False,
                 "restartCount": 0, "state": state}
            ]  # fmt: skip

        self.store.change("pods", NAMESPACE, pod["metadata"]["name"], over)


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Ends], Small]]:
    """A small cluster that the client library finds by its kubeconfig."""
    made: list[Small] = []

    def begin(ends: Ends) -> Small:
        made.append(Small(tmp_path, ends).__enter__())
        return made[0]

    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "kubeconfig"))
    monkeypatch.setattr("kubernetes.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION",
                        str(tmp_path / "kubeconfig"))  # fmt: skip
    yield begin
    for small in made:
        small.__exit__()


def drive(nodes: list[Node], **settings: object) -> None:
    """Run the driver."""
    config = ExecutorConfig(name="kubernetes", poll=0.1, patience=2.0, **settings)  # type: ignore[arg-type]
    kubernetes.KubernetesExecutor(config).run(nodes)


def test_jobs_are_resumed_when_their_inputs_are_done(
    make: Callable[[Ends], Small], capsys: pytest.CaptureFixture[str]
) -> None:
    small = make(lambda job: (0, ""))
    for name in ("c", "b", "a"):
        small.declare(name)
    drive([small.node("a"), small.node("b", "a"), small.node("c", "a", "b")])
    assert small.order == ["a", "b", "c"]
    assert "c made" in capsys.readouterr().out


def test_bad_configuration_is_told_in_its_own_words(make: Callable[[Ends], Small]) -> None:
    small = make(lambda job: (2, "trace\nerror: steps=0: at least 1\n"))
    small.declare("train")
    small.declare("convert")
    with pytest.raises(UserError, match="stage train: steps=0: at least 1"):
        drive([small.node("train"), small.node("convert", "train")])
    assert small.order == ["train"]


def test_a_fault_is_told_with_the_jobs_reason(make: Callable[[Ends], Small]) -> None:
    small = make(lambda job: (9, "out of luck"))
    small.declare("train")
    with pytest.raises(StageFailed, match=r"BackoffLimitExceeded(?s:.*)code 9(?s:.*)out of luck"):
        drive([small.node("train")])


def test_a_stage_without_a_job_is_named_before_anything_runs(
    make: Callable[[Ends], Small],
) -> None:
    small = make(lambda job: (0, ""))
    small.declare("a")
    with pytest.raises(ConfigError, match="no Job for stage b in namespace bert"):
        drive([small.node("a"), small.node("b", "a")])
    assert small.order == []


def test_a_server_that_stays_away_asks_for_a_restart(
    make: Callable[[Ends], Small],
) -> None:
    small = make(lambda job: (0, ""))
    small.server.stop()
    with pytest.raises(Restart, match="no answer of the API server"):
        drive([small.node("a")])


def test_a_queue_gets_the_job_instead(make: Callable[[Ends], Small]) -> None:
    """Kueue resumes it; here nobody does until the label is seen."""
    small = make(lambda job: (0, ""))
    small.declare("a")

    def admit() -> None:
        while "kueue.x-k8s.io/queue-name" not in small.store.get("jobs", NAMESPACE, "a")[
            "metadata"
        ]["labels"]:  # fmt: skip
            small.stopping.wait(0.05)
        small.store.change("jobs", NAMESPACE, "a", lambda job: job["spec"].update(suspend=False))

    kueue = threading.Thread(target=admit, daemon=True)
    kueue.start()
    drive([small.node("a")], queue="night")
    labels = small.store.get("jobs", NAMESPACE, "a")["metadata"]["labels"]
    assert labels["kueue.x-k8s.io/queue-name"] == "night"
