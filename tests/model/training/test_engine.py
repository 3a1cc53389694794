"""Whose part of weights and gradients each of 64 ranks has; gradients are added up without an error."""

import math

import pytest

from model.training import cost
from model.training.cost import Setting
from tests.model.conftest import printed
from tests.model.workers import sum_gradients
from tests.model.workers.fake_ranks import BATCH, CASES, MICRO_BATCH, SIZE, WORLD
from tests.support import forked

COUNTED = [case for case in CASES if case[0] < 3]


@pytest.fixture(scope="module")
def ranks():
    return {tuple(row["case"]): row for row in printed(forked.module("tests.model.workers.fake_ranks"))}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_batches_are_divided_by_ranks_and_micro_batches(ranks, case):
    assert ranks[case]["batch"] == BATCH
    assert ranks[case]["micro_batches"] == BATCH // WORLD // MICRO_BATCH


@pytest.mark.slow
@pytest.mark.parametrize("case", COUNTED)
def test_a_rank_has_its_part_of_all_weights_and_gradients(ranks, case):
    row = ranks[case]
    assert row["equal"] == {"weights": True, "gradients": True}
    share = math.ceil(row["parameters"] / WORLD)
    assert share - WORLD <= row["pieces"] <= share + WORLD  # two groups, aligned; the last is short


@pytest.mark.slow
def test_a_rank_owns_its_share_where_each_parameter_is_divided(ranks):
    row = ranks[3, 0]
    assert row["parameters"] / WORLD <= row["owned"] < 1.05 * row["parameters"] / WORLD


@pytest.mark.slow
@pytest.mark.parametrize("case", COUNTED)
def test_the_memory_that_is_planned_is_what_a_rank_has(ranks, case):
    row, stage = ranks[case], case[0]
    passing = 2 * row["parameters"] / (WORLD if stage == 2 else 1)  # gradients of a pass, in bf16
    counted = (sum(row["bytes"].values()) + passing) / row["parameters"]
    setting = Setting(SIZE, 2, False, 0.15, stage, WORLD)
    planned = cost.state_bytes(setting)
    assert planned / cost.parameters(SIZE) == pytest.approx(counted, rel=0.01)


@pytest.fixture(scope="module")
def sums():
    (found,) = printed(forked.module("tests.model.workers.sum_gradients", ranks=2))
    return found


@pytest.mark.parametrize("stage", ["zero1", "zero2", "zero3"])
def test_sums_in_fp32_lose_nothing(sums, stage):
    assert sums[stage]["error"] < 1e-6


def test_sums_in_bf16_lose_the_small_ones_in_the_wrapper_whose_partitions_are_saved(sums):
    assert sums["bf16"]["error"] > 1e-3
    assert sums["zero1"]["wrapper"] == sums["bf16"]["wrapper"] == sums["zero2"]["wrapper"]


@pytest.mark.parametrize("case", ["zero1", "zero2", "bf16"])
def test_weights_are_the_optimizers_own_after_a_step_also_if_they_were_moved(sums, case):
    assert sums[case]["links"] == [True, False, True, True]


def test_buckets_are_sent_while_other_gradients_are_computed(sums):
    assert sums["zero1"]["taken"]


@pytest.mark.parametrize("case", sum_gradients.CASES)
def test_every_element_is_one_ranks(sums, case):
    assert sums[case]["owned"] == (8 * 8 + 8 + 3 * 3 if case != "zero0" else 0)


@pytest.mark.parametrize("case", sum_gradients.CASES)
def test_a_model_computes_with_averages_and_keeps_what_it_loads(sums, case):
    assert sums[case]["averaged"] == [True, True]
    assert sums[case]["loaded"]
