"""What comes to a rank over the network is data, and of a rank that knows the training's secret."""

import json
import os
import socket
import subprocess
import sys
import threading
import time
from datetime import timedelta

import pytest
from torch._C._distributed_c10d import HashStore, TCPStore

from model.distributed import rendezvous
from model.distributed.environment import SECRET
from model.distributed.rank_card import RankCard
from model.launch import launch_here
from model.launching.command_line import LauncherCommand, read_hosts
from model.launching.local_ranks import Launch
from model.launching.ssh_hosts import SshHosts
from pipeline.common.ports import free_port
from pipeline.errors import ConfigError, Restart
from tests.model.distributed.test_rendezvous import meet, rank
from tests.support import forked
from tests.support.refusals import refused

CARD = RankCard("run", "out", "host", 2, "f" * 64, {}, {}, {})


def knowing(secret, plan, **more):
    plan["environment"][SECRET] = secret
    return plan | more


@pytest.mark.slow
def test_ranks_with_one_secret_meet(root):
    port = free_port()
    told = meet(root, knowing("a", rank(0, port)), knowing("a", rank(1, port)))
    assert [kind for kind, _, _ in told] == ["met", "met"]


@pytest.mark.slow
@pytest.mark.parametrize("secret", ["", "b"])
def test_a_rank_without_the_secret_does_not_join(root, secret):
    """Neither in the place of an absent rank, nor with rank 0 in its own power."""
    port = free_port()
    first, stranger = meet(root, knowing("a", rank(0, port, timeout=14)), knowing(secret, rank(1, port, timeout=14)))
    assert first[0] == "Restart"
    assert "rank 1" in first[1]
    assert (stranger[0], stranger[2]) == ("ConfigError", "master_port")
    assert SECRET in stranger[1]


@pytest.mark.slow
def test_a_forged_arrival_does_not_start_the_training(monkeypatch, capsys):
    port = free_port()
    for key, value in {
        "RANK": "0",
        "WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        SECRET: "a",
    }.items():
        monkeypatch.setenv(key, value)

    def forge():
        limit = timedelta(seconds=5)
        store = TCPStore("127.0.0.1", port, is_master=False, timeout=limit, wait_for_workers=False)
        for text in ("", "0" * 64, "\xff"):
            store.set("came/1/0", text)
            time.sleep(0.5)

    late = threading.Timer(1.0, forge)
    late.start()
    with pytest.raises(Restart, match="rank 1"):
        rendezvous.meet(CARD, 4.0)
    late.join()
    assert "secret" in capsys.readouterr().err


def test_an_answer_that_was_forged_is_refused(monkeypatch):
    store = HashStore()
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", "1")
    monkeypatch.setenv(SECRET, "a")
    rendezvous.tell(store, "card", CARD.to_json())
    rendezvous.tell(store, "go", json.dumps(["start", ""]))
    assert rendezvous.answer(store, "card") == CARD.to_json()
    store.set("card/0", store.get("go/0"))  # what is right at one place is not at another
    with pytest.raises(ConfigError):
        rendezvous.answer(store, "card")
    monkeypatch.setenv(SECRET, "b")
    with pytest.raises(ConfigError):
        rendezvous.answer(store, "go")


