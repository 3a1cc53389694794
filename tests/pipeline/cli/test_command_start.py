"""What goes wrong before a command reads its arguments is one line, too."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support import forked


@pytest.mark.parametrize(
    "words", [["-m", "pipeline.run"], ["-m", "pipeline.inspect"], ["model/train.py"], ["model/preflight.py"]]
)
def test_a_python_without_the_libraries_is_named(words: list[str]) -> None:
    done = forked.fresh("-S", *words)  # -S: without site-packages
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert sys.base_prefix in done.stderr


@pytest.mark.parametrize("name", ["run", "prepare", "inspect"])
def test_a_command_started_by_its_path_is_told_its_name(root: Path, name: str) -> None:
    done = forked.fresh(f"pipeline/{name}.py", env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"python -m pipeline.{name}" in done.stderr


def test_ctrl_c_while_libraries_are_imported_is_one_line(tmp_path: Path) -> None:
    """A library that takes its time: the signal comes when it has begun."""
    (tmp_path / "hydra.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    done = forked.fresh(
        "-m",
        "pipeline.run",
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines() == ["interrupted; rerun the same command"]
