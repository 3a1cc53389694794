"""What the driver makes of what the API server tells it."""

import datetime
from pathlib import Path
from typing import Any

import pytest

from pipeline.common.manifest import Manifest
from pipeline.config import ReportConfig
from pipeline.orchestration import kubernetes
from pipeline.orchestration.graph import Node

client = pytest.importorskip("kubernetes.client", reason="the extra `kubernetes` is not installed")
BEGAN = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def job(*conditions: tuple[str, str]) -> Any:
    """A Job that began at BEGAN."""
    listed = [client.V1JobCondition(type=kind, status=status) for kind, status in conditions]
    return client.V1Job(
        metadata=client.V1ObjectMeta(name="report"),
        status=client.V1JobStatus(conditions=listed, start_time=BEGAN),
    )


def pod(code: int, words: str) -> Any:
    """A pod that ended."""
    ended = client.V1ContainerStateTerminated(exit_code=code, message=words)
    status = client.V1ContainerStatus(
        name="stage", image="i", image_id="", ready=False, restart_count=0,
        state=client.V1ContainerState(terminated=ended),
    )  # fmt: skip
    return client.V1Pod(status=client.V1PodStatus(container_statuses=[status]))


def node(out: Path) -> Node:
    """The report's stage."""
    config = ReportConfig(workdir=str(out.parent), out=str(out))
    return Node(
        name="report", kind="report", config=config, needs=(),
        fingerprint="wanted", reason="not made yet",
    )  # fmt: skip


def write(out: Path, fingerprint: str, finished: datetime.datetime) -> None:
    """A folder that a stage has made."""
    out.mkdir()
    Manifest(
        stage="report", fingerprint=fingerprint, version=1, config={}, inputs={}, files={},
        figures={}, summary="", seconds=1.0, finished=finished.isoformat(),
    ).write(out)  # fmt: skip


def test_a_job_is_over_when_a_condition_says_so() -> None:
    assert kubernetes.state(job()) is None
    assert kubernetes.state(job(("Complete", "False"), ("Suspended", "True"))) is None
    assert kubernetes.state(job(("FailureTarget", "True"), ("Failed", "True"))) == "Failed"


def test_bad_configuration_is_the_last_word_before_all_else() -> None:
    words = kubernetes.termination_message(
        [pod(75, "peer lost"), pod(2, "error: typo"), pod(0, "")]
    )
    assert words == (2, "error: typo")
    assert kubernetes.termination_message([pod(0, "done")]) == (0, "")


def test_a_complete_job_without_its_folder_is_used_up(tmp_path: Path) -> None:
    members = [node(tmp_path / "report")]
    assert "its Job is used up: kubectl delete job report" in kubernetes.job_exhausted(
        job(), members
    )
    write(tmp_path / "report", "other", BEGAN - datetime.timedelta(hours=1))
    assert "used up" in kubernetes.job_exhausted(job(), members)


def test_images_of_two_builds_are_named_as_the_cause(tmp_path: Path) -> None:
    write(tmp_path / "report", "other", BEGAN + datetime.timedelta(minutes=1))
    assert "images of one build" in kubernetes.job_exhausted(job(), [node(tmp_path / "report")])
