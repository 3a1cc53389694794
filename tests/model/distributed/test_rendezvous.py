"""Ranks meet those of their own training, alike in code and settings, or say what is wrong."""

import json
import socket
from pathlib import Path

import pytest
from torch._C._distributed_c10d import HashStore

from model.distributed import rendezvous
from model.distributed.rank_card import RankCard
from pipeline.common.ports import free_port
from tests.support import forked


def meet(root, *plans, quiet=False):
    """Return what became of each rank: `met` or an error's name, its words, the key that it names.

    `quiet`: PyTorch may not print a word about it, such as a trace of its C++ code.
    """
    script = Path(__file__).parents[1] / "workers/meet_many.py"
    done = forked.fresh(script, json.dumps(plans), env={"PYTHONPATH": str(root)})
    assert done.returncode == 0, done.stderr
    assert not (quiet and done.stderr)
    return [(kind, words, key) for _, kind, words, key in json.loads(done.stdout)]


def rank(number, port, size=2, hosts="", **more):
    environment = {
        "RANK": str(number),
        "WORLD_SIZE": str(size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "BERT_RANK_HOSTS": hosts,
    }
    return {"environment": environment, **more}


@pytest.mark.slow
def test_ranks_of_one_training_meet_though_one_is_late(root):
    port = free_port()
    late = rank(0, port, wait=2, settings={"heartbeat": "/tmp/b"})
    assert [kind for kind, _, _ in meet(root, late, rank(1, port))] == ["met", "met"]


@pytest.mark.slow
def test_one_process_needs_no_port(root):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        assert [kind for kind, _, _ in meet(root, rank(0, port, size=1))] == ["met"]


@pytest.mark.slow
def test_a_taken_port_is_named(root):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        ((kind, words, key),) = meet(root, rank(0, port))
    assert (kind, key) == ("ConfigError", "master_port")
    assert f"master_port={port}" in words


@pytest.mark.slow
def test_a_rank_does_not_join_another_training_on_the_same_port(root):
    port, other = free_port(), {"settings": {"out": "other"}}
    first, stray, second = meet(root, rank(0, port, wait=1), rank(1, port, **other), rank(1, port, wait=20))
    assert (first[0], second[0]) == ("met", "met")
    assert (stray[0], stray[2]) == ("ConfigError", "master_port")
    assert "out=out" in stray[1]
    assert "out=other" in stray[1]


@pytest.mark.slow
def test_a_rank_waits_for_the_training_before_it_to_leave_the_port(root):
    port = free_port()
    before = [rank(0, port, stay=6), rank(1, port, stay=0)]
    again = [rank(0, port, wait=3), rank(1, port, wait=3)]
    assert [kind for kind, _, _ in meet(root, *before, *again)] == ["met"] * 4


@pytest.mark.slow
def test_other_code_versions_settings_and_data_are_named_on_every_rank(root):
    cases = [
        ({"card": {"code": {"model/training/muon.py": "0"}}}, "code: "),
        ({"card": {"versions": {"torch": "1.0"}}}, "torch"),
        ({"settings": {"steps": 11}}, "steps (10, 11)"),
        ({"card": {"fingerprint": "e" * 64}}, "data"),
        ({"card": {"world": 3}}, "number of ranks (2, 3)"),
    ]
    ports = [free_port() for _ in cases]
    plans = [
        plan
        for port, (change, _) in zip(ports, cases, strict=True)
        for plan in (rank(0, port), rank(1, port, **change))
    ]
    told = meet(root, *plans)
    for place, (_, expected) in enumerate(cases):
        for kind, words, _ in told[2 * place : 2 * place + 2]:
            assert kind == "InputError"
            assert expected in words


@pytest.mark.slow
def test_a_node_that_never_comes_is_named(root):
    port = free_port()
    told = meet(
        root,
        rank(0, port, 3, "a,b,c", timeout=3),
        rank(1, port, 3, "a,b,c", timeout=30),
        rank(1, free_port(), 2, "d,e", timeout=2),
        quiet=True,
    )
    assert [kind for kind, _, _ in told] == ["Restart"] * 3
    assert all("rank 2 (c)" in words for _, words, _ in told[:2])
    assert "rank 0 (d)" in told[2][1]


def test_ranks_that_torchrun_starts_again_read_nothing_of_their_first_start(monkeypatch):
    kept = HashStore()  # torchrun serves one for all of its starts
    card = RankCard("run", "out", "host", 2, "f" * 64, {}, {}, {})
    rendezvous.prefixed(kept, card).set("address of rank 0", "a closed port")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    assert not rendezvous.prefixed(kept, card).check(["address of rank 0"])
