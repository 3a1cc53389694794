"""Training on two hosts: the same result as on one, and what breaks mends itself."""

import pytest

from benchmarks.run.faults import STEPS, Bench, link_down, node_killed, one_node_told, rank_stopped, unshared_folder
from benchmarks.run.hosts import Network, missing
from benchmarks.run.job import wait
from benchmarks.small import make_work
from pipeline.errors import Exit

pytestmark = [pytest.mark.netns, pytest.mark.slow]
KILLED = -9


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    why = missing()
    if why is not None:
        pytest.skip(why)
    with Network(2) as hosts:
        bench = Bench(hosts, tmp_path_factory.mktemp("hosts"))
        make_work(bench.work)
        bench.undisturbed()
        yield bench


def test_each_launcher_on_two_hosts_trains_as_one_process_does(bench):
    torchrun = bench.job("torchrun")
    assert [code for _, code in wait(torchrun.start(bench.hosts, "torchrun"))] == [0, 0]
    assert torchrun.weights() == bench.reference, "deepspeed's launcher gave these"
    alone = bench.job("alone")
    assert [code for _, code in wait([alone.start_alone(1)])] == [0]
    assert len(alone.losses()) == STEPS
    assert torchrun.losses() == pytest.approx(alone.losses(), abs=1e-4)


@pytest.mark.parametrize(
    ("case", "codes"),
    [
        (link_down, [Exit.RESTART, Exit.RESTART]),
        (node_killed, [Exit.RESTART, KILLED]),
        (rank_stopped, [Exit.RESTART, KILLED]),
        (one_node_told, [Exit.RESTART, Exit.RESTART]),
    ],
)
def test_survivors_leave_in_time_and_the_same_command_ends_as_if_nothing_had_been(bench, case, codes):
    row = case(bench)
    assert [code for _, code in row.ended] == codes
    assert row.resumed > 0
    assert row.same


def test_nodes_that_share_no_folder_are_told_so(bench):
    assert [code for _, code in unshared_folder(bench).ended] == [Exit.USER, Exit.USER]
