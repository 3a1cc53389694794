"""Folders that earlier code made are recognised: nothing is made again, what was begun goes on."""

import os
import re
import shlex
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest

from pipeline.common.errors import Exit

pytestmark = [pytest.mark.slow, pytest.mark.shared_data]


@pytest.fixture(scope="module")
def earlier(shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[str]]:
    """A folder with what each commit left, and the commands that made it."""
    runs = shared_data.parent / "runs"
    if not runs.is_dir():
        pytest.skip(f"runs of earlier code are not here: {runs}")
    top = tmp_path_factory.mktemp("earlier")
    for archive in runs.glob("*.tar.xz"):
        with tarfile.open(archive) as file:
            file.extractall(top / "work", filter="data")  # times are part of fingerprints
    text = (runs / "README.md").read_text()
    return top, re.findall(r"`(python -m pipeline\.\w+ [^`]+)`", text)


def start(root: Path, top: Path, command: str) -> "subprocess.Popen[str]":
    words = [sys.executable, *shlex.split(command)[1:]]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.Popen(words, cwd=top, env=environment, text=True, stdout=subprocess.PIPE)


def test_every_stage_of_a_finished_run_is_up_to_date(root: Path, earlier: tuple[Path, list[str]]) -> None:
    top, commands = earlier
    (command,) = (each for each in commands if "pipeline.run " in each)
    said = start(root, top, f"{command} dry_run=true").communicate()[0]
    assert len(re.findall(r"cached$", said, re.MULTILINE)) == 7


def test_a_stopped_training_resumes_after_its_last_step(root: Path, earlier: tuple[Path, list[str]]) -> None:
    top, commands = earlier
    (command,) = (each for each in commands if "pipeline.train " in each)
    saved = sorted((top / "work/old/stopped").glob("checkpoints/*/step-*"))
    with start(root, top, command) as process:
        assert process.stdout is not None
        said = next(line for line in process.stdout if "resum" in line)
        time.sleep(1)
        process.send_signal(signal.SIGTERM)
        process.stdout.read()
    assert process.returncode == Exit.RESTART
    assert "27" in said
    now = sorted((top / "work/old/stopped").glob("checkpoints/*/step-*"))
    assert {path.parent for path in now} == {path.parent for path in saved}
    assert now[-1].name > saved[-1].name == "step-00000027"
