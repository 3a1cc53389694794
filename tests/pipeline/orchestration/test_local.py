"""A run ends as the stage did that ended it: with its words, and with its exit code."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from model.distributed.environment import HOSTFILE
from model.resilience import rank_record
from pipeline.config import ReportConfig
from pipeline.errors import ConfigError, Diverged, Exit, InputError, Restart, UserError
from pipeline.orchestration import run_stage
from pipeline.orchestration.follow import StageFailed, failure
from pipeline.orchestration.local import LocalExecutor
from pipeline.orchestration.run_plan import StageRecord
from pipeline.orchestration.run_stage import Node
from tests.support import finished
from tests.support.refusals import refused


@dataclasses.dataclass(frozen=True, kw_only=True)
class Script(StageRecord):
    """A stage that is a line of Python."""

    line: str


def command(stage):
    return [sys.executable, "-c", stage.line]


def script(folder, kind, line):
    return Script(
        name=kind,
        kind=kind,
        needs=(),
        fingerprint="f",
        reason="not made yet",
        config=ReportConfig(workdir=str(folder), out=str(folder / kind)),
        line=line,
    )


def test_evaluations_are_spread_over_the_gpus(tmp_path, monkeypatch):
    """Each begins with another one, and its processes, if it has several, take the next."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,5")
    line = (
        "import os, time; from pathlib import Path; here = Path.cwd()\n"
        "first, second = os.environ['CUDA_VISIBLE_DEVICES'].split(',')\n"
        "(here / f'{os.getpid()}.gpu').write_text(first)\n"
        "until = time.monotonic() + 20\n"
        "while len([*here.glob('*.gpu')]) < 4 and time.monotonic() < until: time.sleep(0.05)\n"
    )
    monkeypatch.chdir(tmp_path)
    stages = [dataclasses.replace(script(tmp_path, "evaluate", line), name=f"evaluate-{number}") for number in range(4)]
    with pytest.raises(StageFailed):  # they leave no manifest
        LocalExecutor(tmp_path, 4, command).run(stages)
    found = [path.read_text() for path in tmp_path.glob("*.gpu")]
    assert sorted(found) == ["2", "2", "5", "5"]


@pytest.mark.parametrize(
    ("code", "kind", "told"),
    [
        (Exit.USER, UserError, r"a bad value .*train\.log"),
        (Exit.DIVERGED, Diverged, "a bad value"),
        (Exit.RESTART, Restart, "stage train"),
        (Exit.RESTART, Restart, "killed by SIGKILL"),
        (Exit.BUG, StageFailed, "exit code 1"),
        (Exit.DONE, StageFailed, "exit code 0;"),  # and left nothing
    ],
)
def test_the_end_of_a_stage_is_that_of_the_run(tmp_path, code, kind, told):
    errors = [kind("a bad value")] if issubclass(kind, UserError) else []
    if "killed" in told:
        errors = [Restart("lost the others"), Restart("rank-1 was killed by SIGKILL"), Restart("", "run the same")]
    words = "\n".join(json.dumps(error.record()) for error in errors)
    line = f"print({words!r}); raise SystemExit({int(code)})"
    stage = script(tmp_path, "train", line)
    with pytest.raises(kind, match=told) as raised:
        LocalExecutor(tmp_path, 1, command).run([stage])
    assert type(raised.value) is kind


@pytest.mark.parametrize(("live", "mark"), [(True, "\u2713 tasks "), (False, "tasks ")])
def test_a_finished_stage_is_ticked_on_a_terminal(tmp_path, capsys, live, mark):
    (tmp_path / "tasks").mkdir()
    finished.manifest("tasks", fingerprint="f", summary="some rows; warning: too few").write(tmp_path / "tasks")
    executor = LocalExecutor(tmp_path, 1, command)
    executor.live = live
    executor.run([script(tmp_path, "tasks", "")])
    line, warning = capsys.readouterr().out.splitlines()[-2:]
    assert line.startswith(mark)
    assert line.endswith("some rows")
    assert warning == "warning: tasks: too few", "the end of a long line would be cut"


def test_a_line_of_one_of_several_nodes_is_found(tmp_path):
    records = [json.dumps(error.record()) for error in (Restart("SIGTERM"), InputError("is bad", "steps", 1))]
    (tmp_path / "log").write_text(f"1: {records[0]}\n0: {records[1]}\n")
    error = failure("train", Exit.USER, tmp_path / "log")
    assert type(error) is InputError
    assert str(error).startswith("stage train: steps=1: is bad (log: ")


