"""What a process makes of the environment of its job."""

import os
from pathlib import Path

import pytest

from model.distributed.environment import HOSTFILE
from pipeline.errors import ConfigError
from pipeline.orchestration import run_stage
from pipeline.orchestration.run_stage import Node
from tests.support.refusals import refused


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTS", "SERVICE", "NODES", "GPUS", "PORT", "PARTS"):
        monkeypatch.delenv(f"BERT_{name}", raising=False)
    for name in (run_stage.MASTER, run_stage.TASK):
        monkeypatch.delenv(name, raising=False)


def put(monkeypatch: pytest.MonkeyPatch, **variables: str) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_pods_of_a_job_meet_behind_its_service(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, BERT_SERVICE="ranks", BERT_NODES="2", BERT_GPUS="8", JOB_COMPLETION_INDEX="1")
    node = run_stage.node_of("train-512")
    assert node == Node(1, 8, ("train-512-0.ranks", "train-512-1.ranks"), 29500)
    monkeypatch.setenv(HOSTFILE, "")
    assert run_stage.multi_node_options("train-512") == [
        "--no_ssh",
        "--node_rank",
        "1",
        "--master_addr",
        "train-512-0.ranks",
        "--master_port",
        "29500",
    ]
    assert os.environ[HOSTFILE] == "train-512-0.ranks slots=8\ntrain-512-1.ranks slots=8\n"


def test_nodes_of_another_scheduler_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, BERT_HOSTS="a7,a9", BERT_NODES="2", BERT_GPUS="0", JOB_COMPLETION_INDEX="0", BERT_PORT="4000")
    node = run_stage.node_of("train")
    assert node == Node(0, 0, ("a7", "a9"), 4000)
    monkeypatch.setenv(HOSTFILE, "")
    run_stage.multi_node_options("train")
    assert os.environ[HOSTFILE] == "a7 slots=1\na9 slots=1\n"
    monkeypatch.setenv("BERT_NODES", "3")
    with refused(ConfigError, "BERT_HOSTS=a7,a9", key="BERT_NODES"):
        run_stage.node_of("train")


@pytest.mark.parametrize("missing", ["BERT_SERVICE", "BERT_NODES", "BERT_GPUS", "JOB_COMPLETION_INDEX"])
def test_what_is_missing_is_named(monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    put(monkeypatch, BERT_SERVICE="ranks", BERT_NODES="2", BERT_GPUS="8", JOB_COMPLETION_INDEX="1")
    monkeypatch.delenv(missing)
    with refused(ConfigError, key=missing):
        run_stage.node_of("train")


@pytest.mark.parametrize("text", ["", "two", "-1", "0"])
def test_a_number_has_to_be_one(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    put(monkeypatch, BERT_SERVICE="ranks", BERT_NODES=text, BERT_GPUS="8", JOB_COMPLETION_INDEX="0")
    with pytest.raises(ConfigError, match=f"BERT_NODES='{text}'"):
        run_stage.node_of("train")


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
    put(monkeypatch, **{**found, **others})


def test_pods_of_a_trainjob_meet_as_torchrun_would(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun(monkeypatch)
    names = tuple(f"train-node-0-{index}.train" for index in range(3))
    assert run_stage.node_of("train") == Node(1, 4, names, 29400)
    monkeypatch.setenv("BERT_GPUS", "0")
    assert run_stage.node_of("train").gpus == 0


def test_processes_without_a_number_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    torchrun(monkeypatch, PET_NPROC_PER_NODE="auto")
    with refused(ConfigError, key="PET_NPROC_PER_NODE"):
        run_stage.node_of("train")


def test_tasks_of_slurm_meet_at_a_port_of_their_job(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """scontrol, which needs no controller for this, prints the names of a list."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\n[ $3 = a[7,9] ] && printf 'a7\\na9\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    put(monkeypatch, SLURM_PROCID="1", SLURM_STEP_NODELIST="a[7,9]", SLURM_STEP_NUM_NODES="2", SLURM_JOB_ID="123456")
    put(monkeypatch, PATH=f"{tmp_path}:/bin:/usr/bin", SLURM_GPUS_ON_NODE="8")
    assert run_stage.node_of("train") == Node(1, 8, ("a7", "a9"), 23456)
    assert run_stage.evaluation_part() == (1, 2)
    put(monkeypatch, SLURM_PROCID="0", SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_TASK_COUNT="4")
    assert run_stage.evaluation_part() == (3, 4)
