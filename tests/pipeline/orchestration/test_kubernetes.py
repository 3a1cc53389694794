"""What the driver makes of what the API server tells it."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import ReportConfig
from pipeline.orchestration import job_status, kubernetes
from pipeline.orchestration.run_document import StageRecord
from tests.support import finished

client = pytest.importorskip("kubernetes.client", reason="the extra `kubernetes` is not installed")
BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def job(*conditions: tuple[str, str]) -> Any:
    """A Job that began at BEGAN."""
    listed = [{"type": kind, "status": status} for kind, status in conditions]
    return {
        "metadata": {"name": "report", "uid": "7"},
        "status": {"conditions": listed, "startTime": BEGAN.isoformat()},
    }


def pod(code: int, words: str) -> Any:
    """A pod that ended."""
    ended = client.V1ContainerStateTerminated(exit_code=code, message=words)
    status = client.V1ContainerStatus(
        name="stage",
        image="i",
        image_id="",
        ready=False,
        restart_count=0,
        state=client.V1ContainerState(terminated=ended),
    )
    return client.V1Pod(status=client.V1PodStatus(container_statuses=[status]))


def node(out: Path) -> StageRecord:
    """The report's stage."""
    config = ReportConfig(workdir=str(out.parent), out=str(out))
    return StageRecord(
        name="report", kind="report", config=config, needs=(), fingerprint="wanted", reason="not made yet"
    )


def write(out: Path, fingerprint: str, ended: datetime.datetime) -> None:
    """A folder that a stage has made."""
    out.mkdir()
    finished.manifest("report", fingerprint=fingerprint, finished=ended.isoformat()).write(out)


def test_a_job_is_over_when_a_condition_says_so() -> None:
    assert job_status.final_condition(job()) is None
    assert job_status.final_condition(job(("Complete", "False"), ("Suspended", "True"))) is None
    over = job_status.final_condition(job(("FailureTarget", "True"), ("Failed", "True")))
    assert over is not None
    assert over["type"] == "Failed"


def test_a_pod_that_has_just_ended_has_run() -> None:
    status = {"ready": 1, "succeeded": 1, "uncountedTerminatedPods": {"succeeded": ["uid"]}}
    assert job_status.counts({"spec": {"completions": 4}, "status": status}) == (3, 4)
    assert job_status.counts({"spec": {}, "status": {}}) == (0, 1)


def test_bad_configuration_is_the_last_word_before_all_else() -> None:
    words = job_status.termination_message([pod(75, "peer lost"), pod(2, "error: typo"), pod(0, "")])
    assert words == (2, "error: typo")
    assert job_status.termination_message([pod(0, "done")]) == (0, "")


def test_a_complete_job_without_its_folder_is_used_up(tmp_path: Path) -> None:
    members = [node(tmp_path / "report")]
    assert "kubectl delete job/report" in kubernetes.job_exhausted(job(), members)
    write(tmp_path / "report", "other", BEGAN - datetime.timedelta(hours=1))
    assert "already completed" in kubernetes.job_exhausted(job(), members)


def test_images_of_two_builds_are_named_as_the_cause(tmp_path: Path) -> None:
    write(tmp_path / "report", "other", BEGAN + datetime.timedelta(minutes=1))
    assert "images" in kubernetes.job_exhausted(job(), [node(tmp_path / "report")])


def leaving(asked: float, grace: int, *marks: tuple[str, str, str]) -> Any:
    """A running pod that was asked to end some seconds after BEGAN."""
    due = BEGAN + datetime.timedelta(seconds=asked + grace)
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name="train-1-x", deletion_timestamp=due, deletion_grace_period_seconds=grace),
        spec=client.V1PodSpec(containers=[], node_name="n7"),
        status=client.V1PodStatus(
            phase="Running", conditions=[client.V1PodCondition(type=t, status=s, reason=r) for t, s, r in marks]
        ),
    )


@pytest.mark.parametrize(
    ("pod", "lost"),
    [
        (leaving(0, 600, ("DisruptionTarget", "True", "DeletionByTaintManager")), False),
        (
            leaving(0, 600, ("DisruptionTarget", "True", "DeletionByTaintManager"), ("Ready", "False", "NodeNotReady")),
            True,
        ),
        (leaving(0, 600, ("Ready", "False", "")), False),  # it saves
        (leaving(0, 30), True),  # far beyond its grace
        (leaving(90, 0), False),
    ],
)
def test_a_pod_whose_node_does_not_answer_is_named(pod: Any, lost: bool) -> None:
    said = job_status.lost_node(pod, BEGAN + datetime.timedelta(seconds=100))
    assert ("kubectl taint node n7 " in said) == lost


def event(reason: str, after: float, kind: str, name: str, uid: str = "") -> Any:
    """A warning some seconds after BEGAN."""
    return client.CoreV1Event(
        metadata=client.V1ObjectMeta(name="e"),
        involved_object=client.V1ObjectReference(kind=kind, name=name, uid=uid),
        reason=reason,
        message=f"{reason} it is",
        type="Warning",
        last_timestamp=BEGAN + datetime.timedelta(seconds=after),
    )


def test_the_newest_warning_about_a_job_and_its_pods_is_said() -> None:
    report = job()
    mine = client.V1Pod(metadata=client.V1ObjectMeta(name="report-x"))
    found = [
        event("FailedMount", 20, "Pod", "report-x"),
        event("FailedCreate", 10, "Job", "report", "7"),
        event("FailedCreate", 30, "Job", "report", "an older Job of this name"),
        event("BackOff", 40, "Pod", "report-of-another"),
        event("FailedScheduling", 50, "Pod", "report-x"),  # a pod's own condition says it
    ]
    said = job_status.newest_warning(report, [mine], found)
    assert said == "pod report-x: FailedMount: FailedMount it is"
    assert job_status.newest_warning(report, [], found).startswith("job report: FailedCreate")
    early = [event("FailedCreate", -1, "Job", "report", "7")]
    assert job_status.newest_warning(report, [mine], early) == ""


def test_a_refusal_of_each_attempt_is_the_same_warning() -> None:
    first, second = (f'job train: FailedCreate: Pod "train-0-{end}" is invalid: 512Mi' for end in ("sbwgx", "44nnf"))
    assert job_status.strip_suffixes(first) == job_status.strip_suffixes(second)
    other = first.replace("512Mi", "256Mi")
    assert job_status.strip_suffixes(first) != job_status.strip_suffixes(other)
    assert "train-512" in job_status.strip_suffixes("pod train-512-0-44nnf: BackOff")
