"""The metrics of GLUE (Wang et al. 2018, table 1), from scikit-learn and scipy."""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats
from sklearn import metrics

Values = npt.NDArray[np.float64]


def _correlation(measure: Callable[[Values, Values], Any], labels: Values, found: Values) -> float:
    """Return a correlation, or 0 where it is undefined: constant answers, or a single one."""
    if len(labels) < 2:
        return 0.0
    value = float(measure(labels, found)[0])
    return 0.0 if np.isnan(value) else value


METRICS: dict[str, Callable[[Values, Values], float]] = {
    "accuracy": metrics.accuracy_score,
    "f1": partial(metrics.f1_score, zero_division=0),
    "macro_f1": partial(metrics.f1_score, average="macro", zero_division=0),
    "micro_f1": partial(metrics.f1_score, average="micro", zero_division=0),
    "matthews": metrics.matthews_corrcoef,
    "pearson": partial(_correlation, stats.pearsonr),
    "spearman": partial(_correlation, stats.spearmanr),
}

# The columns of Devlin et al. 2019, table 1; their average counts every column once, MNLI twice.
GLUE = ("mnli", "mnli_mm", "qqp", "qnli", "sst2", "cola", "stsb", "mrpc", "rte")


def score(names: list[str], labels: Values, predictions: Values) -> dict[str, float]:
    """Return the named metrics of predictions `(N,)` for labels `(N,)`: classes, scores, or `(N, C)` of 0 and 1."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the undefined correlation of constant answers
        return {name: float(METRICS[name](labels, predictions)) for name in names}


def constant(names: list[str], truth: Values, classes: int) -> dict[str, float]:
    """Return the metrics of always predicting the most frequent class, or the mean, of these very examples.

    A class that is the most frequent of other examples may be a rare one here: guessing would look worse than it is.
    """
    if truth.ndim == 2:  # several labels: always the most frequent one
        return score(names, truth, np.tile(np.eye(classes)[truth.sum(0).argmax()], (len(truth), 1)))
    guess = np.bincount(truth.astype(np.int64)).argmax() if classes else truth.mean()
    return score(names, truth, np.full(len(truth), float(guess)))


def glue_average(scores: Mapping[str, float]) -> float | None:
    """Return the paper's average of scores by task name, without WNLI; None if one is missing.

    The paper leaves WNLI out, as no system of its time beat the most frequent class (section 4.1
    and appendix B.1).
    """
    return float(np.mean([scores[task] for task in GLUE])) if scores.keys() >= set(GLUE) else None
