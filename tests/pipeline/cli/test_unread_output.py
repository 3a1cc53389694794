"""`| head` loses no work: a stage is finished though nobody reads what it prints."""

import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase

from pipeline.common.errors import Exit
from pipeline.common.manifest import Manifest
from pipeline.tokenization.wordpiece import SPECIAL, build

SMALL = "+corpus=sample 'corpus.options.packages=[sklearn]'"


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
