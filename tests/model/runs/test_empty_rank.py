"""A rank without a sample computes what the others do: its curve is that of one rank."""

import pytest

from tests.model.conftest import SMALL, losses, train_many

pytestmark = pytest.mark.slow

FEW = ("batch_size=3", "micro_batch=1", "steps=4")
KINDS = {  # settings, and how far the curves may be apart
    "few": (FEW, 1e-4),
    "growing": (("batch_size=6", "schedule.first_batch=1", "schedule.batch_share=1"), 1e-4),
    "recompute": ((*FEW, "compute=recompute"), 1e-4),
    "tokens": ((*FEW, "objective=mlm"), 1e-4),
    "modern": ((*FEW, "model=modern-tiny", "model.layers=4", "objective=modern"), 1e-4),
    "bf16": ((*FEW, "precision=bf16"), 0.02),
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_rank_without_a_sample_trains_as_one_rank_does(work, tmp_path, kind):
    words, apart = KINDS[kind]
    settings = [f"workdir={work}", *SMALL, "steps=4", "evaluate_samples=1", *words]
    train_many(
        [
            (1, [*settings, "deepspeed=zero1", f"out={tmp_path / 'one'}"]),
            (2, [*settings, "deepspeed=zero3", f"out={tmp_path / 'two'}"]),
        ]
    )
    assert losses(tmp_path / "two") == pytest.approx(losses(tmp_path / "one"), abs=apart)
