"""The check before a training names the nodes that would spoil it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.preflight import products
from pipeline.common.ports import free_port
from pipeline.errors import Exit

GOOD = [(f"node-{rank // 2}", 700.0) for rank in range(8)]


def test_good_nodes_are_all_ok() -> None:
    line = products(GOOD, "bf16", 0.3)
    assert line.bad == ()
    assert "8 ranks on 4 nodes" in line.text


def test_a_slow_node_is_named() -> None:
    found = [*GOOD[:4], ("node-2", 100.0), *GOOD[5:]]
    line = products(found, "bf16", 0.3)
    assert line.bad == ("node-2",)
    assert "(rank 4, node-2)" in line.text
    assert products(found, "fp32", 0.0).bad == ()


def ranks(root: Path, size: int, started: int, wait: int = 120) -> list[tuple[int, str]]:
    """What the first `started` real ranks end with and print."""
    shared = {
        "PYTHONPATH": str(root),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(size),
        "BERT_RANK_HOSTS": "node-a,node-b",
        "PATH": os.environ["PATH"],
    }
    options = ["--wait", str(wait), "--seconds", "0.1", "--share", "0"]
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "model.preflight", *options],
            cwd=root,
            text=True,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank in range(started)
    ]
    said = [process.communicate(timeout=240)[0] for process in begun]
    return [(process.returncode, text) for process, text in zip(begun, said, strict=True)]


@pytest.mark.slow
def test_two_ranks_measure_what_is_between_them(root: Path) -> None:
    (first, said), (second, silent) = ranks(root, 2, 2)
    assert (first, second, silent) == (Exit.DONE, Exit.DONE, ""), said + silent
    lines = said.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert [line.split()[1] for line in lines] == ["compute", "all-reduce"]


@pytest.mark.slow
def test_a_node_that_does_not_come_is_named(root: Path) -> None:
    ((code, said),) = ranks(root, 2, 1, wait=1)
    assert code == Exit.RESTART
    assert "stopped: rank 1 (node-b) " in said
