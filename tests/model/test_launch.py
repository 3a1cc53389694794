"""The first process of a training container: one exit code, signals passed on, none left behind."""

import os
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from model.launching import rank_endings
from model.launching.local_ranks import verdict
from pipeline.errors import Exit
from tests.support import forked

ROOT = Path(__file__).parents[2]
RANKS = {"rank-0": 11, "rank-1": 12}
DONE, USER, DIVERGED, BUG, AGAIN = (Exit.DONE, Exit.USER, Exit.DIVERGED, Exit.BUG, Exit.RESTART)

# A rank: begins, waits for SIGTERM, "saves" for a second, leaves with 75.
RANK = """
import sys, time
from pathlib import Path
from model.resilience import rank_record
from model.resilience.watchdog import Watchdog
rank_record.begin_rank()
watchdog = Watchdog(0, 60, 60, None)
watchdog.training()
Path(sys.argv[1], "begun").touch()
while watchdog.signal is None:
    time.sleep(0.05)
time.sleep(1)
Path(sys.argv[1], "saved").touch()
rank_record.end_rank(75)
sys.exit(75)
"""
# A launcher: starts the rank, and ends at once with code 0 at SIGTERM, as deepspeed's outer one.
LAUNCHER = f"""
import subprocess, sys
subprocess.Popen([sys.executable, "-c", {RANK!r}, *sys.argv[1:]]).wait()
"""


VERDICTS = [(0, (DONE, DONE), DONE), (0, (DONE,), AGAIN), (1, (USER, AGAIN), USER), (1, (BUG, USER), USER)]
VERDICTS += [(1, (AGAIN, other), other) for other in (DIVERGED, BUG)]
VERDICTS += [(-9, (each, each), AGAIN) for each in (AGAIN, DONE)]


@pytest.mark.parametrize(("launcher", "codes", "expected"), VERDICTS)
def test_what_a_person_must_see_outweighs_what_a_restart_mends(launcher, codes, expected):
    assert verdict(launcher, RANKS, dict(zip(RANKS, codes, strict=False))) == expected


def test_without_ranks_the_launchers_own_code_counts():
    assert (verdict(2, {}, {}), verdict(-15, {}, {})) == (2, AGAIN)


def stopped(process, number=signal.SIGTERM):
    """What is said when a signal, if any, ends it with the code that asks for a restart."""
    if number:
        process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.RESTART
    return said


def start(script, folder):
    """Start a launcher below `model.launch`; it makes the file `begun`."""
    command = [sys.executable, "-m", "model.launch", sys.executable, "-c", script, str(folder)]
    pipes = {"text": True, "stderr": subprocess.PIPE, "start_new_session": True}
    process = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, **pipes)
    while not (folder / "begun").exists():
        assert process.poll() is None
        time.sleep(0.05)
    return process


@pytest.fixture
def job(tmp_path):
    return start(LAUNCHER, tmp_path)


def descendants(pid):
    import psutil

    return [child.pid for child in psutil.Process(pid).children(recursive=True)]


def test_a_signal_reaches_the_ranks_which_have_time_to_save(job, tmp_path):
    assert stopped(job).startswith("stopped:")
    assert (tmp_path / "saved").exists()


def test_a_rank_that_is_killed_is_named(job):
    os.kill(descendants(job.pid)[-1], signal.SIGKILL)
    said = stopped(job, None)
    assert said.startswith("stopped: rank-0 ")
    assert "killed" in said


# A rank that has nothing to save yet, and leaves no word when a signal ends it.
UNREADY = """
import subprocess, sys
rank = 'import sys, time; from pathlib import Path; from model.resilience import rank_record; ' \\
       'rank_record.begin_rank(); Path(sys.argv[1], "begun").touch(); time.sleep(60)'
subprocess.Popen([sys.executable, "-c", rank, *sys.argv[1:]]).wait()
"""


def test_a_signal_before_the_first_step_is_not_called_a_lack_of_memory(tmp_path):
    said = stopped(start(UNREADY, tmp_path), signal.SIGINT)
    assert "stopped: SIGINT " in said
    assert "memory" not in said


@pytest.mark.parametrize(("code", "name"), [(-9, "SIGKILL"), (247, "SIGKILL"), (137, "SIGKILL"), (1, None), (75, None)])
def test_a_signal_is_read_from_an_exit_code(code, name):
    assert rank_endings.signal_name(code) == name


def test_memory_is_named_where_the_kernel_counted_it():
    now = rank_endings.oom_kills()
    assert now, "neither /proc/vmstat nor memory.events can be read"
    place = next(iter(now))
    said = rank_endings.describe({place: now[place] - 1}, ["rank-0"], [], -9)
    assert said.startswith("rank-0 ")
    assert "out of memory" in said
    uncounted = rank_endings.describe(now, ["rank-0"], [], 247)
    assert "no kill" in uncounted
    assert "out of memory" not in uncounted
    assert rank_endings.describe(now, [], [], 0) == ""


