"""A score is called chance where guessing would often reach it, and nowhere else."""

import numpy as np
import pytest
from scipy import stats

from pipeline.evaluation import significance
from pipeline.records.metrics import Score


def figures(metric, score, guess, rows, **more):
    found = {"metric": metric, "score": score, "majority": guess, "rows": {"dev": rows}, **more}
    return Score.from_json({"task": "x", **found})


F1 = {"scores": {"accuracy": 0.80}, "majority_scores": {"accuracy": 0.684}}
RARE = {"scores": {"accuracy": 0.928, "precision": 0.3, "f1": 0.27}, "majority_scores": {"accuracy": 0.932, "f1": 0.0}}
CASES = [
    ("± 0.032", "accuracy", 0.513, 0.5, 1000, {}),
    (None, "accuracy", 0.678, 0.5, 1000, {"baseline": 0.5}),
    ("on 20 dev examples", "accuracy", 0.60, 0.5, 20, {}),
    ("at chance on 1,000", "accuracy", 0.45, 0.6, 1000, {}),
    ("at chance", "matthews", 0.05, 0.0, 500, {}),
    (None, "matthews", 0.3, 0.0, 500, {"baseline": 0.1}),
    ("random initialisation", "accuracy", 0.70, 0.5, 1000, {"baseline": 0.72}),
    (None, "f1", 0.81, 0.812, 400, F1),
    ("at chance on 100", "f1", 0.0, 0.0, 100, {}),
    (None, "f1", 0.27, 0.0, 187, RARE),
    (None, "f1", 0.4, None, 100, {}),
    ("at chance", "accuracy", 0.3, 0.5, 0, {}),
    ("initialisation", "accuracy", 0.6, 0.5, 0, {"baseline": 0.7}),
]


@pytest.mark.parametrize(("remark", "metric", "score", "guess", "rows", "more"), CASES)
def test_a_score_is_compared_with_guessing(remark, metric, score, guess, rows, more):
    said = significance.verdict(figures(metric, score, guess, rows, **more))
    assert (said is None) if remark is None else (said is not None and remark in said)
    assert said is None or " 0 " not in said


def test_guessing_is_called_chance_nineteen_times_in_twenty():
    draws = np.random.default_rng(0).binomial(500, 0.5, 2000) / 500
    called = [significance.verdict(figures("accuracy", score, 0.5, 500)) for score in draws]
    assert sum(said is not None for said in called) > 0.95 * len(called)


@pytest.mark.parametrize("rows", [40, 277, 5000])
@pytest.mark.parametrize("guess", [0.5, 0.33, 0.7])
def test_the_spread_of_guesses_is_that_of_their_distribution(rows, guess):
    """Nineteen of twenty, two-sided, but for the steps of whole answers."""
    width = significance.spread("accuracy", guess, rows)
    low, high = stats.binom.interval(0.954, rows, guess)
    assert 2 * width == pytest.approx((high - low) / rows, abs=2 / rows)
    for metric in significance.CORRELATIONS:
        r = significance.spread(metric, 0.0, rows)
        value = 2 * stats.t.sf(r * np.sqrt((rows - 2) / (1 - r**2)), rows - 2)
        assert value == pytest.approx(0.045, abs=0.005)
