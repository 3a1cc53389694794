"""Training on two machines by ssh, with a real sshd on each: every end is one of the promised ones.

Most tests disturb one and the same run, each going on where the one before left it; the last one
lets it finish, with the weights of two ranks on one machine, bit for bit.
"""

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from pipeline.errors import Exit
from tests.nodes.machines import kill
from tests.nodes.ssh_machines import LAUNCH, PAGE, STEPS, ended, losses, newest, steps, train_on, weights
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.ssh, pytest.mark.timeout(900)]
INTERRUPTIONS = ("SIGINT", "SIGTERM", "SIGHUP")
BY_HAND = "python -m model.launch deepspeed --hostfile HOSTS --no_ssh"


def test_hosts_are_measured_before_a_training(lab):
    words = ["python", "-m", "model.launch", "deepspeed", "--hostfile", str(lab.hostfile)]
    command = lab.start([*words, "model/preflight.py", "--seconds=0.1", "--share=0"])
    assert command.wait() == Exit.DONE, command.text()
    lab.nothing_left()
    assert "2 ranks on 2 nodes" in command.text()
    assert "all-reduce" in command.text()


def test_a_signal_to_the_terminal_saves_on_all_hosts_and_the_same_command_may_follow_at_once(lab):
    for name in INTERRUPTIONS:
        command, out = train_on(lab)
        command.interrupt(signal.Signals[name])
        assert command.wait() == Exit.RESTART, command.text()
        assert f"{name}, saved after step" in command.text()
    ended(lab, command, out, Exit.RESTART, saved=True)


def test_a_closed_terminal_saves_on_all_hosts(lab):
    out = lab.folder / "train"
    before = newest(out)
    words = lab.page("python -m model.launch deepspeed --hostfile HOSTS model", out)
    command = lab.start(["script", "--quiet", "--command", shlex.join(words), "/dev/null"])
    wait_for(lambda: losses(out) > before + 8, "it trains")
    kill(command.named("script")[0])
    command.wait()
    lab.nothing_left()
    assert newest(out) == losses(out) > before


def test_a_signal_to_one_rank_saves_on_all_hosts(lab):
    command, out = train_on(lab)
    lab.rank(1).send_signal(signal.SIGUSR1)
    ended(lab, command, out, Exit.RESTART, saved=True)


def launcher(lab, command):
    kill(command.processes()[0])


def ssh_client(lab, command):
    kill(command.named("ssh -T", "node1")[0])


def ssh_session(lab, command):
    (session,) = lab.machines[1].processes("sshd: root@notty")
    kill(session)


@pytest.mark.parametrize(
    ("what", "code"), [(launcher, -signal.SIGKILL), (ssh_client, Exit.RESTART), (ssh_session, Exit.RESTART)]
)
def test_a_lost_connection_saves_on_all_hosts(lab, what, code):
    command, out = train_on(lab)
    before = newest(out)
    what(lab, command)
    found = command.wait()
    assert found in (code, 128 - code), command.text()
    lab.nothing_left()
    assert newest(out) > before


def test_a_killed_rank_ends_the_others(lab):
    command, out = train_on(lab)
    before = steps(out)
    kill(lab.rank(1))
    ended(lab, command, out, Exit.RESTART, saved=False)
    assert "rank-1 was killed" in command.text()
    assert steps(out) == before


def test_a_link_that_is_cut_for_long_ends_everything(lab):
    command, out = train_on(lab, "timeout=30", "watchdog=40")
    before = steps(out)
    lab.machines[1].link("down")
    time.sleep(5)
    trained = losses(out)
    lab.machines[1].link("up")
    wait_for(lambda: losses(out) > trained + 2, "it trains on")
    lab.machines[1].link("down")
    try:
        assert command.wait(30 + 2 * 60) == Exit.RESTART, command.text()
        wait_for(lambda: not lab.machines[1].processes("model.launch"), "an end of node1's ranks")
    finally:
        lab.machines[1].link("up")
        for session in lab.machines[1].processes("sshd: root@notty"):
            kill(session)  # the system's own: it waits for TCP to give up
    lab.nothing_left()
    assert steps(out) == before
    assert "Traceback" not in command.text()


