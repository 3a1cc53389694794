"""Stages that are killed, or whose disk fails, at a system call; `make crashes` does all of them."""

import os
import shutil
import subprocess

import pytest

from tests.support import forked


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("stage", ["download", "vocab", "prepare", "train", "convert"])
def test_a_stage_that_crashes_anywhere_ends_as_an_undisturbed_one(stage):
    if (
        os.geteuid()
        or shutil.which("strace") is None
        or subprocess.run(["strace", "-o", "/dev/null", "true"]).returncode
    ):
        pytest.skip("needs root and strace, which make crashes installs, and a machine that lets it trace")
    done = forked.fresh("-m", "tests.support.crash_points", stage, "--cases", "10", "--jobs", "1")
    assert done.returncode == 0, done.stdout + done.stderr