def test_a_killed_stage_has_the_code_of_a_shell(tmp_path):
    (tmp_path / "log").write_text("words\n")
    assert "exit code 137;" in str(failure("vocab", -9, tmp_path / "log"))


def test_a_log_without_room_is_said(tmp_path, monkeypatch):
    (tmp_path / "log").touch()
    monkeypatch.setattr(shutil, "disk_usage", lambda place: SimpleNamespace(free=0))
    error = failure("vocab", Exit.USER, tmp_path / "log")
    assert isinstance(error, InputError)
    assert (error.key, error.where) == ("workdir", "stage vocab")


@pytest.mark.parametrize("again", ["", "rerun the command to finish it"])
def test_why_a_stage_waits_for_another_start_is_told(tmp_path, again):
    error = Restart("s3://b: the store is away", again)
    (tmp_path / "log").write_text(f"some text\nstopped: {error}\n{json.dumps(error.record())}\n")
    error = failure("vocab", Exit.RESTART, tmp_path / "log")
    assert type(error) is Restart
    assert str(error).startswith(f"stage vocab: s3://b: the store is away (log: {tmp_path}/log); ")


SAVED = json.dumps(Restart("rank 0: SIGTERM, saved after step 1,706").record())
SAVES = f"""
import signal, sys, time
def told(number, frame):
    print({SAVED!r}, flush=True)
    sys.exit(75)
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
time.sleep(60)
"""
DIES = "import time; print('ready', flush=True); time.sleep(60)"


@pytest.fixture
def interruptible():
    """SIGINT as a terminal's foreground job has it: a shell's background jobs ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize(
    ("name", "line", "kind", "told", "shown"),
    [
        (
            "train",
            SAVES,
            Restart,
            r"train: rank 0: SIGTERM, saved after step 1,706 \(log: ",
            "stopping: train is saving …\n",
        ),
        ("tasks", DIES, KeyboardInterrupt, "^$", "stopping: tasks is ending …\n"),
    ],
)
@pytest.mark.usefixtures("interruptible")
def test_who_stops_a_run_is_told_what_was_saved(tmp_path, capsys, name, line, kind, told, shown):
    executor = LocalExecutor(tmp_path, 1, command)
    executor.live = True
    log = tmp_path / "logs" / f"{name}.log"

    def stop():
        until = time.monotonic() + 20
        while time.monotonic() < until and not (log.exists() and "ready" in log.read_text()):
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=stop).start()
    with pytest.raises(kind, match=told):
        executor.run([script(tmp_path, name, line)])
    assert capsys.readouterr().out.endswith(shown)


@pytest.mark.usefixtures("interruptible")
def test_a_stage_that_starts_while_its_run_is_stopped_is_stopped_too(tmp_path, capsys):
    def stopped(node):
        os.kill(os.getpid(), signal.SIGINT)
        return command(node)

    with pytest.raises(KeyboardInterrupt):
        LocalExecutor(tmp_path, 1, stopped).run([script(tmp_path, "tasks", DIES)])
    assert capsys.readouterr().out == "stopping: tasks is ending …\n"


def test_stages_end_with_a_run_that_is_killed(tmp_path):
    child = tmp_path / "child"
    code = (
        "import sys, time; from pathlib import Path; from pipeline.orchestration.local import LocalExecutor; "
        "from tests.pipeline.orchestration.test_local import script; "
        "line = f'import os, time; open({sys.argv[1]!r}, \"w\").write(str(os.getpid())); time.sleep(60)'; "
        "word = lambda node: [sys.executable, '-c', line]; folder = Path(sys.argv[1]).parent; "
        "LocalExecutor(folder, 1, word).run([script(folder, 'tasks', line)])"
    )
    run = subprocess.Popen([sys.executable, "-c", code, str(child)], stdout=subprocess.DEVNULL)
    while not (child.exists() and child.read_text()):
        assert run.poll() is None
        time.sleep(0.05)
    run.kill()
    run.wait()
    until = time.monotonic() + 20
    while rank_record.is_running(int(child.read_text())):
        assert time.monotonic() < until
        time.sleep(0.05)


# What a process makes of the environment of its job.


@pytest.fixture(autouse=True)
def bare(monkeypatch):
    for name in ("HOSTS", "SERVICE", "NODES", "GPUS", "PORT", "PARTS"):
        monkeypatch.delenv(f"BERT_{name}", raising=False)
    for name in (run_stage.MASTER, run_stage.TASK):
        monkeypatch.delenv(name, raising=False)


def put(monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_pods_of_a_job_meet_behind_its_service(monkeypatch):
    put(monkeypatch, BERT_SERVICE="ranks", BERT_NODES="2", BERT_GPUS="8", JOB_COMPLETION_INDEX="1")
    node = run_stage.node_of("train-512")
    assert node == Node(1, 8, ("train-512-0.ranks", "train-512-1.ranks"), 29500)
    monkeypatch.setenv(HOSTFILE, "")
    assert run_stage.multi_node_options("train-512") == [
        "--no_ssh",
        "--node_rank",
        "1",
        "--master_addr",
        "train-512-0.ranks",
        "--master_port",
        "29500",
    ]
    assert os.environ[HOSTFILE] == "train-512-0.ranks slots=8\ntrain-512-1.ranks slots=8\n"


def test_nodes_of_another_scheduler_are_listed(monkeypatch):
    put(monkeypatch, BERT_HOSTS="a7,a9", BERT_NODES="2", BERT_GPUS="0", JOB_COMPLETION_INDEX="0", BERT_PORT="4000")
    node = run_stage.node_of("train")
    assert node == Node(0, 0, ("a7", "a9"), 4000)
    monkeypatch.setenv(HOSTFILE, "")
    run_stage.multi_node_options("train")
    assert os.environ[HOSTFILE] == "a7 slots=1\na9 slots=1\n"
    monkeypatch.setenv("BERT_NODES", "3")
    with refused(ConfigError, "BERT_HOSTS=a7,a9", key="BERT_NODES"):
        run_stage.node_of("train")


@pytest.mark.parametrize("missing", ["BERT_SERVICE", "BERT_NODES", "BERT_GPUS", "JOB_COMPLETION_INDEX"])
def test_what_is_missing_is_named(monkeypatch, missing):
    put(monkeypatch, BERT_SERVICE="ranks", BERT_NODES="2", BERT_GPUS="8", JOB_COMPLETION_INDEX="1")
    monkeypatch.delenv(missing)
    with refused(ConfigError, key=missing):
        run_stage.node_of("train")


@pytest.mark.parametrize("text", ["", "two", "-1", "0"])
def test_a_number_has_to_be_one(monkeypatch, text):
    put(monkeypatch, BERT_SERVICE="ranks", BERT_NODES=text, BERT_GPUS="8", JOB_COMPLETION_INDEX="0")
    with pytest.raises(ConfigError, match=f"BERT_NODES='{text}'"):
        run_stage.node_of("train")


def torchrun(monkeypatch, **others):
    """Set what Kubeflow Trainer's torch policy sets in the second of three pods."""
    found = {
        "JOB_COMPLETION_INDEX": "1",
        "PET_NNODES": "3",
        "PET_NPROC_PER_NODE": "4",
        "PET_NODE_RANK": "1",
        "PET_MASTER_ADDR": "train-node-0-0.train",
        "PET_MASTER_PORT": "29400",
    }
    put(monkeypatch, **{**found, **others})