def test_the_run_ends_as_an_undisturbed_one_though_a_host_is_late(lab, reference):
    (daemon,) = lab.machines[1].processes("sshd: /usr/sbin/sshd -f")
    kill(daemon)
    out = lab.folder / "train"
    command = lab.launch(out)
    time.sleep(10)
    assert command.outer.poll() is None, command.text()
    lab.machines[1].do("/usr/sbin/sshd", "-f", f"{lab.machines[1].folder}/sshd_config")
    ended(lab, command, out, Exit.DONE, saved=False)
    assert losses(out) == STEPS
    assert weights(out) == reference
    assert command.lines("node0: train: ")
    again = lab.launch(out)
    ended(lab, again, out, Exit.DONE, saved=False)
    assert "up to date" in again.text()


def test_output_that_nobody_reads_does_not_end_training(lab, reference):
    out = lab.folder / "unread"
    words = [*LAUNCH, "--hostfile", str(lab.hostfile)]
    line = " ".join([*words, *lab.script(out), "2>&1 | head -2; exit ${PIPESTATUS[0]}"])
    command = lab.start(["bash", "-c", line])
    ended(lab, command, out, Exit.DONE, saved=False)
    assert weights(out) == reference


def test_one_training_does_not_end_another_on_the_same_hosts(lab, reference):
    first, second = lab.folder / "first", lab.folder / "second"
    other = lab.launch(second)
    command = lab.launch(first, "steps=100000")
    wait_for(lambda: losses(first) > 2 and losses(second) > 2, "both train")
    command.interrupt(signal.SIGINT)
    assert command.wait() == Exit.RESTART, command.text()
    assert newest(first) == losses(first) > 0
    ended(lab, other, second, Exit.DONE, saved=False)
    assert weights(second) == reference


def refused(lab, command, code=Exit.USER):
    """The one line of a run that was refused before the first step."""
    assert command.wait() == code, command.text()
    lab.nothing_left()
    assert "Traceback" not in command.text()
    return command.text()


def test_a_folder_that_is_not_shared_is_named(lab):
    out = lab.folder / "unshared"
    out.mkdir()
    lab.machines[1].do("mount", "-t", "tmpfs", "none", str(out))
    said = refused(lab, lab.launch(out))
    lab.machines[1].do("umount", str(out))
    assert "node1 cannot see" in said


def test_data_that_a_host_does_not_see_are_named(lab):
    folder = lab.folder / "work" / "prepare"
    lab.machines[1].do("mount", "-t", "tmpfs", "none", str(folder))
    said = refused(lab, lab.launch(lab.folder / "data"))
    lab.machines[1].do("umount", str(folder))
    (line,) = [line for line in said.splitlines() if "error: " in line]
    assert line.startswith("node1: ")
    assert str(folder) in line


def test_a_host_without_the_project_is_named(lab):
    lab.machines[1].do("mount", "-t", "tmpfs", "none", str(lab.project))
    said = refused(lab, lab.launch(lab.folder / "project"))
    lab.machines[1].do("umount", str(lab.project))
    # An environment that has the package elsewhere gets as far as the script.
    (line,) = [line for line in said.splitlines() if "node1: " in line]
    assert "No module named" in line or "train.py" in line


def test_a_host_without_the_environment_is_named(lab):
    folder = os.path.realpath(Path(sys.executable).parent)
    lab.machines[1].do("mount", "-t", "tmpfs", "none", folder)
    said = refused(lab, lab.launch(lab.folder / "environment-missing"))
    lab.machines[1].do("umount", folder)
    assert "error: node1: " in said
    assert "the same Python" in said


@pytest.mark.parametrize("known_as", ["", "node0", "other"])
def test_a_host_that_one_may_not_log_in_to_is_named(lab, known_as):
    """No host is known, the other is not, or it has another key."""
    known = lab.machines[0].folder / "known_hosts"
    text = known.read_text()
    first = next(line for line in text.splitlines() if line.startswith("node0"))
    another = first.replace("node0", "node1", 1)
    known.write_text({"": "", "node0": f"{first}\n", "other": f"{first}\n{another}\n"}[known_as])
    said = refused(lab, lab.launch(lab.folder / "unknown"))
    known.write_text(text)
    assert f"error: node{1 if known_as else ''}" in said
    assert ": Host key verification failed" in said


