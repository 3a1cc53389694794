"""A longer training does not repeat the steps that a shorter one has made in the same way."""

import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from model.config import ModelConfig, ObjectiveConfig, OptimizerConfig, ScheduleConfig, TrainConfig
from model.training import checkpoint, extending
from model.training.extending import TrajectoryHash
from model.training.schedule import Schedule
from pipeline.orchestration.kinds import KINDS
from pipeline.records import checkpoint_folder
from pipeline.stages import fingerprints
from tests.model.conftest import SMALL, counted, losses, train_many
from tests.support import finished

SHORT = ["steps=20", "schedule=wsd", "schedule.decay_share=0.4", "schedule.warmup_share=0.1"]
LONG = ["steps=40", "schedule=wsd", "schedule.decay_share=0.4", "schedule.warmup_steps=2"]
SAVING = ["save_every=5", "keep=1", "save_at_words=[250,1000]"]
MODEL = ModelConfig(name="tiny", layers=2, hidden=32, heads=2, feed_forward=64)


def config(steps, schedule, **more):
    objective = ObjectiveConfig(name="mlm", next_sentence=False, mask_share=more.pop("share", 0.15))
    return TrainConfig(
        steps=steps,
        schedule=ScheduleConfig(**{"name": "wsd"} | schedule),
        objective=objective,
        optimizer=OptimizerConfig(name="adamw"),
        model=MODEL,
        **more,
    )


def hash_of(step, made):
    return first_steps_of(made).hash_of(step)


def common_of(config, sources):
    return fingerprints.partial_fingerprint(config, sources, extending.independent_keys(config))


def first_steps_of(made, shards="shards"):
    return TrajectoryHash(made, made.steps, common_of(made, {"data.dir": shards}))


def note(out, step, made):
    """Write what a checkpoint says of its first steps."""
    state = out / "checkpoints" / "short" / checkpoint_folder.name_of(step) / checkpoint_folder.STATE
    state.parent.mkdir(parents=True)
    state.write_text(json.dumps({"first_steps": hash_of(step, made), "model": {"positions": made.model.positions}}))
    (state.parent / checkpoint_folder.SUMS).touch()


@pytest.mark.parametrize(("steps", "schedule", "wanted"), [(40, "constant", 12), (40, "linear", 0), (9, "constant", 9)])
def test_a_plan_knows_where_a_longer_training_begins(steps, schedule, wanted, tmp_path):
    short, new = (config(n, {"name": schedule, "warmup_steps": 3}, out=str(tmp_path)) for n in (20, steps))
    sources = {"data.dir": "shards"}
    assert extending.step_in_common(new, common_of(new, sources)) == 0
    for step in (9, 12):
        note(tmp_path, step, short)
    assert extending.step_in_common(new, common_of(new, sources)) == wanted
    assert f"step {wanted}" in KINDS["train"].first_step(new, "another", sources)[1]


@pytest.mark.parametrize("positions", [512, 0])
def test_a_plan_names_the_key_with_which_a_training_continues(positions, tmp_path):
    schedule = {"name": "wsd", "warmup_share": 0.1, "decay_share": 0.4}
    short, new = (config(n, schedule, out=str(tmp_path), share=[0.3, 0.15]) for n in (20, 40))
    new.model = dataclasses.replace(MODEL, positions=positions)
    note(tmp_path, 10, short)
    finished.manifest("train", config={"steps": 20}).write(tmp_path)
    said = KINDS["train"].first_step(new, "another", {"data.dir": "shards"})
    assert said == (0, "; starts at step 0, but after step 10 with train.schedule.spread_steps=20")
    kept = config(40, {**schedule, "spread_steps": 20}, out=str(tmp_path), share=[0.3, 0.15])
    assert KINDS["train"].first_step(kept, "another", {"data.dir": "shards"})[0] == 10
    best = KINDS["train"].first_step(dataclasses.replace(kept, keep_best=True), "another", {"data.dir": "shards"})
    assert (best[0], "after step 10 with train.keep_best=false" in best[1]) == (0, True)


