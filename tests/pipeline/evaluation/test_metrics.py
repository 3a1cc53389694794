import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.evaluation import metrics
from pipeline.evaluation.task_types import round_score

# Devlin et al. 2019, table 1, in the order of metrics.GLUE: each system's nine columns, its average
PAPER = {
    "OpenAI GPT": ([82.1, 81.4, 70.3, 87.4, 91.3, 45.4, 80.0, 82.3, 56.0], 75.1),
    "BERT base": ([84.6, 83.4, 71.2, 90.5, 93.5, 52.1, 85.8, 88.9, 66.4], 79.6),
    "BERT large": ([86.7, 85.9, 72.1, 92.7, 94.9, 60.5, 86.5, 89.3, 70.1], 82.1),
}


@pytest.mark.parametrize("system", PAPER)
def test_the_average_is_the_papers(system):
    scores, average = PAPER[system]
    assert round(metrics.glue_average(dict(zip(metrics.GLUE, scores, strict=True))), 1) == average


def test_the_average_needs_all_nine_and_leaves_wnli_out():
    scores = dict.fromkeys(metrics.GLUE, 0.5)
    assert metrics.glue_average({**scores, "wnli": 0.0}) == 0.5
    del scores["rte"]
    assert metrics.glue_average(scores) is None


def test_scores_are_the_textbooks():
    labels, found = np.array([1.0, 1, 1, 0, 0, 0, 0, 0]), np.array([1.0, 1, 0, 1, 0, 0, 0, 0])
    scores = metrics.score(["accuracy", "f1", "matthews"], labels, found)
    assert scores["accuracy"] == pytest.approx(6 / 8)
    assert scores["f1"] == pytest.approx(2 / 3)  # 2 * 2 / (2 * 2 + 1 + 1)
    assert scores["matthews"] == pytest.approx((2 * 4 - 1 * 1) / (3 * 3 * 5 * 5) ** 0.5)


def test_spearman_sees_order_and_pearson_distance():
    labels, found = np.array([0.0, 1, 2, 3]), np.array([0.0, 1, 2, 30])
    scores = metrics.score(["spearman", "pearson"], labels, found)
    assert scores["spearman"] == pytest.approx(1)
    assert scores["pearson"] == pytest.approx(np.corrcoef(labels, found)[0, 1])
    assert scores["pearson"] < 0.9


@given(st.lists(st.integers(0, 1), min_size=2, max_size=40))
def test_a_constant_answer_scores_the_largest_share_and_correlates_with_nothing(dev):
    labels = np.array(dev, np.float64)
    scores = metrics.constant(["accuracy", "matthews", "f1"], labels, classes=2)
    assert (scores["accuracy"], scores["matthews"]) == (pytest.approx(max(labels.mean(), 1 - labels.mean())), 0)
    assert metrics.constant(["pearson", "spearman"], labels, classes=0) == {"pearson": 0, "spearman": 0}


def test_a_single_row_correlates_with_nothing():
    one = np.array([2.5])
    assert metrics.score(["pearson", "spearman"], one, one) == {"pearson": 0.0, "spearman": 0.0}


def test_f1_of_several_labels_is_that_of_their_counts():
    truth, found = np.array([[1, 0, 1], [0, 0, 0], [1, 1, 0]]), np.array([[1, 0, 0], [0, 0, 1], [1, 0, 0]])
    scores = metrics.score(["micro_f1", "macro_f1", "accuracy"], truth, found)
    assert scores == pytest.approx({"micro_f1": 2 * 2 / (4 + 3), "macro_f1": 1 / 3, "accuracy": 0.0})
    assert metrics.constant(["micro_f1"], truth, 3) == pytest.approx({"micro_f1": 2 * 2 / (4 + 3)})


def test_macro_f1_is_the_mean_over_classes():
    truth, found = np.array([0, 1, 2, 2]), np.array([0, 2, 2, 2])
    assert metrics.score(["macro_f1"], truth, found)["macro_f1"] == pytest.approx((1 + 0 + 0.8) / 3)


def test_scores_of_any_scale_keep_their_digits():
    for scale in (1e-9, 1e-5, 1.0, 1e6):
        found = [round_score(scale * value) for value in (1.00001, 1.00002, 3.0)]
        assert found == pytest.approx([scale * 1.00001, scale * 1.00002, scale * 3], rel=1e-6)