@pytest.mark.parametrize("killed", ["the launcher", "who started it"])
def test_ranks_that_outlive_their_launcher_save_and_none_is_left(job, tmp_path, killed):
    everyone = descendants(job.pid)
    os.kill(everyone[0] if killed == "the launcher" else job.pid, signal.SIGKILL)
    job.communicate(timeout=60)
    assert job.returncode == (Exit.RESTART if killed == "the launcher" else -signal.SIGKILL)
    until = time.monotonic() + 10  # a killed one stays until its parent looks
    while left := [pid for pid in everyone if Path(f"/proc/{pid}").exists()]:
        assert time.monotonic() < until, f"{left} live on"
        time.sleep(0.05)
    assert (tmp_path / "saved").exists()


# A launcher that starts a command at each signal, as deepspeed's with several hosts does, and ends soon.
STORM = """
import signal, sys, time
from pathlib import Path
def told(number, frame):
    global until
    until = time.monotonic() + 0.5
    with open(sys.argv[1] + "/told", "a") as file:
        file.write("told\\n")
until = time.monotonic() + 60
signal.signal(signal.SIGTERM, told)
Path(sys.argv[1], "begun").touch()
while time.monotonic() < until:
    time.sleep(0.1)
"""


@pytest.mark.parametrize("by_scheduler", [False, True])
def test_a_launcher_without_ranks_is_told_once(tmp_path, by_scheduler):
    """By us, unless by a scheduler, which signals all processes of a job."""
    process = start(STORM, tmp_path)
    if by_scheduler:
        os.kill(descendants(process.pid)[-1], signal.SIGTERM)
    stopped(process)
    assert (tmp_path / "told").read_text().count("told") == 1


# A rank that the watchdog ends before there is anything to save.
EARLY = """
import sys, time
from pathlib import Path
from model.resilience import rank_record
from model.resilience.watchdog import Watchdog
rank_record.begin_rank()
Watchdog(0, 60.0, 60.0, None)
Path(sys.argv[1], "begun").touch()
time.sleep(60)
"""


def test_a_rank_that_leaves_early_was_not_killed(tmp_path):
    said = stopped(start(EARLY, tmp_path))
    assert "SIGTERM" in said
    assert "killed" not in said


# A launcher that looks at its rank too late.
SLOW = UNREADY.replace("subprocess.Popen", "import time; child = subprocess.Popen").replace(
    ".wait()", "; time.sleep(3); child.wait()"
)


def test_a_rank_that_was_killed_before_a_signal_came_is_named(tmp_path):
    """Another host sends it, as it has lost that rank."""
    process = start(SLOW, tmp_path)
    os.kill(descendants(process.pid)[-1], signal.SIGKILL)
    time.sleep(1)
    said = stopped(process)
    assert said.startswith("stopped: rank-0 ")
    assert "killed" in said


@pytest.mark.slow
def test_launchers_are_found_where_the_environment_is_not_activated(tmp_path):
    done = forked.fresh(
        *shlex.split("-m model.launch torchrun --help"),
        cwd=tmp_path,
        env={**os.environ, "PATH": os.defpath, "PYTHONPATH": str(ROOT)},
    )
    assert "--nproc" in done.stdout, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("command", ["train", "preflight"])
def test_the_gpus_that_a_scheduler_gave_are_those_of_the_ranks(tmp_path, command):
    (tmp_path / "hosts").write_text("here slots=2\n")
    (tmp_path / "rank.py").write_text(
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); import model.{command}\n"
        'line = f\'rank {os.environ["LOCAL_RANK"]} {os.environ["CUDA_VISIBLE_DEVICES"]}\'\n'
        "os.write(1, (line + chr(10)).encode())"  # one call: the ranks share the pipe
    )
    launcher = str(Path(sys.executable).with_name("deepspeed"))
    node = [*shlex.split("--no_ssh --node_rank 0 --master_addr 127.0.0.1 --no_local_rank"), tmp_path / "rank.py"]
    env = os.environ | {"CUDA_VISIBLE_DEVICES": "2,3"}
    done = forked.fresh("-m", "model.launch", launcher, "--hostfile", tmp_path / "hosts", *node, env=env)
    said = done.stdout + done.stderr
    assert {"rank 0 2,3", "rank 1 2,3"} <= set(done.stdout.splitlines()), said
    assert "[INFO]" not in said  # the launcher's log


@pytest.mark.slow
def test_a_number_of_ranks_keeps_to_the_gpus_that_are_visible(tmp_path):
    (tmp_path / "rank.py").write_text(
        f"import os, sys; sys.path.insert(0, {str(ROOT)!r}); import model\n"
        "os.write(1, (os.environ['CUDA_VISIBLE_DEVICES'] + chr(10)).encode())"
    )
    launcher = str(Path(sys.executable).with_name("deepspeed"))
    words = [launcher, "--num_accelerators", "2", "--no_local_rank", tmp_path / "rank.py"]
    done = forked.fresh("-m", "model.launch", *words, env=os.environ | {"CUDA_VISIBLE_DEVICES": "2,3"})
    assert done.stdout.splitlines() == ["2,3", "2,3"], done.stdout + done.stderr
