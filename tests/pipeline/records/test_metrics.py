"""Records read the figures of every release, and each number made of them has one value."""

import json
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pipeline.records import metrics
from pipeline.records.metrics import Conversion, CorpusCounts, PairScore, Score, TrainingSummary
from tests.support import finished

# By a commit before there were records, of a small run.
OLD = json.loads((Path(__file__).parent / "golden" / "figures_1.json").read_text())
RECORDS = [CorpusCounts, TrainingSummary, Score, Conversion]


def manifest(stage, **found):
    return finished.manifest(stage, figures=found, seconds=7200.0)


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_has_all_that_an_older_release_wrote(kind):
    before = OLD[kind.stage]
    now = json.loads(json.dumps(kind.from_json(before).to_json()))
    assert (now.pop("schema"), {key: now[key] for key in before}) == (metrics.SCHEMA, before)


@pytest.mark.parametrize("kind", RECORDS)
def test_a_record_is_the_same_read_again(kind):
    found = kind.from_json(OLD[kind.stage])
    assert kind.from_json(json.loads(json.dumps(found.to_json()))) == found
    newer = found.to_json() | {"schema": 99, "of_a_later_release": {}}
    assert kind.from_json(newer) == found


@pytest.mark.parametrize("kind", RECORDS)
def test_what_was_not_noted_is_missing_and_no_error(kind):
    found = kind.of(manifest(kind.stage, task="x"))
    assert found.to_json() == kind.from_json({"task": "x"}).to_json()


def test_numbers_of_a_corpus_add_up():
    counts = CorpusCounts.from_json(OLD["prepare"])
    assert (counts.written, counts.found) == (6, 6)
    assert counts.instances == counts.train + counts.held_out == sum(counts.lengths.values())
    assert (counts.instances, counts.mean_length) == (sum(shard.rows for shard in counts.shards.values()), 64)
    assert "64.0 tokens on average, 100.0% have all 64" in counts.lengths_line
    assert (counts.words, counts.train_words) == (97660 + 72893, pytest.approx(84732.7, abs=0.1))
    assert dict(counts.rows())["notes: CRLF line ends"] == 6
    skipped = replace(counts, skipped={"redirect": 3})
    assert (skipped.written, skipped.found) == (6, 9)


def test_counters_are_written_as_they_are():
    found = CorpusCounts.from_json({"documents": Counter({"read": 5, "written": 5})})
    assert found.to_json()["documents"] == {"read": 5, "written": 5}


def test_the_time_of_a_training_is_that_of_its_manifest():
    found = TrainingSummary.of(manifest("train", **OLD["train"]))
    assert found.hours == 2
    assert "seconds" not in found.to_json()
    assert found.passes is None, "the size of an epoch was not noted"
    assert replace(found, samples=30, samples_per_epoch=20).passes == 1.5
    assert "not finite" in replace(found, validation={}).line


def test_sets_that_a_model_was_scored_on_too_are_scores():
    also = {"mnli_mm": {"title": "MNLI-mm", "metric": "accuracy", "score": 0.61, "baseline": 0.4}}
    whole = {"task": "mnli", "sample": False, "rows": {"train": 5, "dev": 3}, "also": also}
    found = Score.from_json(whole)
    ours, other = found.parts()
    assert (ours, ours.title) == (found, "mnli")
    assert (other.task, other.title, other.score, other.rows) == ("mnli_mm", "MNLI-mm", 0.61, {"train": 5})


def test_pairs_are_told_by_their_tables():
    assert isinstance(Score.from_json({"task": "blimp", "tables": {}}), PairScore)
    assert not isinstance(Score.from_json({"task": "rte"}), PairScore)


@pytest.mark.parametrize(("metric", "title"), [("f1", "f1 of no"), ("accuracy", "accuracy"), ("matthews", "matthews")])
def test_the_label_that_a_metric_is_of_is_said(metric, title):
    assert Score(task="x", metric=metric, positive="no").metric_title == title
    assert Score(task="x", metric=metric).metric_title == metric


def test_means_over_seeds_are_of_what_all_have():
    part = Score(task="y", score=0.2)
    scores = [Score(task="x", score=0.5, baseline=0.4, also={"y": part}), Score(task="x", score=1)]
    found = scores[0].of_seeds(scores)
    assert (found.score, found.baseline, found.also["y"].score) == (0.75, 0.4, 0.2)
    assert found.deviation == pytest.approx(0.5 / math.sqrt(2))
    trainings = [TrainingSummary(validation={"masked_lm_accuracy": one}) for one in (0.25, 0.5)]
    assert trainings[0].of_seeds(trainings).accuracy == 0.375
    assert trainings[0].of_seeds([trainings[0], TrainingSummary()]).accuracy == 0.25


def test_the_mean_of_what_is_not_finite_is_not_finite():
    assert all(math.isnan(value or 0.0) for value in metrics.mean_of([math.nan, 0.5]))
    assert metrics.mean_of([0.5]) == (0.5, None)


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=9))
def test_mean_and_deviation_over_seeds_are_scipys(values):
    mean, deviation = metrics.mean_of(values)
    assert mean == pytest.approx(stats.tmean(values), abs=1e-9)
    assert deviation == pytest.approx(stats.tstd(values), abs=1e-9)
