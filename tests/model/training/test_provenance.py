"""The figures that go with weights are those of the weights, and no others."""

import json
from dataclasses import asdict

import pytest
import torch

from model.encoders.architectures import build_model
from model.optim.average import AVERAGE
from model.tracking.metrics_file import METRICS
from model.training import checkpoint, initial_weights, provenance
from pipeline.records import checkpoint_folder
from pipeline.records.metrics import TrainingSummary
from tests.model.sizes import small
from tests.support import finished

CONFIG = small(30, layers=1, positions=20)
LAST = {"masked_lm_loss": 1.25, "average_masked_lm_loss": 1.5}
EARLIER = {"masked_lm_loss": 4.5, "average_masked_lm_loss": 4.75}


@pytest.fixture
def folder(tmp_path):
    """A training that ended after step 7 and was evaluated after steps 3 and 7, not after 5."""
    train = tmp_path / "train"
    torch.manual_seed(0)
    weights = build_model(CONFIG).state_dict()
    average = {f"{AVERAGE}.{name}": tensor for name, tensor in weights.items()}
    for step in (3, 5, 7):
        state = finished.state(step, seconds=0.5 * step, model=asdict(CONFIG))
        checkpoint.write(train / checkpoint_folder.RUNS / ("t" * 12), state, weights, average)
    rows = [{"kind": "train", "step": 3, "loss": 9.0}, {"kind": "validation", "step": 3, **EARLIER}]
    (train / METRICS).write_text("".join(json.dumps(row) + "\n" for row in rows))
    figures = {"steps": 7, "tokens": 700, "validation": LAST, "device": "cpu"}
    finished.manifest(
        "train", fingerprint="t" * 64, config={"data": {"dir": str(tmp_path / "prepare")}}, figures=figures, seconds=3.5
    ).write(train)
    return train


@pytest.mark.parametrize(
    ("step", "average", "validation"),
    [
        (None, False, LAST),
        (7, False, LAST),
        (3, False, EARLIER),
        (5, False, {}),
        (None, True, {"masked_lm_loss": 1.5}),
        (3, True, {"masked_lm_loss": 4.75}),
    ],
)
def test_a_checkpoint_has_the_figures_of_its_step(folder, step, average, validation):
    place = folder
    if step is not None:
        place = folder / checkpoint_folder.RUNS / ("t" * 12) / checkpoint_folder.name_of(step)
    (made,) = provenance.weight_histories(str(place), initial_weights.read(place, 1, average), average)
    step = step or 7
    found = TrainingSummary.of(made)
    assert (found.steps, found.tokens, found.device) == (step, 100 * step, "cpu")
    assert found.validation == validation
    assert found.seconds == 0.5 * step, "those up to it"


def test_a_mean_of_several_was_not_evaluated(folder):
    (made,) = provenance.weight_histories(str(folder), initial_weights.read(folder, 2), False)
    assert (made.figures["steps"], made.figures["validation"]) == (7, {})


@pytest.mark.parametrize(
    ("held", "trained", "said"),
    [([0.6, 0.8], [3, 2], 1), ([0.6, 0.61], [3, 2], 0), ([0.8, 0.6], [3, 2], 0), ([0.6, 0.8], [2, 3], 0)],
)
def test_a_held_out_loss_that_rises_while_that_of_training_falls_is_said(held, trained, said):
    curves = (("validation", held, 10), ("train", trained, 11))
    rows = [
        {"kind": kind, "step": start + step, "masked_lm_loss": loss}
        for kind, losses, start in curves
        for step, loss in enumerate(losses)
    ]
    assert len(list(provenance.overfitting(rows))) == said


def test_what_earlier_code_has_trained_tells_its_length_by_its_shards(folder, tmp_path):
    assert initial_weights.read(folder).learnt == 20, "nothing tells it: all positions"
    (tmp_path / "prepare").mkdir()
    finished.manifest("prepare", figures={"sequence_length": 12}).write(tmp_path / "prepare")
    (last,) = (folder / checkpoint_folder.RUNS).glob("*/*7")
    assert [initial_weights.read(place).learnt for place in (folder, last)] == [12, 12]
    old = tmp_path / "convert"  # all positions were written
    old.mkdir()
    (old / "config.json").write_text('{"max_position_embeddings": 20}')
    (old / "tokenizer_config.json").write_text('{"model_max_length": 20}')
    for figures, stated in (({}, 12), ({"learnt": 16}, 20)):
        finished.manifest("convert", config={"train": str(folder)}, figures=figures).write(old)
        assert provenance.learnt(old) == stated
    config = {"data": {"dir": str(tmp_path / "prepare")}, "start": str(old)}
    finished.manifest("train", fingerprint="t" * 64, config=config).write(folder)
    assert provenance.learnt(folder, 18) == 18, "the start had learnt more"


@pytest.mark.parametrize(("stated", "learnt"), [(16, 16), (int(1e30), 40), (None, 40), (True, 40)])
@pytest.mark.parametrize("tuned", [24, None])
def test_a_folder_states_how_much_is_read(tmp_path, stated, tuned, learnt):
    content = {"max_position_embeddings": 40, "fine_tuning": {"sequence_length": tuned}}
    (tmp_path / "config.json").write_text(json.dumps(content))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"model_max_length": stated}))
    assert provenance.learnt(tmp_path, 40) == (tuned or learnt)


def test_the_best_step_has_the_fewest_bits_per_byte_unless_losses_were_compared():
    found = {"loss": 2.0, "bits_per_byte": 1.0}
    assert provenance.is_better(found, {})
    assert provenance.is_better(found, {"step": 1, "loss": 1.9, "bits_per_byte": 1.1})
    assert not provenance.is_better(found, {"step": 1, "loss": 1.9}), "of earlier code"
    assert provenance.is_better({"loss": 1.8}, {"step": 1, "loss": 1.9, "bits_per_byte": 1.1})
