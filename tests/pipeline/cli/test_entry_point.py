"""Whatever a user types wrong gives one line that names it, and exit code 2."""

import os
import signal
import sys

import pytest

from pipeline import __version__
from pipeline.cli import entry_point
from pipeline.config import ReportConfig
from pipeline.console.formatting import duration, moment
from pipeline.errors import Exit
from pipeline.orchestration.local import last_line
from tests.support import forked


def run(*words):
    return forked.module(*words)


MISTAKES = {
    "pipeline.run": "+corpus=NAME",
    "model.train data.dir=/nowhere workdir=/tmp": "/nowhere",
    "pipeline.evaluate out=OUT task=own task.labels=[a, b]": "'task.labels=[a, b]'",
    "pipeline.prepare out=OUT +corpus=mix corpus.parts={a:{reader:jsonl}}": "corpus.parts.a.path",
    "model.launch": "command",
}


@pytest.mark.parametrize(("words", "message"), MISTAKES.items())
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, words, message):
    done = run(*words.replace("OUT", f"{tmp_path}/x").split())
    errors = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert done.returncode == 2, done.stderr
    assert len(errors) == 1
    assert message in errors[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_an_existing_vocabulary_is_taken_without_a_corpus(tmp_path):
    entries = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nword\n"
    (tmp_path / "vocab.txt").write_text(entries)
    existing = f"existing={tmp_path}/vocab.txt"
    done = run("pipeline.vocab", existing, f"workdir={tmp_path}/work")
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "work" / "vocab" / "vocab.txt").read_text() == entries
    done = run("pipeline.vocab", existing, "learn=4", f"workdir={tmp_path}/other")
    assert "+corpus=NAME" in done.stderr, "without one nothing can be learnt"


@pytest.mark.parametrize("name", ["download", "vocab", "prepare", "tasks", "convert", "evaluate", "report", "run"])
def test_help_is_given_without_work(name):
    done = run(f"pipeline.{name}", "--help")
    assert done.returncode == 0
    assert "workdir" in done.stdout
    assert name != "run" or run("pipeline.run", "--version").stdout == f"bert-pipeline {__version__}\n"


@pytest.mark.parametrize("words", ["--cfg job +corpus=own size=777", "+corpus=own size=777 --cfg job"])
def test_options_may_stand_before_and_after_the_keys(tmp_path, words):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "own.yaml").write_text("name: own\nreader: text\n")
    done = run("pipeline.vocab", "--config-dir", str(tmp_path), *words.split())
    assert "size: 777" in done.stdout, done.stderr


def test_the_commands_are_listed_one_a_line_and_each_is_there(root):
    done = run("pipeline")
    assert done.returncode == 0, done.stderr
    listed = done.stdout.partition("\n\n")[0].splitlines()
    assert listed[0].startswith("python -m pipeline.run ")
    commands = {path.stem for path in (root / "conf").glob("*.yaml")} - {"hydra"}
    modules = {line.split()[2].removeprefix("pipeline.") for line in listed if "-m" in line}
    assert modules == commands | {"inspect", "dashboards"}
    assert all(len(line) <= 100 for line in listed)


def test_ctrl_c_says_how_to_resume(monkeypatch, capsys):
    def interrupted(config):
        raise KeyboardInterrupt

    monkeypatch.setattr(sys, "argv", ["report", "workdir=work/mine"])
    with pytest.raises(SystemExit) as ended:
        entry_point.run("report", ReportConfig, interrupted)
    assert ended.value.code == Exit.INTERRUPTED
    said = capsys.readouterr().err
    assert said.startswith("interrupted")
    assert len(said.splitlines()) == 1


# What goes wrong before a command reads its arguments is one line, too.


@pytest.mark.parametrize(
    "words", [["-m", "pipeline.run"], ["-m", "pipeline.inspect"], ["model/train.py"], ["model/preflight.py"]]
)
def test_a_python_without_the_libraries_is_named(words):
    done = forked.fresh("-S", *words)  # -S: without site-packages
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert any(each in done.stderr for each in (sys.base_prefix, sys.prefix)), "the second from Python 3.14 on"


@pytest.mark.parametrize("name", ["run", "prepare", "inspect"])
def test_a_command_started_by_its_path_is_told_its_name(root, name):
    done = forked.fresh(f"pipeline/{name}.py", env={**os.environ, "PYTHONPATH": str(root)})
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.splitlines()) == 1, done.stderr
    assert f"python -m pipeline.{name}" in done.stderr


def test_ctrl_c_while_libraries_are_imported_is_one_line(tmp_path):
    """A library that takes its time: the signal comes when it has begun."""
    (tmp_path / "hydra.py").write_text("import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(60)\n")
    usual, env = lambda: signal.signal(signal.SIGINT, signal.default_int_handler), {"PYTHONPATH": str(tmp_path)}
    done = forked.fresh("-m", "pipeline.run", env=os.environ | env, preexec_fn=usual)
    assert done.returncode == 130, done.stderr
    assert done.stderr.splitlines() == ["interrupted; rerun the same command"]


# What a person sees while a run works: what a stage said last, times as people say them.


def test_what_a_stage_says_is_shown_and_not_what_its_launcher_says(tmp_path):
    log = tmp_path / "train.log"
    log.write_text("")
    assert last_line(log) == ""
    noise = "[2026-11-21 09:19:27,546] [WARNING] [real_accelerator.py:213:get] Setting …\n"
    log.write_text(f"step 5/60: loss 3.1\n{noise}\n  \n")
    assert last_line(log) == "step 5/60: loss 3.1"
    log.write_text(noise[:-1] * 40 + "\n")  # as long as the launcher's command line
    assert last_line(log) == ""


def test_times_are_as_people_say_them():
    said = {0.0: "0.0 s", 9.94: "9.9 s", 9.96: "10.0 s", 59.4: "59 s", 59.6: "1 min 00 s", 434: "7 min 14 s"}
    said |= {3599.7: "1 h 00 min", 360_000: "100 h 00 min"}
    assert {seconds: duration(seconds) for seconds in said} == said
    assert moment("2026-01-31T10:05:59+01:00") == "2026-01-31 09:05 UTC"
