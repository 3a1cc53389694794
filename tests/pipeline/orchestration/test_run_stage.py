"""What a pod makes of its environment."""

import pytest

from pipeline.common.errors import ConfigError
from pipeline.orchestration import run_stage


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HOSTS", "SERVICE", "NODES"):
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
