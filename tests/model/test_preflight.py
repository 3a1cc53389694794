"""The check before a training names the nodes that would spoil it."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from model.preflight import judge
from model.resilience.node_checks import Findings
from pipeline.common.errors import Exit
from pipeline.common.ports import free_port

H100 = "NVIDIA H100 80GB HBM3, 80 GiB, driver 580.95, CUDA 13.0"
RANK = Findings(
    host="",
    rank=0,
    local_rank=0,
    device=H100,
    flops=7e14,
    shm=2**34,
    clock=0.0,
    link=1e10,
    places={"/data": (1e9, 2e9)},
)
GOOD = [replace(RANK, host=f"node-{rank // 2}", rank=rank, local_rank=rank % 2) for rank in range(8)]


def test_good_nodes_are_all_ok() -> None:
    lines = judge(GOOD, 2e11, True, 0.3)
    assert [line.name for line in lines if line.bad] == []
    assert [line.name for line in lines] == [
        "devices",
        "compute",
        "all-reduce",
        "links",
        "clocks",
        "write",
        "read",
        "/dev/shm",
    ]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("devices", {"device": H100.replace("580.95", "580.65")}),
        ("compute", {"flops": 1e14}),
        ("links", {"link": 1e9}),
        ("clocks", {"clock": -2.0}),
        ("write", {"places": {"/data": (1e8, 2e9)}}),
        ("read", {"places": {"/data": (1e9, 1e8)}}),
        ("folder", {"faults": ["/data cannot be used"], "places": {}}),
        ("/dev/shm", {"shm": 2**26}),
    ],
)
def test_a_bad_node_is_named(name: str, change: dict[str, Any]) -> None:
    found = [*GOOD[:4], replace(GOOD[4], **change), *GOOD[5:]]
    bad = {line.name: line.bad for line in judge(found, 2e11, True, 0.3) if line.bad}
    assert bad == {name: ("node-2",)}


def test_a_wrong_sum_is_bad() -> None:
    bad = [line.name for line in judge(GOOD, 2e11, False, 0.3) if line.bad]
    assert bad == ["all-reduce"]


def ranks(root: Path, size: int, *places: list[str], wait: int = 120) -> list[tuple[int, str]]:
    """What real ranks end with and print, each with places of its own."""
    shared = {
        "PYTHONPATH": str(root),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(size),
        "HOSTS": "node-a,node-b",
        "PATH": os.environ["PATH"],
    }
    options = ["--wait", str(wait), "--seconds", "0.1", "--share", "0"]
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "model.preflight", *options, *place],
            cwd=root,
            text=True,
            env={**shared, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        for rank, place in enumerate(places)
    ]
    said = [process.communicate(timeout=240)[0] for process in begun]
    return [(process.returncode, text) for process, text in zip(begun, said, strict=True)]


@pytest.mark.slow
def test_two_ranks_measure_what_is_between_them(root: Path, tmp_path: Path) -> None:
    (first, said), (second, silent) = ranks(root, 2, [str(tmp_path)], [str(tmp_path)])
    assert (first, second, silent) == (Exit.DONE, Exit.DONE, ""), said + silent
    lines = said.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert {"all-reduce", "links", "clocks", "write", "read"} <= {line.split()[1] for line in lines}
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_node_without_the_shared_folder_is_named(root: Path, tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()
    (first, said), (second, _) = ranks(root, 2, [str(tmp_path)], [str(file)])
    assert (first, second) == (Exit.USER, Exit.USER), said
    assert "node-b (folder)" in said


def test_a_node_that_does_not_come_is_named(root: Path, tmp_path: Path) -> None:
    ((code, said),) = ranks(root, 2, [str(tmp_path)], wait=1)
    assert code == Exit.RESTART
    assert "stopped: rank 1 (node-b) " in said
