"""Whatever a user types wrong gives one line that names it, and exit code 2."""

import subprocess
import sys
from pathlib import Path

import pytest

from pipeline import __version__
from pipeline.cli import entry_point
from pipeline.config import ReportConfig
from pipeline.errors import Exit
from tests.support import forked


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return forked.module(*words)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pipeline.run"], "+corpus=NAME"),
        (["model.train", "data.dir=/nowhere", "workdir=/tmp"], "/nowhere"),
        (["pipeline.evaluate", "task=own", "task.labels=[a,", "b]"], "'task.labels=[a, b]'"),
        (["pipeline.prepare", "+corpus=mix", "corpus.parts={a:{reader:jsonl}}"], "corpus.parts.a.path"),
        (["model.launch"], "command"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path: Path, words: list[str], message: str) -> None:
    place = [] if any(w.startswith(("workdir", "out")) for w in words) else [f"out={tmp_path}/x"]
    place = [] if words[0] in ("pipeline.run", "model.launch") else place
    done = run(*words, *place)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2, done.stderr
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_an_existing_vocabulary_is_taken_without_a_corpus(tmp_path: Path) -> None:
    entries = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n"
    (tmp_path / "vocab.txt").write_text(entries)
    existing = f"existing={tmp_path}/vocab.txt"
    done = run("pipeline.vocab", existing, f"workdir={tmp_path}/work")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "vocab" / "vocab.txt").read_text() == entries
    done = run("pipeline.vocab", existing, "learn=4", f"workdir={tmp_path}/other")
    assert "+corpus=NAME" in done.stderr, "without one nothing can be learnt"


@pytest.mark.parametrize("name", ["~/việt (1).bz2", "/nowhere/việt (1).bz2"])
def test_any_path_may_be_typed(tmp_path: Path, name: str) -> None:
    done = run("pipeline.vocab", "+corpus=wiki", f"corpus.path={name}", f"out={tmp_path}/x")
    assert done.returncode == 2
    assert f"{name.replace('~', str(Path.home()))}: " in done.stderr
    assert "Exception" not in done.stderr


@pytest.mark.parametrize("name", ["download", "vocab", "prepare", "tasks", "convert", "evaluate", "report", "run"])
def test_help_is_given_without_work(name: str) -> None:
    done = run(f"pipeline.{name}", "--help")
    assert done.returncode == 0
    assert "workdir" in done.stdout


@pytest.mark.parametrize("words", ["--cfg job +corpus=own size=777", "+corpus=own size=777 --cfg job"])
def test_options_may_stand_before_and_after_the_keys(tmp_path: Path, words: str) -> None:
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "own.yaml").write_text("name: own\nreader: text\n")
    done = run("pipeline.vocab", "--config-dir", str(tmp_path), *words.split())
    assert "size: 777" in done.stdout, done.stderr


def test_the_version_is_ours() -> None:
    assert run("pipeline.run", "--version").stdout == f"bert-pipeline {__version__}\n"


def test_the_commands_are_listed_one_a_line_and_each_is_there(root: Path) -> None:
    done = run("pipeline")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.partition("\n\n")[0].splitlines()
    assert listed[0].startswith("python -m pipeline.run ")
    commands = {path.stem for path in (root / "conf").glob("*.yaml")} - {"hydra"}
    modules = {line.split()[2].removeprefix("pipeline.") for line in listed if "-m" in line}
    assert modules == commands | {"inspect", "dashboards"}
    assert all(len(line) <= 100 for line in listed)


def test_ctrl_c_says_how_to_resume(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupted(config: ReportConfig) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["report", "workdir=work/mine"])
    with pytest.raises(SystemExit) as ended:
        entry_point.run("report", ReportConfig, interrupted)
    assert ended.value.code == Exit.INTERRUPTED
    said = capsys.readouterr().err
    assert said.startswith("interrupted")
    assert len(said.splitlines()) == 1
