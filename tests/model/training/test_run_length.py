"""Training counts the words of the text: exactly over epochs and resumes, and ends by them."""

import json
import shutil
from statistics import median

import pytest

from model.config import DataConfig, ModelConfig, TrainConfig
from model.loader.loader import GlobalBatch
from model.training import estimate, run_length
from model.training.run_length import WordCounter
from pipeline import convert, evaluate
from pipeline.common.schema import built
from pipeline.config import ConvertConfig, EvaluateConfig
from pipeline.errors import ConfigError, InputError
from pipeline.evaluation import examples, zero_shot
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest, require_manifest
from pipeline.records.metrics import TrainingSummary
from pipeline.stages import stage
from tests.model.conftest import COUNTED, SMALL, counted, rows, train_many
from tests.support import finished
from tests.support.refusals import refused

RUNS = {
    "whole": ["steps=50", "batch_size=12", "save_every=10", "keep_every=4", "keep=2"],  # two epochs
    "epoch": ["steps=50", "epochs=1", "batch_size=16", "schedule.warmup_steps=99"],
    "as many": ["steps=null", "epochs=2", "batch_size=16", "schedule=linear"],
    "limited": ["steps=50", "words=700", "save_at_words=[250,500]", "save_every=100", "keep=1"],
}


@pytest.fixture(scope="module")
def runs(work, tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    data = counted(work, folder / "prepare")
    common = [f"workdir={work}", f"data.dir={data}", *SMALL]
    said = train_many([(1, [*common, f"out={folder / name}", *more]) for name, more in RUNS.items()])
    assert said.count("ends after about 18 of 50 steps") == 1, "of an epoch"
    shutil.copytree(folder / "whole", folder / "resumed")
    (folder / "resumed" / "manifest.json").unlink()
    for step, path in checkpoint_folder.steps(run_of(folder / "resumed")).items():
        if step > 20:
            shutil.rmtree(path)
    more = RUNS["whole"]
    said = train_many([(2, [*common, f"out={folder / 'resumed'}", *more])])
    (folder / "said").write_text(said)
    return folder


@pytest.mark.slow
def test_an_estimate_from_what_was_reached_is_what_was_reached(runs):
    """Whatever the operations are of, the vocabulary's real size among them."""
    made = require_manifest(runs / "resumed", "train", "out")
    config = built(TrainConfig, made.config)
    estimate.remember(config)
    model = ModelConfig(**checkpoint_folder.locate(runs / "resumed")[1].model)
    expected = estimate.estimate_training(config, model, None, ranks=2).seconds
    rate = median(row["samples_per_second"] for row in rows(runs / "resumed"))
    assert expected == pytest.approx(estimate.START + 50 * config.batch_size / rate)


@pytest.mark.slow
def test_checkpoints_are_kept_at_multiples_that_are_saved_for_that_alone(runs):
    assert checkpoint_folder.steps(run_of(runs / "whole")).keys() == {*range(4, 50, 4), 50}


def run_of(out):
    (found,) = (out / checkpoint_folder.RUNS).iterdir()
    return found


def figures(out):
    made = Manifest.read(out)
    return made.figures


@pytest.mark.slow
def test_an_epoch_has_the_words_that_prepare_counted(runs):
    seen = {row["step"]: row["words"] for row in rows(runs / "whole")}
    assert seen[25] == pytest.approx(COUNTED)
    assert seen[50] == pytest.approx(2 * COUNTED)
    assert figures(runs / "whole")["words"] == seen[50]


@pytest.mark.slow
def test_a_run_that_resumes_on_other_ranks_counts_the_same(runs):
    assert figures(runs / "resumed")["words"] == figures(runs / "whole")["words"]


@pytest.mark.slow
def test_the_time_of_all_starts_adds_up(runs):
    before = checkpoint_folder.read_state(run_of(runs / "resumed") / checkpoint_folder.name_of(20)).seconds
    last = checkpoint_folder.read_state(run_of(runs / "resumed") / checkpoint_folder.name_of(50)).seconds
    made = require_manifest(runs / "resumed", "train", "out")
    assert 0 < before < last <= made.seconds
    assert TrainingSummary.of(made).hours == made.seconds / 3600
    assert f" in {made.seconds:.1f} s" in (runs / "said").read_text()


@pytest.mark.slow
def test_passes_over_the_text_are_said(runs):
    made = require_manifest(runs / "whole", "train", "out")
    assert TrainingSummary.of(made).passes == pytest.approx(2)
    assert "2.0 passes" in made.summary


@pytest.mark.slow
def test_a_limit_of_words_is_not_passed_and_not_missed_by_a_batch(runs):
    found = figures(runs / "limited")
    assert 700 - COUNTED / 25 * 2 < found["words"] <= 700
    assert found["steps"] < 50
    assert rows(runs / "limited")[-1]["words"] == found["words"]


@pytest.mark.slow
def test_a_limit_of_epochs_is_not_passed(runs):
    assert figures(runs / "epoch")["samples"] == 300 // 16 * 16
    assert "; warning: schedule.warmup_steps=99: " in require_manifest(runs / "epoch", "train", "out").summary
    assert figures(runs / "epoch")["words"] <= COUNTED


@pytest.mark.slow
def test_the_learning_rate_of_a_run_without_a_number_of_steps_ends_with_its_epochs(runs):
    found = figures(runs / "as many")
    assert found["steps"] == found["planned_steps"] == 600 // 16
    rates = [row["learning_rate"] for row in rows(runs / "as many")]
    assert rates[-1] < 0.1 * max(rates)


@pytest.mark.parametrize(
    ("limits", "steps"),
    [
        ({"steps": 7, "epochs": 1}, 7),
        ({"epochs": 2}, 37),
        ({"words": 1500}, 9),  # half of the rows
        ({"words": 1500, "epochs": 2}, 9),
        ({"words": 15_000, "epochs": 2}, 37),
    ],
)
def test_steps_follow_from_the_nearest_limit(work, tmp_path, limits, steps):
    assert run_length.steps_of(limited(counted(work, tmp_path / "prepare"), **limits)) == steps


def test_steps_beyond_a_limit_are_not_expected(work, tmp_path):
    """The schedule is of all steps, but a run and its estimate end before."""
    config = limited(counted(work, tmp_path / "prepare"), steps=100, epochs=1)
    assert (run_length.steps_of(config), run_length.expected_steps(config, 1.0)) == (100, 18)


def test_limits_that_allow_no_step_are_refused(work, tmp_path):
    folder = counted(work, tmp_path / "prepare")
    with pytest.raises(ConfigError, match="words=100"):
        run_length.steps_of(limited(folder, words=100))
    with pytest.raises(ConfigError, match="steps=null"):
        limited(folder)


def limited(folder, **limits):
    settings = {"steps": None} | limits
    return TrainConfig(out="out", data=DataConfig(dir=str(folder), vocab="v"), batch_size=16, **settings)


@pytest.mark.slow
def test_checkpoints_at_words_are_kept_and_step_0_is_one(runs):
    marks = {
        step: json.loads((path / checkpoint_folder.STATE).read_text())["mark"]
        for step, path in checkpoint_folder.steps(run_of(runs / "limited")).items()
    }
    assert marks[0] == 0
    assert sorted(mark for mark in marks.values() if mark) == [250, 500]
    for step, path in checkpoint_folder.steps(run_of(runs / "limited")).items():
        state = checkpoint_folder.read_state(path)
        assert state.mark is None or state.words >= state.mark, step


@pytest.mark.slow
def test_shards_without_words_train_unless_a_setting_needs_them(work, tmp_path):
    common = [f"workdir={work}", f"out={tmp_path / 'old'}", *SMALL, "steps=2"]
    said = train_many([(1, common), (1, [*common, "words=500"])], code=2)
    assert "the shards do not know their words; make them again with force=true" in said
    assert "words" not in rows(tmp_path / "old")[-1]


def seen_after(config, words):
    """The counter and the state after a run whose batches have so many words, and the marks that each step reaches."""
    state = finished.state(0, words=0.0)
    seen = WordCounter(config, state)
    batches = (GlobalBatch([], 0, 1, number) for number in words)
    return seen, state, [seen.add(batch) for batch in seen.until_limit(batches)]


def test_the_last_step_reaches_the_limit_of_words_which_it_may_not_pass():
    config = TrainConfig(words=1000, save_at_words=[500, 1000, 5000])
    seen, state, reached = seen_after(config, [99.0] * 20)
    assert state.words == 990
    assert reached == [[]] * 5 + [[500]] + [[]] * 3 + [[1000]]
    assert seen.missed() == [5000]
    assert seen_after(config, [99.0] * 7)[2][-1] == [], "ended by its steps, far from the next mark"


def test_marks_that_a_resumed_run_has_passed_are_named():
    config, state = TrainConfig(words=1000, save_at_words=[100, 200, 500, 900]), finished.state(0, words=0.0)
    seen = WordCounter(config, state)
    assert seen.passed(set()) == [], "a start at 0 passes none"
    state.words = 510.0
    assert seen.passed({200.0}) == [0, 100, 500]
    assert seen.passed({0.0, 100.0, 200.0, 500.0}) == []


def test_names_of_checkpoints_differ_as_their_words_do():
    marks = [1e6, 1_000_001, 12_345_678, 1e8, 2.5e5, 1e9]
    names = ["1", "1.000001", "12.345678", "100", "0.25", "1000"]
    assert [convert.milestone_name(mark) for mark in marks] == [f"chck_{name}M" for name in names]


def test_a_limit_below_the_first_step_is_refused():
    _, state, reached = seen_after(TrainConfig(words=50), [99.0])
    assert reached == []
    with refused(InputError, key="words"):
        run_length.require_steps(TrainConfig(words=50), state.step)


def test_a_limit_of_epochs_below_the_first_step_is_named_next_to_one_of_words():
    with pytest.raises(InputError) as raised:
        run_length.require_steps(TrainConfig(words=10**9, epochs=1), 0)
    assert "epochs=1" in str(raised.value)


@pytest.fixture(scope="module")
def converted(runs, work):
    """The marked checkpoints as folders of models."""
    vocab = runs / "vocab"
    shutil.copytree(work / "vocab", vocab)
    finished.manifest("vocab").write(vocab)
    config = ConvertConfig(
        workdir=str(runs),
        out=str(runs / "convert"),
        train=str(runs / "limited"),
        vocab=str(vocab),
        checkpoints="marked",
    )
    stage.run("convert", config, convert.make)
    return runs / "convert"


@pytest.mark.slow
def test_each_marked_checkpoint_becomes_a_folder(converted):
    names = sorted(path.name for path in converted.iterdir() if path.is_dir())
    assert names == ["chck_0.00025M", "chck_0.0005M", "chck_0M"]
    found = figures(converted)["checkpoints"]
    assert found["chck_0M"]["words"] == 0
    assert found["chck_0.00025M"]["words"] >= 250


def pairs_config(top, pretrained):
    (top / "data").mkdir()
    lines = [json.dumps({"sentence_good": f"w1 w{n}", "sentence_bad": f"w{n} w90"}) for n in range(9)]
    (top / "data" / "pairs.jsonl").write_text("\n".join(lines))
    return EvaluateConfig(
        workdir=str(top),
        out=str(top / "out"),
        task=examples.task_of("blimp"),
        data=str(top / "data"),
        pretrained=str(pretrained),
        checkpoints="all",
        threads=1,
    )


@pytest.mark.slow
@pytest.mark.parametrize("start", ["limited", "convert"])
def test_minimal_pairs_are_scored_over_a_training(converted, runs, tmp_path, start):
    """From checkpoints and from converted folders alike."""
    config = pairs_config(tmp_path, runs / start)
    found = stage.run("evaluate", config, evaluate.make, in_place=True).figures["checkpoints"]
    words = [point["words"] for point in found]
    assert words == sorted(words)
    assert words[0] == 0
    assert len(found) == (4 if start == "limited" else 3)  # the last one of all has no mark


@pytest.mark.slow
def test_checkpoints_that_a_training_removes_meanwhile_are_left_out(runs, tmp_path, monkeypatch, capsys):
    for name in ("limited", "vocab"):
        shutil.copytree(runs / name, tmp_path / name)
    config = pairs_config(tmp_path, tmp_path / "limited")
    config.baseline = False
    first, second, *others = zero_shot.candidates(config)
    scores_of = zero_shot.scores_of

    def removing(*args):
        shutil.rmtree(second.folder, ignore_errors=True)
        return scores_of(*args)

    monkeypatch.setattr(zero_shot, "scores_of", removing)
    found = stage.run("evaluate", config, evaluate.make, in_place=True).figures["checkpoints"]
    assert [point["name"] for point in found] == [one.name for one in (first, *others)]
    assert f"{second.name}: left out" in capsys.readouterr().out
