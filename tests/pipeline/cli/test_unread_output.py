"""`| head` loses no work: a stage is finished though nobody reads what it prints."""

import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase

import pytest

from pipeline.common.errors import Exit
from pipeline.common.manifest import Manifest
from pipeline.tokenization.wordpiece import SPECIAL, build

SMALL = "+corpus=sample 'corpus.options.packages=[sklearn]'"
STAGES = {"tasks": f"{SMALL} train_rows=20 dev_rows=10", "vocab": f"{SMALL} size=500 sample_bytes=100000"}


@pytest.mark.parametrize("stage", sorted(STAGES))
def test_a_stage_is_finished_though_nobody_reads_it(root: Path, tmp_path: Path, stage: str) -> None:
    command = f"{sys.executable} -m pipeline.{stage} {STAGES[stage]} out={tmp_path / stage}"
    # The reader is gone before the first line, and everything is written to it.
    script = f"{command} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=root, check=False)
    assert done.returncode == Exit.DONE
    assert Manifest.read(tmp_path / stage) is not None


def test_two_workers_finish_though_nobody_reads_them(root: Path, tmp_path: Path) -> None:
    (tmp_path / "vocab").mkdir()
    letters = build([*SPECIAL, *ascii_lowercase, *(f"##{c}" for c in ascii_lowercase)], True)
    (tmp_path / "vocab" / "tokenizer.json").write_text(letters)
    prepare = (
        f"{sys.executable} -m pipeline.prepare {SMALL} vocab={tmp_path / 'vocab'} "
        f"out={tmp_path / 'prepare'} sequence_length=32 runner.workers=2"
    )
    script = f"{prepare} 2>&1 | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", script], cwd=root, check=False)
    assert done.returncode == Exit.DONE
    assert Manifest.read(tmp_path / "prepare") is not None
