"""Training outlives its terminal: a closed pipe changes nothing, a hang-up saves."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pipeline.errors import Exit
from pipeline.records.manifest import Manifest
from tests.model.conftest import SMALL, losses
from tests.model.test_train import start
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.timeout(900), pytest.mark.slow]


def test_training_goes_on_when_nobody_reads_what_it_prints(root, work, tmp_path):
    words = [sys.executable, "model/train.py", f"workdir={work}", f"out={tmp_path / 'train'}"]
    script = f"{' '.join([*words, *SMALL])} 2>&1 | head -1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=root, check=False)
    assert done.returncode == Exit.DONE
    assert Manifest.read(tmp_path / "train") is not None
    assert len(losses(tmp_path / "train")) == 12


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hang_up_saves_unless_nohup_ignores_it(root, work, tmp_path, ignored):
    out = tmp_path / "train"
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        process = start(root, work, out, "steps=100", "save_every=1000")
    finally:
        signal.signal(signal.SIGHUP, before)
    wait_for(lambda: len(losses(out)) >= 5)
    os.kill(process.pid, signal.SIGHUP)  # a closed terminal tells all of the group
    for line in Path("/proc").glob("[0-9]*/cmdline"):
        words = line.read_bytes() if line.exists() else b""
        if f"out={out}".encode() in words and b"--local_rank" in words:
            os.kill(int(line.parent.name), signal.SIGHUP)
    wait_for(lambda: bool(list(out.glob("checkpoints/*/step-*"))))
    process.wait(300)
    wait_for(lambda: (out / "manifest.json").exists() or not ignored)
    assert (Manifest.read(out) is not None) == ignored
