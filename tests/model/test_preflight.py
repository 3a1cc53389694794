"""The check before a training names the nodes that would spoil it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from model.preflight import products
from pipeline.common.ports import free_port
from pipeline.errors import Exit
from tests.support import forked

GOOD = [(f"node-{rank // 2}", 700.0) for rank in range(8)]


def test_good_nodes_are_all_ok():
    line = products(GOOD, "bf16", 0.3)
    assert line.bad == ()
    assert "8 ranks on 4 nodes" in line.text


def test_a_slow_node_is_named():
    found = [*GOOD[:4], ("node-2", 100.0), *GOOD[5:]]
    line = products(found, "bf16", 0.3)
    assert line.bad == ("node-2",)
    assert "(rank 4, node-2)" in line.text
    assert products(found, "fp32", 0.0).bad == ()


def ranks(root, size, started, wait=120):
    """What the first `started` real ranks end with and print."""
    shared = {"PYTHONPATH": str(root), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    shared |= {"WORLD_SIZE": str(size), "BERT_RANK_HOSTS": "node-a,node-b", "PATH": os.environ["PATH"]}
    options = ["--wait", str(wait), "--seconds", "0.1", "--share", "0"]
    words = [sys.executable, "-m", "model.preflight", *options]
    pipes = {"cwd": root, "text": True, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    begun = [subprocess.Popen(words, env={**shared, "RANK": str(rank)}, **pipes) for rank in range(started)]
    said = [process.communicate(timeout=240)[0] for process in begun]
    return [(process.returncode, text) for process, text in zip(begun, said, strict=True)]


@pytest.mark.slow
def test_two_ranks_measure_what_is_between_them(root):
    (first, said), (second, silent) = ranks(root, 2, 2)
    assert (first, second, silent) == (Exit.DONE, Exit.DONE, ""), said + silent
    lines = said.splitlines()
    assert all(line.startswith("ok ") for line in lines)
    assert [line.split()[1] for line in lines] == ["compute", "all-reduce"]


@pytest.mark.slow
def test_a_node_that_does_not_come_is_named(root):
    ((code, said),) = ranks(root, 2, 1, wait=1)
    assert code == Exit.RESTART
    assert "stopped: rank 1 (node-b) " in said


# What libraries find in the environment as they load, once `model` is imported.


HUGE = Path("/sys/kernel/mm/transparent_hugepage/enabled")
FAULTS = """
import resource, sys
if sys.argv[1] == "ours":
    import model
import torch
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(4):
    torch.ones(20_000_000)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.slow
def test_threads_spin_briefly():
    """GNU OpenMP says, as it is loaded, by what it goes."""
    done = forked.fresh("-c", "import model.training.trainer", check=True, env={"OMP_DISPLAY_ENV": "verbose"})
    assert "GOMP_SPINCOUNT = '1000'" in done.stderr


def faults(how):
    variables = {key: value for key, value in os.environ.items() if key != "THP_MEM_ALLOC_ENABLE"}
    done = forked.fresh("-c", FAULTS, how, check=True, env=variables)
    return int(done.stdout)


@pytest.mark.slow
def test_a_large_tensor_needs_few_page_faults():
    if not HUGE.exists() or "[madvise]" not in HUGE.read_text():
        pytest.skip("this machine gives huge pages to nobody, or to everybody")
    pages = 4 * 80_000_000 // os.sysconf("SC_PAGE_SIZE")
    assert faults("plain") > pages / 2
    assert faults("ours") < pages / 20
