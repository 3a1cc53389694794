"""`hours=` is a recipe: it fills in settings that a user may type."""

import json
from dataclasses import replace

import pytest

from model.training import law, probe
from pipeline.common import cores
from pipeline.errors import ConfigError
from pipeline.orchestration import planner
from pipeline.tokenization.wordpiece import SPECIAL
from tests.support.refusals import refused
from tests.support.runs import composed

RATES = [(7e5, 20_000.0), (3.3e6, 9_000.0), (2.1e7, 1_500.0)]


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """What is remembered of a machine that was measured before."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    path = probe.cache_file(cores.available())
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"rates": RATES}))
    return path


@pytest.fixture
def words(tmp_path):
    """A run of 40 documents of 50 words, one of them twice."""
    texts = [" ".join(f"word{n * k % 97}." for k in range(1, 51)) for n in range(1, 41)]
    lines = [json.dumps({"text": text}) for text in [*texts, texts[0]]]
    (tmp_path / "text.jsonl").write_text("\n".join(lines))
    return ["+corpus=jsonl", f"corpus.path={tmp_path}/text.jsonl", f"workdir={tmp_path}/run"]


def test_a_plan_is_settings_that_can_be_typed(words, tmp_path):
    run = composed(*words, "hours=1")
    kept = json.loads((tmp_path / "run" / planner.FILE).read_text())
    typed = composed(*words, *kept["words"])
    assert run.stages == typed.stages
    assert run.recipe == "planned"
    layers, hidden = map(int, run.stages["train"].model.name.split("x"))
    assert (run.stages["train"].model.layers, run.stages["train"].model.hidden) == (layers, hidden)
    assert run.stages["train"].optimizer.learning_rate == pytest.approx(law.near("rate", hidden), rel=1e-3)


def test_a_plan_of_an_earlier_release_stays_a_bert(words, tmp_path):
    assert composed(*words, "hours=1").stages["train"].model.architecture == "modernbert"
    path = tmp_path / "run" / planner.FILE
    kept = json.loads(path.read_text())
    kept["words"] = [word for word in kept["words"] if not word.startswith("model=")]
    path.write_text(json.dumps(kept))
    assert composed(*words, "hours=1").stages["train"].model.architecture == "bert"


def test_what_is_typed_counts(words):
    run = composed(*words, "hours=1", "vocab.size=1234", "train.optimizer.learning_rate=0.5", "model.layers=3")
    assert run.stages["vocab"].size == 1234
    assert run.stages["train"].optimizer.learning_rate == 0.5
    assert run.stages["train"].model.layers == 3
    assert composed(*words, "hours=1", "train.epochs=3").stages["train"].steps is None
    assert composed(*words, "+hours=1").recipe == "planned"


@pytest.mark.parametrize(("key", "row"), [("model.layers=3", "3x"), ("vocab.size=2048", "2,048"), ("steps=77", " 77 ")])
def test_a_plan_is_made_of_what_is_typed_and_made_again_for_other_words(words, capsys, key, row):
    composed(*words, "hours=1")
    capsys.readouterr()
    composed(*words, "hours=1", key)
    said = capsys.readouterr()
    assert row in next(line for line in said.out.splitlines() if line.startswith("chosen"))
    composed(*words, "hours=1", "train.optimizer=adamw", "model.dropout=0.1", "model.layers=2", "train.keep_best=true")
    assert "without train.model.dropout, train.optimizer; its learning rate is Muon's" in capsys.readouterr().err


def test_a_plan_knows_an_existing_vocabulary_and_a_new_text(words, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *(f"w{n}" for n in range(300))]))
    words.append(f"vocab.existing={tmp_path}/vocab.txt")
    first = composed(*words, "hours=1")
    assert json.loads((tmp_path / "run" / planner.FILE).read_text())["asked"]["typed"]["entries"] == 305
    (tmp_path / "text.jsonl").write_text(json.dumps({"text": " ".join(f"w{n}" for n in range(20_000))}))
    assert composed(*words, "hours=1").stages["train"].steps > first.stages["train"].steps


def test_what_a_step_takes_fits_the_hours():
    text = planner.Text(5_000_000, 25_000_000, None, True, 1.0)

    def steps(**typed):
        found = planner.best_of_sizes(1.0, text, RATES, 0.95, replace(planner.Typed(sizes={"hidden": 128}), **typed))
        assert all(one.share <= 1.0 for one in found) == (typed.get("steps") is None)
        return {one.size: one.steps for one in found}

    for typed in ({"length": 128}, {"batch": 64}, {"trainings": 3}, {"sizes": {"hidden": 128, "feed_forward": 4096}}):
        assert steps(**typed)["2x128"] < steps()["2x128"]
    assert {*steps(steps=10**6).values()} == {10**6}


def test_the_same_command_goes_on_with_the_same_plan(words, tmp_path, cache):
    dry = composed(*words, "hours=1", "dry_run=true")
    assert not (tmp_path / "run").exists(), "a dry run leaves nothing"
    first = composed(*words, "hours=1")
    assert dry.stages == first.stages
    cache.write_text(json.dumps({"rates": [(1e6, 1.0)]}))  # another machine, or release
    assert composed(*words, "hours=1").stages == first.stages
    assert composed(*words, "hours=2").stages != first.stages


def test_words_are_counted_once_each(words, tmp_path):
    config = composed(*words, "recipe=planned").stages["prepare"]
    text = planner.count(config, 1e9)
    assert (text.words, text.whole) == (40 * 50, True)
    assert not planner.count(config, 100).whole


def test_no_text_is_read_more_often_than_was_measured():
    known = law.table()["range"]["readings"]
    text = planner.Text(50_000, 250_000, None, True, 1.0)
    few, many = (list(planner.candidates(hours, text, RATES, 0.95)) for hours in (0.1, 100.0))
    assert max(one.readings for one in many) == pytest.approx(known)
    assert all(more.steps >= less.steps for less, more in zip(few, many, strict=True))
    assert any("more text helps" in doubt for doubt in planner.doubts(many[0], text))


def test_a_vocabulary_is_planned_for_no_less_text_than_it_was_tried_on():
    least = law.table()["text_of_entries"]
    for size in (10**5, 10**6, 10**7):
        text = planner.Text(size // 5, size, None, True, 1.0)
        planned = {one.entries for one in planner.candidates(1.0, text, RATES, 0.95)}
        assert planned == {min(least)} | {entries for entries in least if least[entries] <= size}


def test_a_plan_of_too_few_tokens_says_so():
    text = planner.Text(6_000_000, 30_000_000, None, True, 10.0)
    for hours, said in ((0.02, True), (1.0, False)):
        best, *_ = planner.best_of_sizes(hours, text, RATES, 0.95, planner.Typed())
        assert best.entries == 4096, "of those no better than a guess, that of most tokens"
        assert any("how frequent tokens are" in doubt for doubt in planner.doubts(best, text)) == said


@pytest.mark.parametrize("key", ["recipe=laptop", "model=mini", "train.model=mini"])
def test_what_it_chooses_is_not_typed_beside_it(words, key):
    with refused(ConfigError, "chosen by hours", key=key.partition("=")[0]):
        composed(*words, "hours=1", key)


@pytest.mark.parametrize("value", ["0", "-1", "many", "nan", "inf", "1_5"])
def test_hours_are_a_number(words, value):
    with refused(ConfigError, "must be a number above 0", key="hours", value=value):
        composed(*words, f"hours={value}")


def test_a_run_elsewhere_is_not_planned(words):
    with refused(ConfigError, "this machine", key="hours"):
        composed(*words[:2], "workdir=s3://bucket/run", "hours=1")
