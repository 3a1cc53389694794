"""Gradients in flat buffers: what DeepSpeed's hook of each parameter does, in fewer calls."""

import pytest
import torch

from model.optim.gradient_buckets import buckets, in_backward_order, sizes
from model.optim.zero_layout import ParamShard, flat_shards
from tests.model.conftest import printed
from tests.support import forked


@pytest.fixture(scope="module", params=[1, 2])
def runs(request: pytest.FixtureRequest) -> dict[str, dict]:
    (found,) = printed(forked.module("tests.model.workers.flat_against_hooks", ranks=request.param))
    return found


@pytest.mark.slow
def test_weights_are_those_of_deepspeeds_hooks_to_the_bit(runs: dict[str, dict]) -> None:
    assert len(runs) == 3
    for name, run in runs.items():
        ours, theirs = run["norms"]
        assert ours == theirs, name
        assert ours[1] == float("inf"), name
        assert run["equal"], name


@pytest.mark.slow
def test_a_backward_pass_calls_a_fraction_of_the_functions(runs: dict[str, dict]) -> None:
    for name, run in runs.items():
        ours, theirs = run["calls"]
        assert ours < theirs / 4, name


def test_buckets_are_ranges_of_whole_parameters() -> None:
    group = [torch.empty(size) for size in (4, 3, 9, 1, 1, 5)]
    found = buckets(0, group, most=7)
    assert [(b.first, b.start, b.size) for b in found] == [(0, 0, 7), (2, 7, 9), (3, 16, 7)]
    assert [len(b.parameters) for b in found] == [2, 1, 3]


def test_a_bucket_that_is_full_at_the_end_holds_up_no_other() -> None:
    model = [torch.empty(size) for size in (4, 1, 3, 2, 5, 1)]
    places = {parameter: place for place, parameter in enumerate(model)}
    every = [*buckets(0, [model[1], model[3], model[5]], 9), *buckets(1, model[::2], 4)]
    found = in_backward_order(every, places)
    assert [[places[p] for p in one.parameters] for one in found] == [[4], [2], [1, 3, 5], [0]]


def test_partitions_have_all_pieces_of_parameters_once() -> None:
    group = [torch.empty(size) for size in (4, 3, 9, 0, 1)]
    assert flat_shards(group, 6, 6) == [ParamShard(1, 0, 1, 2), ParamShard(2, 1, 5, 0)]
    assert [sizes(group, start, 6) for start in (0, 6, 12, 18)] == [[4, 2], [1, 5], [4, 1, 1], [6]]
