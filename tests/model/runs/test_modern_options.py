"""Muon, averaged weights, a schedule of masks: the same at every ZeRO stage and on a resume."""

import re
import shutil

import pytest
import torch
from safetensors.torch import load_file
from torch.nn import functional as F

from model.config import DataConfig, ObjectiveConfig
from model.encoders.architectures import build_model
from model.loader.loader import Loader
from model.training import checkpoint, initial_weights
from pipeline import inspect
from pipeline.errors import InputError
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.conftest import SMALL, losses, rows, train_many
from tests.support.refusals import refused

pytestmark = pytest.mark.slow

STEPS, DECAY = 12, 0.8
LEARN = "objective.mask_share=[0.5,0.1] optimizer=muon optimizer.learning_rate=5e-2 optimizer.adam_share=0.2"
LEARN += " optimizer.weight_decay=0 schedule=constant schedule.warmup_share=0 clip=null keep=99"
MODERN = ["model=modern-tiny", "model.local_window=8", "objective=modern"]
MUON = (*MODERN, *SMALL[1:], *LEARN.split(), f"steps={STEPS}", f"ema={DECAY}")
RUNS = ("2-1", "0-2", "1-2", "2-2", "3-2", "cut")


def settings(work, out, stage, every=6):
    return [f"workdir={work}", f"out={out}", *MUON, f"deepspeed=zero{stage}", f"save_every={every}"]


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    """Runs named by stage and processes; `cut` began at stage 3 and resumed at 1 on two."""
    folder = tmp_path_factory.mktemp("muon")
    plan = [(1, settings(work, folder / "0-1", 0, every=1))]
    plan += [(int(n[2]), settings(work, folder / n, int(n[0]))) for n in RUNS[:-1]]
    train_many([*plan, (1, settings(work, folder / "cut", 3))])
    (folder / "cut" / "manifest.json").unlink()
    shutil.rmtree(saved(folder / "cut")[STEPS])
    train_many([(2, settings(work, folder / "cut", 1))])
    return folder


def saved(out):
    """The checkpoints of a run by step."""
    (run,) = (out / checkpoint_folder.RUNS).iterdir()
    return checkpoint_folder.steps(run)


@pytest.mark.parametrize("name", RUNS)
def test_every_stage_and_a_resume_at_another_give_one_curve(runs, name):
    assert losses(runs / name) == pytest.approx(losses(runs / "0-1"), abs=1e-4)
    last, expected = (rows(runs / which, "validation")[-1] for which in (name, "0-1"))
    keys = ("masked_lm_loss", "average_masked_lm_loss")
    assert [last[k] for k in keys] == pytest.approx([expected[k] for k in keys], abs=1e-4)


@pytest.mark.parametrize("name", RUNS)
def test_checkpoints_have_the_same_named_moments_and_average(runs, name):
    found, right = (load_file(saved(runs / which)[STEPS] / checkpoint_folder.MOMENTS) for which in (name, "0-1"))
    assert found.keys() == right.keys()
    hidden = {key.partition(".")[2] for key in found if key.startswith("momentum.")}
    assert len(hidden) == 4 * 6
    assert all(".layers." in key for key in hidden)
    assert not any(f"exp_avg.{key}" in found for key in hidden)
    assert "exp_avg_sq.encoder.embeddings.word.weight" in found
    for key, tensor in found.items():
        torch.testing.assert_close(tensor, right[key], rtol=0, atol=5e-4)  # Muon enlarges roundings; an update is 1e-2


@pytest.mark.parametrize("name", ["0-1", *RUNS])
def test_muon_is_on_at_every_stage(runs, name):
    """DeepSpeed's own is silently plain momentum at some stages: here each update is orthogonal."""
    last = saved(runs / name)[STEPS]
    weights, moments = (load_file(last / part) for part in (checkpoint_folder.WEIGHTS, checkpoint_folder.MOMENTS))
    one = runs / "0-1"
    before = load_file(saved(one)[STEPS - 1] / checkpoint_folder.WEIGHTS)
    for key in (key for key in moments if key.startswith("momentum.")):
        place = key.partition(".")[2]
        rows, columns = weights[place].shape
        update = (before[place] - weights[place]) / 5e-2 / max(1, rows / columns) ** 0.5
        sizes = torch.linalg.svdvals(update)
        assert 0.7 < sizes.max() < 1.3, place
        plain = torch.linalg.svdvals(moments[key])
        assert sizes.median() / sizes.max() > 2 * plain.median() / plain.max(), place


def test_the_average_is_the_mean_of_the_weights_of_all_steps(runs):
    states = [load_file(path / checkpoint_folder.WEIGHTS) for path in saved(runs / "0-1").values()]
    assert len(states) == STEPS
    shares = torch.tensor([DECAY**age for age in reversed(range(STEPS))])
    shares /= shares.sum()
    source = initial_weights.read(runs / "0-1", ema=True)
    assert source.state.keys() == states[0].keys()
    for name, tensor in source.state.items():
        mean = sum(share * state[name] for share, state in zip(shares, states, strict=True))
        torch.testing.assert_close(tensor, mean, rtol=1e-4, atol=1e-6)


def test_the_average_scores_as_training_said(runs, work):
    source = initial_weights.read(runs / "0-1", ema=True)
    model = build_model(source.config).eval()
    model.load_state_dict(source.state)
    manifest = Manifest.read(runs / "0-1")
    objective = ObjectiveConfig(**manifest.config["objective"])
    data = DataConfig(**manifest.config["data"])
    held_out = Loader(data, objective, WordPiece.load(work / "vocab"), 0, "validation")
    batch = held_out.batch(0, manifest.config["evaluate_samples"]).batches[0]
    with torch.no_grad():
        loss = F.cross_entropy(model(batch)[0], batch.masked_labels).item()
    said = rows(runs / "0-1", "validation")[-1]
    assert said["average_masked_lm_loss"] == pytest.approx(loss, abs=1e-4)
    assert said["masked_lm_loss"] != pytest.approx(loss, abs=1e-3)


def test_a_checkpoint_without_an_average_says_so(runs, tmp_path):
    last = saved(runs / "0-1")[STEPS]
    weights, moments = (load_file(last / part) for part in (checkpoint_folder.WEIGHTS, checkpoint_folder.MOMENTS))
    moments = {key: tensor for key, tensor in moments.items() if not key.startswith("average.")}
    path = checkpoint.write(tmp_path, checkpoint_folder.read_state(last), weights, moments)
    with refused(InputError, key="ema"):
        initial_weights.read(path, ema=True)


@pytest.mark.parametrize(("step", "share"), [(1, 0.5), (STEPS, 0.1)])
def test_inspect_shows_what_a_step_was_trained_on(runs, work, step, share):
    manifest = Manifest.read(runs / "0-1")
    tokenizer = WordPiece.load(work / "vocab")
    reached, *lines = inspect.replay_step(work / "prepare", str(runs / "0-1"), step, 99, tokenizer)
    assert f"{STEPS} steps" in reached
    assert re.findall(r"\d[\d.%]*", lines[0]) == [f"{step}", f"{STEPS}", f"{share:.1%}"]
    assert len(lines) == 1 + manifest.config["batch_size"]
    masked = sum(len(re.findall(r"\{\S+\|\S+\}", line)) for line in lines[1:])
    tokens = sum(len(line.split()) for line in lines[1:])
    assert masked / tokens == pytest.approx(share, abs=0.03)
