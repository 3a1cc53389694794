"""A process counts the cores that it may use."""

import os
from pathlib import Path

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


def test_gpus_are_those_of_the_environment_or_of_the_driver(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm"):
        (tmp_path / name).touch()
    monkeypatch.setattr(cores, "NVIDIA", tmp_path / "nvidiactl")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    assert cores.gpus() == ["0", "1"]
    for visible, expected in (("", []), ("3,GPU-8f", ["3", "GPU-8f"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        assert cores.gpus() == expected
