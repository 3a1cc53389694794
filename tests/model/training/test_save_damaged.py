"""A checkpoint has the weights that the model computes with, and finite ones, or there is none."""

import pytest

from tests.model.conftest import printed
from tests.support import forked

WANTED = {
    "plain": [""],
    "mixed": ["RuntimeError"],  # DeepSpeed hands out the fragments of other parameters
    "damaged": ["RuntimeError"],
    "infinite": ["FloatingPointError"],
}


@pytest.fixture(scope="module")
def endings():
    return printed(forked.module("tests.model.workers.save_damaged", ranks=2))


@pytest.mark.parametrize("case", WANTED)
def test_what_is_gathered_is_what_the_model_has(endings, case):
    assert len(endings) == 2  # one of each rank: they agree
    assert [found[case] for found in endings] == [WANTED[case]] * 2