schedules = st.fixed_dictionaries(
    {
        "name": st.sampled_from(["wsd", "linear", "constant"]),
        "warmup_steps": st.integers(0, 5),
        "decay_share": st.sampled_from([0.2, 0.5]),
        "first_batch": st.sampled_from([None, 2]),
    }
)
shares = st.sampled_from([0.15, [0.3, 0.15]])
runs_of = st.tuples(st.integers(1, 30), schedules, shares)


@given(runs_of, runs_of, st.integers(1, 30))
def test_steps_are_the_same_if_all_that_they_depend_on_is(one, other, step):
    def steps_of(made):
        schedule = Schedule.of(made, made.steps)
        return [
            (schedule.lr_factor(number), schedule.batch_size(number), schedule.mask_share(number))
            for number in range(step)
        ]

    first, second = (config(steps, schedule, share=share) for steps, schedule, share in (one, other))
    same = hash_of(step, first) == hash_of(step, second)
    assert same == (steps_of(first) == steps_of(second))


@pytest.mark.parametrize(
    "more",
    [
        {"seed": 1},
        {"batch_size": 128},
        {"clip": None},
        {"ema": 0.9},
        {"precision": "bf16", "deepspeed": {"zero_optimization": {"stage": 1}}},
        {"optimizer": OptimizerConfig(name="adamw", learning_rate=1e-3)},
        {"optimizer": OptimizerConfig(name="adamw", betas=[0.9, 0.9])},
        {"model": dataclasses.replace(MODEL, layers=3)},
    ],
)
def test_other_settings_make_other_steps(more):
    usual = config(10, {})
    assert hash_of(5, usual) != hash_of(5, dataclasses.replace(usual, **more))


def test_evaluations_and_limits_change_no_step():
    usual = config(10, {})
    other = dataclasses.replace(usual, evaluate_samples=7, words=100, epochs=3, save_every=3)
    assert hash_of(5, usual) == hash_of(5, other)


def test_hashes_are_the_same_in_any_order_and_of_these_shards():
    made = config(10, {})
    first_steps = first_steps_of(made)
    hashes = {step: first_steps.hash_of(step) for step in (9, 2, 5, 5, 0)}
    assert len(set(hashes.values())) == 4
    assert hashes == {step: hash_of(step, made) for step in hashes}
    assert first_steps_of(made, "others").hash_of(5) != hashes[5]


@pytest.fixture(scope="module")
def train(work, tmp_path_factory):
    data = counted(work, tmp_path_factory.mktemp("words") / "prepare")
    common = [f"workdir={work}", f"data.dir={data}", *SMALL, *SAVING]

    def run(out, *words, ranks=1):
        return train_many([(ranks, [*common, f"out={out}", *words])])

    return run


@pytest.fixture(scope="module")
def short(train, tmp_path_factory):
    out = tmp_path_factory.mktemp("short") / "train"
    train(out, *SHORT)
    return out


def copied(short, folder):
    return Path(shutil.copytree(short, folder / "train"))


def weights(out):
    path, state = checkpoint_folder.locate(out)
    reader = checkpoint.Tensors(path)
    return state.step, {name: reader.weight(name) for _, name in sorted(reader.moments)}


def steps_kept(out):
    return {run.name: list(checkpoint_folder.steps(run)) for run in (out / checkpoint_folder.RUNS).iterdir()}


@pytest.mark.slow
def test_a_longer_training_is_the_same_as_one_from_the_start(train, short, tmp_path):
    extended = copied(short, tmp_path)
    said = train(extended, *LONG)
    assert "train: the first 12 steps are those of " in said
    assert "resumed after step 12" in said
    assert "other settings" not in said
    train(tmp_path / "whole", *LONG)
    step, ours = weights(extended)
    assert step == 40
    _, whole = weights(tmp_path / "whole")
    assert ours.keys() == whole.keys()
    assert all(torch.equal(ours[name], whole[name]) for name in ours)
    assert losses(extended) == losses(tmp_path / "whole")
    (own,) = steps_kept(tmp_path / "whole").items()
    assert own in steps_kept(extended).items(), "those kept for their words too"
