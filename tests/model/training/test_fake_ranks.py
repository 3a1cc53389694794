"""64 ranks, one at a time in one process: whose part of weights and gradients each has."""

import math

import pytest

from model.training import cost
from model.training.cost import Setting
from tests.model.conftest import printed
from tests.model.workers.fake_ranks import BATCH, CASES, MICRO_BATCH, SIZE, WORLD
from tests.support import forked

pytestmark = pytest.mark.slow

COUNTED = [case for case in CASES if case[0] < 3]


@pytest.fixture(scope="module")
def ranks():
    return {tuple(row["case"]): row for row in printed(forked.module("tests.model.workers.fake_ranks"))}


@pytest.mark.parametrize("case", CASES)
def test_batches_are_divided_by_ranks_and_micro_batches(ranks, case):
    assert ranks[case]["batch"] == BATCH
    assert ranks[case]["micro_batches"] == BATCH // WORLD // MICRO_BATCH


@pytest.mark.parametrize("case", COUNTED)
def test_a_rank_has_its_part_of_all_weights_and_gradients(ranks, case):
    row = ranks[case]
    assert row["equal"] == {"weights": True, "gradients": True}
    share = math.ceil(row["parameters"] / WORLD)
    assert share - WORLD <= row["pieces"] <= share + WORLD  # two groups, aligned; the last is short


def test_a_rank_owns_its_share_where_each_parameter_is_divided(ranks):
    row = ranks[3, 0]
    assert row["parameters"] / WORLD <= row["owned"] < 1.05 * row["parameters"] / WORLD


@pytest.mark.parametrize("case", COUNTED)
def test_the_memory_that_is_planned_is_what_a_rank_has(ranks, case):
    row, stage = ranks[case], case[0]
    passing = 2 * row["parameters"] / (WORLD if stage == 2 else 1)  # gradients of a pass, in bf16
    counted = (sum(row["bytes"].values()) + passing) / row["parameters"]
    setting = Setting(SIZE, 2, False, 0.15, stage, WORLD)
    planned = cost.state_bytes(setting)
    assert planned / cost.parameters(SIZE) == pytest.approx(counted, rel=0.01)
