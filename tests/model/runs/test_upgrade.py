"""A training that one release began goes on under the next one, whose schema has new options."""

import shutil
import signal
import subprocess
import sys

import pytest

from model.tracking.metrics_file import read_metrics
from pipeline.errors import Exit
from tests.model.conftest import SMALL
from tests.support.waiting import wait_for

pytestmark = pytest.mark.slow

SETTING = "    clip: float"


@pytest.fixture(scope="module")
def release(root, tmp_path_factory):
    """A copy of the code, to change."""
    tree = tmp_path_factory.mktemp("release")
    for folder in ("conf", "model", "pipeline"):
        shutil.copytree(root / folder, tree / folder, ignore=shutil.ignore_patterns("__pycache__"))
    return tree


def start(tree, work, out, log):
    words = [*SMALL, "steps=4000", "save_every=50", "evaluate_every=9999", f"workdir={work}", f"out={out}"]
    with log.open("wb") as file:
        return subprocess.Popen([sys.executable, "model/train.py", *words], cwd=tree, stdout=file, stderr=file)


def saved(out):
    """The step of the newest checkpoint; 0 before there is one."""
    names = [path.name for path in out.glob("checkpoints/*/step-*")]
    return max((int(name.removeprefix("step-")) for name in names), default=0)


def interrupted_after(step, process, out, log):
    """Interrupt a training once it has saved beyond `step`; the step that it saved then."""
    wait_for(lambda: saved(out) > step or process.poll() is not None)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == Exit.RESTART, log.read_text()
    return saved(out)


def test_a_new_option_does_not_begin_a_training_again(release, work, tmp_path):
    out, log = tmp_path / "train", tmp_path / "log"
    first = interrupted_after(0, start(release, work, out, log), out, log)
    schema = release / "model/config/training.py"
    text = schema.read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(SETTING)]
    schema.write_text(text.replace(line, f"{line}\n    brand_new: float = 0.5  # of a new release"))
    second = interrupted_after(first, start(release, work, out, log), out, log)
    steps = [row["step"] for row in read_metrics(out) if "loss" in row]
    assert (steps, len(list((out / "checkpoints").iterdir()))) == (list(range(1, second + 1)), 1)