LISTENING = """
import os, socket, sys
from pathlib import Path
import torch
from model.distributed import process_group
from tests.security.test_ranks import CARD
process_group.join(CARD, 30, 30, torch.device("cpu"))
print(process_group.gather([int(os.environ["RANK"]), "é", None, {"a": 1.5}]))
print(process_group.gather(int(os.environ["RANK"]) + 7)[0], flush=True)
nodes = {os.readlink(path) for path in Path("/proc/self/fd").iterdir() if path.is_symlink()}
for name in ("tcp", "tcp6"):
    for line in Path(f"/proc/self/net/{name}").read_text().splitlines()[1:]:
        words = line.split()
        if words[3] == "0A" and f"socket:[{words[9]}]" in nodes:
            print("listens", words[1].split(":")[0], flush=True)
process_group.any_rank(False)
os._exit(0)
"""
LOOPBACK = ("0100007F", "00000000000000000000000001000000")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1", "localhost"])
def test_ranks_of_one_machine_listen_on_loopback_alone_and_exchange_values(root, address):
    port = str(free_port())
    env = {**os.environ, "PYTHONPATH": str(root), "WORLD_SIZE": "2", "MASTER_ADDR": address, "MASTER_PORT": port}
    pipes = {"cwd": root, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    ranks = [
        subprocess.Popen([sys.executable, "-c", LISTENING], env=env | {"RANK": str(number), SECRET: "a"}, **pipes)
        for number in range(2)
    ]
    for process in ranks:
        out, err = process.communicate(timeout=100)
        values, first, *places = out.splitlines()
        assert values == str([[0, "é", None, {"a": 1.5}], [1, "é", None, {"a": 1.5}]]), err
        assert first == "7"
        assert places
        assert {place.split()[1] for place in places} <= set(LOOPBACK)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_the_store_listens_on_the_rendezvous_address(monkeypatch, address):
    found = rendezvous.listening(address, free_port())
    with found:
        assert found.getsockname()[0] in ("127.0.0.1", "::1")


def test_an_address_that_others_reach_in_another_way_leaves_all_of_them():
    """A name that is loopback on its own machine, or an address of what forwards to this one."""
    assert rendezvous.listening("192.0.2.1", free_port()) is None
    with pytest.MonkeyPatch.context() as patch:
        loopback = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 1))]
        patch.setattr(socket, "getaddrinfo", lambda *_, **__: loopback)
        assert rendezvous.listening("node1", 1) is None


@pytest.mark.slow
def test_the_launcher_gives_its_ranks_a_secret_that_no_command_line_has(tmp_path):
    script = tmp_path / "show.py"
    script.write_text(
        "import os, sys\nfrom pathlib import Path\n"
        f"secret = os.environ.get({SECRET!r}, '')\n"
        "lines = [p.read_bytes() for p in Path('/proc').glob('[0-9]*/cmdline')]\n"
        "print('secret', len(secret), any(secret.encode() in line for line in lines))\n"
    )
    words = ["deepspeed", "--num_accelerators", "1", str(script)]
    done = forked.module("model.launch", *words, env={**os.environ, "DS_ACCELERATOR": "cpu"})
    assert "secret 32 False" in done.stdout, done.stderr


@pytest.mark.parametrize("words", [["deepspeed", "--hostfile", "hosts"], ["torchrun", "--nnodes=1"], ["torchrun"]])
def test_one_machine_has_a_secret_however_it_is_named(tmp_path, monkeypatch, words):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(SECRET, raising=False)
    (tmp_path / "hosts").write_text("node0 slots=2\n")
    made = Launch([], tmp_path)
    monkeypatch.setattr(made, "run", lambda: 0)
    launch_here([*words, "model/train.py"], made, tmp_path)
    assert len(made.environment[SECRET]) == 32
    assert made.environment[SECRET] not in str(made.command)


def test_hosts_get_their_secret_by_standard_input(monkeypatch):
    words = ["deepspeed", "--hostfile", "hosts", "--master_port", "1", "model/train.py"]
    both = SshHosts(LauncherCommand.parse(words), {"node0": 1, "node1": 1})
    told = []
    for host in both.hosts:
        monkeypatch.setattr(host, "tell", told.append)
    both._send()
    first, second = (json.loads(line) for line in told)
    secret = first["environment"][SECRET]
    assert (len(secret), secret) == (32, second["environment"][SECRET])
    shown = [first["command"], second["command"], *([*host.ssh, host.remote] for host in both.hosts)]
    assert not any(secret in word for line in shown for word in line)


@pytest.mark.parametrize("name", ["-oProxyCommand=touch${IFS}owned", "--", "-"])
def test_a_host_is_no_option_of_ssh(tmp_path, name):
    (tmp_path / "hosts").write_text(f"node0 slots=1\n{name} slots=1\n")
    with refused(ConfigError, key="hostfile", line=2):
        read_hosts(tmp_path / "hosts")
