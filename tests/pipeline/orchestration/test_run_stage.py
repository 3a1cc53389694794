"""What a pod makes of its environment."""

import os

import pytest

from pipeline.common.errors import ConfigError
from pipeline.orchestration import run_stage


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTS", "SERVICE", "NODES", "GPUS", "PORT", "PET_MASTER_ADDR"):
        monkeypatch.delenv(name, raising=False)


def test_pods_of_a_job_meet_behind_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVICE", "ranks")
    assert run_stage.hosts("train-512", 2) == ["train-512-0.ranks", "train-512-1.ranks"]


def test_nodes_of_another_scheduler_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOSTS", "a7,a9")
    assert run_stage.hosts("train", 2) == ["a7", "a9"]
    with pytest.raises(ConfigError, match="HOSTS=a7,a9") as raised:
        run_stage.hosts("train", 3)
    assert raised.value.key == "NODES"


def test_neither_is_an_error() -> None:
    with pytest.raises(ConfigError, match="SERVICE"):
        run_stage.hosts("train", 2)


@pytest.mark.parametrize("text", ["", "two", "-1", "0"])
def test_a_number_has_to_be_one(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("NODES", text)
    with pytest.raises(ConfigError, match=f"NODES='{text}'"):
        run_stage.number("NODES", 1)


def torchrun(monkeypatch: pytest.MonkeyPatch, **others: str) -> None:
    """Set what Kubeflow Trainer's torch policy sets in the second of three pods."""
    found = {
        "JOB_COMPLETION_INDEX": "1",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29400",
    }
    for name, value in {**found, **others}.items():
        monkeypatch.setenv(name, value)


def test_pods_of_a_trainjob_meet_as_torchrun_would(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAIN_HOSTFILE", "")  # restored at the end
    torchrun(monkeypatch)
    words = run_stage.on_many_nodes("train")
    assert words == ["--no_ssh", "--node_rank", "1", "--master_addr", "train-node-0-0.train", "--master_port", "29400"]
    assert os.environ["TRAIN_HOSTFILE"].splitlines() == [f"train-node-0-{index}.train slots=4" for index in range(3)]


def test_own_variables_go_before_those_of_torchrun(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun(monkeypatch, GPUS="0")
    assert (run_stage.number("GPUS", 0), run_stage.number("NODES", 1)) == (0, 3)


def test_processes_without_a_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun(monkeypatch, PET_NPROC_PER_NODE="auto")
    with pytest.raises(ConfigError) as caught:
        run_stage.on_many_nodes("train")
    assert caught.value.key == "PET_NPROC_PER_NODE"
