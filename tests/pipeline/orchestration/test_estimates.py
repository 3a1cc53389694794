"""What a run will take, as one line before it starts."""

from pathlib import Path

import pytest

from pipeline.config import ExecutorConfig, RunConfig
from pipeline.orchestration import estimates
from pipeline.records.estimate import Estimate


@pytest.mark.parametrize(("disk", "said"), [(1e6, False), (1e18, True)])
def test_a_disk_that_is_too_small_is_said(disk: float, said: bool, tmp_path: Path) -> None:
    found = {"prepare": Estimate(60.0, disk=disk / 2), "train": Estimate(None, disk=disk / 2)}
    config = RunConfig(workdir=str(tmp_path / "new" / "work"))
    assert ("warning: 1,000,000,000.0 GB" in estimates.line(found, config)) == said
    assert "warning" not in estimates.line(found, RunConfig(workdir="s3://bucket/work"))


@pytest.mark.parametrize(("memory", "said"), [(1e6, False), (1e18, True)])
def test_a_memory_that_is_too_small_is_said_of_this_machine(memory: float, said: bool) -> None:
    found = {"train": Estimate(None, memory=memory), "prepare": Estimate(1.0)}
    assert ("warning: train needs 1,000,000,000.0 GB" in estimates.line(found, RunConfig())) == said
    elsewhere = RunConfig(executor=ExecutorConfig(name="slurm"))
    assert "warning" not in estimates.line(found, elsewhere)
