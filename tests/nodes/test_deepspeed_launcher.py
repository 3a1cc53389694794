"""DeepSpeed's own launcher on two machines: what the page says it does, and its replacement."""

import contextlib
import signal
import subprocess

import pytest

from pipeline.errors import Exit
from tests.nodes.machines import kill
from tests.nodes.ssh_machines import LAUNCH, ended, losses, newest, steps, weights
from tests.support.waiting import wait_for

pytestmark = [pytest.mark.ssh, pytest.mark.timeout(900)]


def end(command):
    """Kill the launcher and what it started here."""
    for process in command.processes():
        with contextlib.suppress(ProcessLookupError):
            kill(process)
    command.wait()


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_signal_ends_all_trainings_of_a_user(lab, name):
    first, second = lab.folder / f"plain-{name}-1", lab.folder / f"plain-{name}-2"
    command = lab.plain(first, "steps=100000")
    other = lab.plain(second, "steps=100000", options=("--master_port", "29501"))
    wait_for(lambda: losses(first) > 2 and losses(second) > 2, "both train")
    if name == "SIGINT":
        refused_port(lab, first)
    command.interrupt(signal.Signals[name])
    assert command.wait() == 1, command.text()
    assert other.wait() == 0, "though it is not done"
    lab.nothing_left()
    for out in (first, second):  # though each step prints a line, which nobody reads
        assert newest(out) == losses(out) > 0


def refused_port(lab, first):
    """A second training finds the port taken, which is the same for all; the first trains on."""
    command = lab.plain(lab.folder / "plain-meets")
    assert command.wait() not in (Exit.DONE, Exit.RESTART), command.text()
    assert "master_port=29500" in command.text()
    before = losses(first)
    wait_for(lambda: losses(first) > before, "the first trains on")


def test_a_killed_rank_and_a_cut_link_have_no_code_of_ours(lab):
    out = lab.folder / "plain"
    command = lab.plain(out)
    wait_for(lambda: "step 3/" in command.text(), "it trains")
    kill(lab.rank(1))
    assert command.wait() not in list(Exit), command.text()
    lab.nothing_left()
    assert steps(out) == []
    command = lab.plain(out, "timeout=30", "watchdog=40")
    wait_for(lambda: "step 3/" in command.text(), "it trains")
    lab.machines[1].link("down")
    try:
        wait_for(lambda: not lab.ranks(0) and not lab.ranks(1), "an end of the ranks")
        with pytest.raises(subprocess.TimeoutExpired):  # it waits for ever
            command.wait(10)
        end(command)
    finally:
        lab.machines[1].link("up")
        for session in lab.machines[1].processes("sshd: root@notty"):
            kill(session)
    lab.nothing_left()
    assert steps(out) == []


def test_it_trains_on_unsupervised_when_its_connections_are_lost(lab, reference):
    """The run that a killed rank and a cut link have disturbed."""
    out = lab.folder / "plain"
    command = lab.plain(out)
    wait_for(lambda: "step 3/" in command.text(), "it trains")
    clients = command.named("pdsh")
    kill(command.processes()[0])
    for client in clients:
        kill(client)
    command.wait()
    wait_for((out / "manifest.json").exists, "a finished run")
    lab.nothing_left()
    assert weights(out) == reference


def test_braces_in_arguments_are_expanded(lab):
    braces = "+deepspeed.comms_logger={enabled:false,verbose:false}"
    command = lab.plain(lab.folder / "plain-braces", braces)
    assert command.wait() == Exit.USER, command.text()
    assert "comms_logger" in command.text()
    lab.nothing_left()


LISTED = {"MINE_COMMA": "one,two", "MINE_BLANK": "one two", "MINE_QUOTE": 'say "hi"', "MINE_DOLLAR": "$HOME/x"}
MANGLED = {"MINE_QUOTE": "say hi", "MINE_DOLLAR": "/root/x"}


def test_uneven_slots_and_the_file_of_variables(lab):
    """Both launchers send the file's variables to all ranks; only ours leaves them as they are."""
    (lab.project / ".deepspeed_env").write_text("".join(f"{k}={v}\n" for k, v in LISTED.items()))
    hostfile = lab.write_hosts("uneven", "node0", "node1", slots=(1, 2))
    found = []
    for start, variables in ((lab.plain, LISTED | MANGLED), (lab.launch, LISTED)):
        out = lab.folder / f"uneven-{len(found)}"
        command = start(out, "steps=20", hostfile=hostfile)
        wait_for(lambda: len(lab.ranks(0)) == 1 and len(lab.ranks(1)) == 2, "three ranks")
        for rank in (*lab.ranks(0), *lab.ranks(1)):
            assert variables.items() <= rank.environ().items()
        ended(lab, command, out, Exit.DONE, saved=False)
        found.append(weights(out))
    (lab.project / ".deepspeed_env").unlink()
    out = lab.folder / "even"
    command = lab.start([*LAUNCH, "--num_accelerators", "3", *lab.script(out, "steps=20")])
    ended(lab, command, out, Exit.DONE, saved=False)
    assert found == [weights(out)] * 2
