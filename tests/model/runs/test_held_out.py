"""What is held out, and which checkpoint it chooses."""

import json
import math
from pathlib import Path

import pytest

from benchmarks.small import write_prepared
from model.config import DataConfig, ObjectiveConfig
from model.loader.loader import Loader
from pipeline.errors import ConfigError
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest, require_manifest
from pipeline.tokenization.wordpiece import WordPiece
from tests.model.conftest import SMALL, losses, rows, train_many
from tests.support.refusals import refused


def test_a_held_out_set_of_ones_own_has_a_loss_per_name(work, tmp_path):
    folders = [str(tmp_path / name / "prepare") for name in ("old", "new-1")]
    for seed, folder in enumerate(folders, 1):
        write_prepared(Path(folder), WordPiece.load(work / "vocab"), seed)
    run = [*SMALL, f"workdir={work}", "steps=3", "evaluate_every=2"]
    outs = [tmp_path / name for name in ("own", "both", "second")]
    named = ["", f"data.validation=[{','.join(folders)}]", f"data.validation=[{folders[1]}]"]
    said = train_many([(1, [*run, f"out={out}", *filter(None, [key])]) for out, key in zip(outs, named, strict=True)])
    own, both, second = (rows(out, "validation") for out in outs)
    assert losses(outs[0]) == losses(outs[1]) == losses(outs[2]), "what is trained on is the same"
    assert [row["new_1_loss"] for row in both] == pytest.approx([row["loss"] for row in second])
    assert len({row["loss"] for row in (own[-1], both[-1], second[-1])}) == 3
    assert both[-1]["old_loss"] != both[-1]["new_1_loss"]
    for key in ("loss", "masked_lm_accuracy"):
        low, high = sorted((both[-1][f"old_{key}"], both[-1][f"new_1_{key}"]))
        assert low <= both[-1][key] <= high, "the mean of its parts"
    assert "new 1 loss" in said
    assert said.count("validation_share=0") == 2, "what prepare held out is read by the first alone"
    inputs = require_manifest(outs[1], "train", "out").inputs
    assert {inputs[f"data.validation.{n}"] for n in (0, 1)} == {f"{seed:064x}" for seed in (1, 2)}


@pytest.mark.parametrize(
    ("folders", "names"),
    [
        ([], []),
        (["w/a/prepare"], []),
        (["w/a/prepare", "w/b/prepare"], ["a", "b"]),
        (["w/prepare-old", "w/prepare-new"], ["prepare_old", "prepare_new"]),
        (["s3://x/a/prepare", "w/prepare", "x/y/prepare"], ["a", "w", "y"]),
        (["w/新闻/prepare", "w/小说/prepare"], ["新闻", "小说"]),
        (["w/x-1", "w/x_1"], ["set_0", "set_1"]),
        (["w/average/a", "w/new/a"], ["set_0", "set_1"]),  # an average of the weights has figures of that name
    ],
)
def test_parts_are_named_by_what_their_paths_have_alone(folders, names):
    data = DataConfig(dir="w/prepare", vocab="v", validation=folders)
    assert list(data.held_out_parts) == names
    assert [part.folders for part in data.held_out_parts.values()] == [[folder] for folder in folders if names]
    assert data.held_out.folders == (folders or ["w/prepare"])


def test_a_folder_given_twice_is_refused():
    for key, folders in {"more": ["w/a", "w/prepare"], "validation": ["w/a", "w/a"]}.items():
        with refused(ConfigError, "twice", key=f"data.{key}"):
            DataConfig(dir="w/prepare", vocab="v", **{key: folders})


def test_the_best_checkpoint_is_the_result(work, tmp_path):
    rising = ["optimizer.learning_rate=0.5", "schedule=constant", "schedule.warmup_steps=12"]  # falls, then diverges
    run = [*SMALL, *rising, f"workdir={work}", f"out={tmp_path}/out", "evaluate_every=1", "keep=1", "keep_best=true"]
    said = train_many([(1, run)])
    out = tmp_path / "out"
    held = {row["step"]: row for row in rows(out, "validation")}
    best = min(held, key=lambda step: held[step]["loss"])
    assert best < max(held), "of no use here"
    made = Manifest.read(out)
    path, state = checkpoint_folder.locate(out)
    assert (state.step, Path(made.figures["checkpoint"]).name) == (best, path.name)
    assert list(checkpoint_folder.steps(path.parent)) == [best, 12]
    assert made.figures["validation"]["masked_lm_loss"] == held[best]["masked_lm_loss"]
    assert f"checkpoint of step {best}," in said
    assert (
        json.loads((path.parent / checkpoint_folder.name_of(12) / checkpoint_folder.STATE).read_text())["best"]["step"]
        == best
    )
    longer = train_many([(1, [*run, "steps=13"])])
    assert "the first 12 steps are those of" in longer
    path, state = checkpoint_folder.locate(out)
    assert (state.step, list(checkpoint_folder.steps(path.parent))) == (best, [best, 13])
    for changed in ("evaluate_samples=3", "evaluate_every=2"):  # what is measured decides which one is the best
        assert "steps are those of" not in train_many([(1, [*run, "steps=13", changed])])


@pytest.mark.parametrize("key", ["data.dir", "data.more", "data.validation"])
def test_a_folder_that_is_not_there_is_named_by_its_key(work, tmp_path, key):
    place = f"{tmp_path}/none"
    typed = f"{key}={place}" if key == "data.dir" else f"{key}=[{place}]"
    said = train_many([(1, [*SMALL, f"workdir={work}", "steps=3", f"out={tmp_path}/out", typed])], code=2)
    assert f"{key}={place}: " in said


def test_bits_per_byte_are_the_loss_of_the_text_that_is_masked(work, tmp_path):
    """Whatever the number of ranks; counted here token by token."""
    run = [*SMALL, f"workdir={work}", "steps=1", "evaluate_samples=9"]
    train_many([(1, [*run, f"out={tmp_path}/one"]), (2, [*run, f"out={tmp_path}/two"])])
    wordpiece = WordPiece.load(work / "vocab")
    data = DataConfig(dir=str(work / "prepare"), vocab=str(work / "vocab"))
    batch = Loader(data, ObjectiveConfig(name="nsp"), wordpiece, 0, "validation").batch(0, 9).batches[0]
    texts = [wordpiece.vocab[label].removeprefix("##") for label in batch.masked_labels.tolist()]
    size = sum(len(text.encode()) for text in texts) / len(texts)
    for out in ("one", "two"):
        found = rows(tmp_path / out, "validation")[-1]
        assert found["bits_per_byte"] == pytest.approx(found["masked_lm_loss"] / math.log(2) / size)
