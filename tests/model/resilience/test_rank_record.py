"""What ranks of one node leave in a folder for their launcher."""

import threading
from pathlib import Path

import pytest

from model.distributed.environment import RANKS
from model.resilience import rank_record


def test_of_many_ranks_with_one_error_one_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANKS, str(tmp_path))
    ready = threading.Barrier(8)
    said: list[bool] = []

    def rank() -> None:
        ready.wait()
        said.append(rank_record.is_first("error: data.dir=X: not found"))

    ranks = [threading.Thread(target=rank) for _ in range(8)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    assert sorted(said) == [False] * 7 + [True]
    assert rank_record.is_first("error: data.dir=Y: not found")


def test_without_a_launcher_every_rank_says_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RANKS, raising=False)
    assert rank_record.is_first("error: x")
    assert rank_record.is_first("error: x")


def test_a_rank_whose_launcher_is_gone_says_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANKS, str(tmp_path / "gone"))
    assert rank_record.is_first("error: x")


def test_a_rank_that_torchrun_starts_again_has_no_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RANKS, str(tmp_path))
    monkeypatch.setenv("RANK", "1")
    rank_record.begin_rank()
    rank_record.end_rank(75)
    rank_record.begin_rank()  # the launcher passes signals only to ranks without a code
    assert [path.name for path in tmp_path.iterdir()] == ["rank-1.pid"]
