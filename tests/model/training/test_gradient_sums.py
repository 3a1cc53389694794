"""Gradients of many micro-batches and two ranks are added up without an error, and what engines keep."""

import pytest

from tests.model.conftest import printed
from tests.model.workers.sum_gradients import CASES
from tests.support import forked


@pytest.fixture(scope="module")
def sums():
    (found,) = printed(forked.module("tests.model.workers.sum_gradients", ranks=2))
    return found


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_sums_in_fp32_lose_nothing(sums, stage):
    assert sums[stage]["error"] < 1e-6


def test_sums_in_bf16_lose_the_small_ones(sums):
    assert sums["bf16"]["error"] > 1e-3


def test_the_wrapper_is_the_one_whose_partitions_are_saved(sums):
    assert sums["zero1"]["wrapper"] == sums["bf16"]["wrapper"] == sums["zero2"]["wrapper"]


@pytest.mark.parametrize("case", ["zero1", "zero2", "bf16"])
def test_weights_are_the_optimizers_own_after_a_step_also_if_they_were_moved(sums, case):
    assert sums[case]["links"] == [True, False, True, True]


def test_buckets_are_sent_while_other_gradients_are_computed(sums):
    assert sums["zero1"]["taken"]


@pytest.mark.parametrize("case", CASES)
def test_every_element_is_one_ranks(sums, case):
    assert sums[case]["owned"] == (8 * 8 + 8 + 3 * 3 if case != "zero0" else 0)


@pytest.mark.parametrize("case", CASES)
def test_a_model_computes_with_averages_and_keeps_what_it_loads(sums, case):
    assert sums[case]["averaged"] == [True, True]
    assert sums[case]["loaded"]
