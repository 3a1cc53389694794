"""A reader who leaves early, or a terminal that is closed, ends no work."""

import os
import pty
import subprocess
import sys
from pathlib import Path
from string import ascii_lowercase

import pytest

from pipeline.errors import Exit
from pipeline.records.manifest import Manifest
from pipeline.tokenization.wordpiece import SPECIAL, build
from tests.support import forked

WORK = """
import sys, time
from pathlib import Path
from tqdm import tqdm
from pipeline.console import output
output.outlive_readers()
for number in range(200):
    print("line", number, flush=True)
    print("line", number, file=sys.stderr)
    tqdm.write("more")
    time.sleep(0.002)
Path(sys.argv[1]).write_text(str(output.is_gone()))
"""


@pytest.mark.parametrize("option", ["-u", "-B"])
def test_work_goes_on_when_its_pipe_has_no_reader(root: Path, tmp_path: Path, option: str) -> None:
    command = f"{sys.executable} {option} -c '{WORK}' {tmp_path}/done 2>&1 | head -3"
    script = ["bash", "-c", f"{command}; exit ${{PIPESTATUS[0]}}"]
    done = subprocess.run(script, cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("line 0\nline 0\n")
    assert (tmp_path / "done").read_text() == "True"


@pytest.mark.parametrize("coding", ["utf-8:strict", "latin-1"])
def test_a_name_of_any_bytes_can_be_said(root: Path, coding: str) -> None:
    code = "from pipeline.console import output; output.outlive_readers(); print('c\\udce9 \u2588')"
    done = forked.fresh("-c", code, env=os.environ | {"PYTHONIOENCODING": coding, "PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith(r"c\udce9 ")


def test_work_goes_on_when_its_terminal_is_closed(root: Path, tmp_path: Path) -> None:
    terminal, end = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-c", WORK, str(tmp_path / "done")],
        cwd=root,
        stdout=end,
        stderr=end,
        env=os.environ | {"PYTHONPATH": str(root)},
    )
    os.close(end)
    assert os.read(terminal, 10)
    os.close(terminal)
    assert process.wait(60) == 0
    assert (tmp_path / "done").read_text() == "True"


@pytest.mark.parametrize(
    ("closed", "gone"), [(">&-", "False"), ("2>&-", "False"), (">&- 2>&-", "False"), ("> /dev/full", "True")]
)
def test_work_goes_on_without_any_output_or_on_a_full_disk(root: Path, tmp_path: Path, closed: str, gone: str) -> None:
    command = f"{sys.executable} -c '{WORK}' {tmp_path}/done {closed}"
    assert subprocess.run(["bash", "-c", command], cwd=root, check=False).returncode == 0
    assert (tmp_path / "done").read_text() == gone


@pytest.mark.parametrize(("records", "code"), [("", Exit.USER), ("BERT_ERRORS=1", Exit.DONE)])
def test_a_command_whose_output_was_cut_says_so_at_its_end(root: Path, records: str, code: int) -> None:
    work = "from pipeline.cli import entry_point; entry_point.run_guarded(lambda: print(1))"
    command = f"env {records} {sys.executable} -c '{work}' > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=root, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert done.stderr.startswith("error: standard output: no space left" if code else "")


SMALL = "+corpus=sample 'corpus.options.packages=[sklearn]'"


@pytest.mark.slow
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
