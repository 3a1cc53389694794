"""Stages that are killed, or whose disk fails, at a system call; `make crashes` does all of them."""

import shutil

import pytest

from tests import forked


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", ["vocab", "prepare", "train", "convert"])
def test_a_stage_that_crashes_anywhere_ends_as_an_undisturbed_one(stage: str) -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed; make crashes installs it")
    done = forked.fresh("-m", "tests.crash_points", stage, "--cases", "10", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
