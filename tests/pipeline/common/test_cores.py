"""A process counts the cores that it may use."""

import os

import pytest

from pipeline.common import cores


def test_those_of_its_affinity(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    before = os.sched_getaffinity(0)
    assert cores.available() == len(before)
    try:
        os.sched_setaffinity(0, {min(before)})
        assert cores.available() == 1
    finally:
        os.sched_setaffinity(0, before)


def test_no_more_than_slurm_gave(monkeypatch: pytest.MonkeyPatch) -> None:
    for given, expected in (("1", 1), ("4096", len(os.sched_getaffinity(0)))):
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", given)
        assert cores.available() == expected
