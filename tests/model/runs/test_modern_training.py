"""A modern encoder under its own optimizer: one curve at every ZeRO stage, and through a resume."""

import pytest

from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from tests.model.conftest import SMALL, losses, rows, train_many

pytestmark = pytest.mark.slow

MODERN = ("model=modern-tiny", "model.local_window=8", "objective=modern", *SMALL[1:], "steps=30")
STABLE = ("optimizer=stable_adamw", "clip=null", "optimizer.learning_rate=2e-2")
STAGES = (0, 1, 2, 3)


def settings(work, out, stage, *more):
    return [f"workdir={work}", f"out={out}", *MODERN, *STABLE, f"deepspeed=zero{stage}", *more]


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    """Runs named by stage and processes, one that was resumed, one of AdamW, and two in bf16."""
    folder = tmp_path_factory.mktemp("modern")
    plan = [(1, settings(work, folder / "0-1", 0)), (1, settings(work, folder / "2-1", 2))]
    plan += [(2, settings(work, folder / f"{stage}-2", stage)) for stage in STAGES]
    plan += [(1, settings(work, folder / "adamw", 0, "optimizer.name=adamw"))]
    plan += [(1, settings(work, folder / "cut", 3, "save_every=10", "keep=9"))]
    plan += [
        (1, settings(work, folder / f"bf16-{how}", 2, "precision=bf16", f"compute={how}"))
        for how in ("plain", "recompute")
    ]
    train_many(plan)
    cut = folder / "cut"
    manifest = Manifest.read(cut)
    (cut / "manifest.json").unlink()
    damaged = cut / checkpoint_folder.RUNS / manifest.fingerprint[:12] / "step-00000030" / "model.safetensors"
    damaged.write_bytes(b"")
    train_many([(2, settings(work, cut, 1, "save_every=10", "keep=9"))])
    return folder


@pytest.mark.parametrize("name", ["2-1", *(f"{stage}-2" for stage in STAGES), "cut"])
def test_every_stage_and_a_resume_at_another_give_one_curve(runs, name):
    curve = losses(runs / "0-1")
    assert len(curve) == 30
    assert curve[-1] < curve[0] - 0.2
    assert losses(runs / name) == pytest.approx(curve, abs=1e-4)
    last, expected = (rows(runs / which, "validation")[-1] for which in (name, "0-1"))
    assert last["masked_lm_loss"] == pytest.approx(expected["masked_lm_loss"], abs=1e-4)
    assert "next_sentence_loss" not in last


def test_updates_are_clipped(runs):
    assert losses(runs / "adamw") != pytest.approx(losses(runs / "0-1"), abs=1e-3)


@pytest.mark.parametrize("how", ["plain", "recompute"])
def test_half_precision_learns_as_much(runs, how):
    assert losses(runs / f"bf16-{how}") == pytest.approx(losses(runs / "0-1"), abs=0.1)
