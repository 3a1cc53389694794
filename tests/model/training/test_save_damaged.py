"""A checkpoint has the weights that the model computes with, and finite ones, or there is none."""

import json
import sys
from pathlib import Path

import pytest

from tests import forked

WANTED = {
    "plain": [""],
    "mixed": ["RuntimeError"],  # DeepSpeed hands out the fragments of other parameters
    "damaged": ["RuntimeError"],
    "infinite": ["FloatingPointError"],
}


@pytest.fixture(scope="module")
def endings(root: Path) -> list[dict[str, list[str]]]:
    done = forked.run([sys.executable, "-m", "tests.model.training.save_damaged"], cwd=root, ranks=2)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


@pytest.mark.parametrize("case", WANTED)
def test_what_is_gathered_is_what_the_model_has(endings, case: str) -> None:
    assert len(endings) == 2  # one of each rank: they agree
    assert [found[case] for found in endings] == [WANTED[case]] * 2