def test_a_host_without_an_address_is_named(lab):
    hosts = lab.write_hosts("hosts-9", "node0", "node9")
    assert "error: node9: " in refused(lab, lab.launch(lab.folder / "name", hostfile=hosts))


def test_a_host_that_never_comes_is_named(lab):
    lab.machines[1].link("down")
    try:
        said = refused(lab, lab.launch(lab.folder / "never", "start_timeout=8"), Exit.RESTART)
    finally:
        lab.machines[1].link("up")
    assert "stopped: node1 " in said


def test_settings_and_keys_reach_all_ranks_and_no_command_line(lab):
    out = lab.folder / "an environment"
    environment = {"WANDB_API_KEY": "secret-of-mine", "GLOO_SOCKET_IFNAME": "eth0"}
    braces = "+deepspeed.comms_logger={enabled:false,verbose:false}"
    command = lab.launch(out, "steps=100000", braces, environment=environment)
    wait_for(lambda: losses(out) > 2, "it trains")
    for number, machine in enumerate(lab.machines):
        assert braces in lab.rank(number).cmdline()
        assert f"out={out}" in lab.rank(number).cmdline(), "with its blank"
        inside = Path(f"/proc/{lab.rank(number).pid}/environ").read_text()
        assert "WANDB_API_KEY=secret-of-mine\0" in inside
        assert "GLOO_SOCKET_IFNAME=eth0\0" in inside
        assert not any("secret-of-mine" in line for line in machine.running())
    command.interrupt(signal.SIGINT)
    ended(lab, command, out, Exit.RESTART, saved=True)


def by_hand(lab, number, out, *more):
    """Start one host's part by the page's command, through an ssh of its own."""
    words = [*lab.page(BY_HAND, out, number), *more]
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    remote = f"cd {lab.project}; PATH={path} exec {shlex.join(words)}"
    return lab.start(["ssh", lab.machines[number].name, remote])


def test_a_node_each_by_hand_outlives_its_ssh(lab, reference):
    out = lab.folder / "by-hand"
    clients = [by_hand(lab, number, out) for number in (1, 0)]  # in any order
    wait_for(lambda: losses(out) > 2, "it trains")
    kill(clients[1].named("ssh", "node0")[0])
    assert clients[0].wait() == Exit.DONE, clients[0].text()
    wait_for((out / "manifest.json").exists, "a finished run")
    lab.nothing_left()
    assert weights(out) == reference


@pytest.mark.parametrize("number", [0, 1])
def test_a_rank_that_never_comes_is_named_with_its_host(lab, number):
    said = refused(lab, by_hand(lab, number, lab.folder / "half", "start_timeout=8"), Exit.RESTART)
    assert f"rank {1 - number} (node{1 - number}) did not" in said
    assert "within 8 s" in said
    for noise in ("Thread 0x", "waitForInput", "Exception raised from"):
        assert noise not in said


def test_a_checkpoint_of_two_hosts_goes_on_on_one(lab):
    out = lab.folder / "alone"
    command = lab.start(["nohup", *LAUNCH, "--hostfile", str(lab.hostfile), *lab.script(out)])
    wait_for(lambda: losses(out) > 4, "it trains")
    command.interrupt(signal.SIGHUP)
    trained = losses(out)
    wait_for(lambda: losses(out) > trained + 4, "it trains on without its terminal")
    command.interrupt(signal.SIGINT)
    ended(lab, command, out, Exit.RESTART, saved=True)
    saved = newest(out)
    words = [*LAUNCH, "--num_accelerators", "1", *lab.script(out)]
    log = lab.folder / "command-alone.log"
    command = lab.machines[1].start(words, log, lab.project, {"TMPDIR": f"{lab.folder}/node1/tmp"})
    ended(lab, command, out, Exit.DONE, saved=False)
    assert f"step {saved + 1}/" in command.text()
    assert losses(out) == STEPS


def test_every_command_of_the_page_is_run():
    assert len(PAGE) == 2, "that of the first test, and the one by hand"