def test_pods_of_a_trainjob_meet_as_torchrun_would(monkeypatch):
    torchrun(monkeypatch)
    names = tuple(f"train-node-0-{index}.train" for index in range(3))
    assert run_stage.node_of("train") == Node(1, 4, names, 29400)
    monkeypatch.setenv("BERT_GPUS", "0")
    assert run_stage.node_of("train").gpus == 0


def test_processes_without_a_number_are_refused(monkeypatch):
    torchrun(monkeypatch, PET_NPROC_PER_NODE="auto")
    with refused(ConfigError, key="PET_NPROC_PER_NODE"):
        run_stage.node_of("train")


def test_tasks_of_slurm_meet_at_a_port_of_their_job(monkeypatch, tmp_path):
    """scontrol, which needs no controller for this, prints the names of a list."""
    (tmp_path / "scontrol").write_text("#!/bin/sh\n[ $3 = a[7,9] ] && printf 'a7\\na9\\n'\n")
    (tmp_path / "scontrol").chmod(0o755)
    put(monkeypatch, SLURM_PROCID="1", SLURM_STEP_NODELIST="a[7,9]", SLURM_STEP_NUM_NODES="2", SLURM_JOB_ID="123456")
    put(monkeypatch, PATH=f"{tmp_path}:/bin:/usr/bin", SLURM_GPUS_ON_NODE="8")
    assert run_stage.node_of("train") == Node(1, 8, ("a7", "a9"), 23456)
    assert run_stage.evaluation_part() == (1, 2)
    put(monkeypatch, SLURM_PROCID="0", SLURM_ARRAY_TASK_ID="3", SLURM_ARRAY_TASK_COUNT="4")
    assert run_stage.evaluation_part() == (3, 4)
