"""Scores in the report: of one of several seeds, of minimal pairs, next to what others published."""

import json
import re

import pytest

from pipeline import report
from pipeline.config import ReportConfig
from pipeline.records.metrics import PairScore
from pipeline.reporting import minimal_pair_tables
from tests.pipeline.test_report import configure, manifest, page, pairs_figures, score_of


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_all_that_one_seed_has_alone_is_of_the_seed_with_the_baselines(order, tmp_path):
    stages = []
    for seed in order:
        end = f"-seed{seed}" if seed else ""
        blimp = pairs_figures(baseline=None if seed else 0.25, model=f"of seed {seed}")
        manifest(tmp_path / f"evaluate-blimp{end}", "evaluate", f"{seed}b", {}, **blimp)
        curve = pairs_figures(baseline=None, model=f"of seed {seed}", task="blimp2")
        manifest(tmp_path / f"evaluate-curve{end}", "evaluate", f"{seed}c", {}, **curve)
        more = {} if seed else {"also": {"y": {"metric": "accuracy", "score": 0.5}}}
        score_of(tmp_path, f"x{end}", 0.5, task="x", baseline=None, **more)
        stages += [str(tmp_path / f"evaluate-{name}{end}") for name in ("blimp", "curve", "x")]
    report.run(ReportConfig(workdir=str(tmp_path), out=str(tmp_path / "report"), stages=stages))
    text = (tmp_path / "report" / "report.html").read_text()
    assert text.count("Model of seed 0") == 2
    assert "Model of seed 1" not in text
    assert "samples and the curves elsewhere are of seed 0" in text


def test_evaluations_of_one_title_have_rows_of_their_own(tmp_path):
    for seed in (0, 1):
        end = f"-seed{seed}" if seed else ""
        for name, score in (("evaluate-blimp", 0.6), ("evaluate-curve-blimp", 0.8)):
            figures = pairs_figures(score=score + seed / 100)
            manifest(tmp_path / f"{name}{end}", "evaluate", f"{seed}", {}, **figures)
        only = pairs_figures(title="EWoK", score=0.5 + seed / 100)
        manifest(tmp_path / f"evaluate-ewok{end}", "evaluate", f"{seed}", {}, **only)
    page(tmp_path)
    found = json.loads((tmp_path / "report" / "seeds.json").read_text())
    means = {title: one["mean"] for title, one in found.items() if "mean of" in title}
    assert means == {
        "BLiMP, mean of paradigms (evaluate-blimp)": pytest.approx(0.605),
        "BLiMP, mean of paradigms (evaluate-curve-blimp)": pytest.approx(0.805),
        "EWoK, mean of paradigms": pytest.approx(0.505),
    }


def with_all_paradigms(figures):
    """The same with all paradigms of BLiMP, of which the others are of another phenomenon."""
    tables = figures["tables"]
    entry = tables["macro"] | {"phenomenon": "others"}
    names = minimal_pair_tables.PUBLISHED["blimp"][0]["paradigms"]
    every = {name: entry for name in names} | tables["paradigms"]
    return figures | {"tables": tables | {"paradigms": every}}


def points(*millions):
    """Scores of checkpoints after as many words."""
    common = {"tokens": None, "interval": [0, 1], "phenomena": {"island_effects": 0.5}}
    return [{"name": f"chck_{n}M", "step": n, "words": n * 1_000_000, "score": n / 10, **common} for n in millions]


def test_a_part_of_the_paradigms_is_not_compared_with_scores_over_all(tmp_path):
    figures = pairs_figures()
    folder = tmp_path / "evaluate-blimp"
    manifest(folder, "evaluate", "e", {"pretrained": "c"}, **figures)
    text = page(tmp_path)
    assert "65 published paradigms were not scored here" in text
    assert "BabyLM 2026" not in text
    assert "GPT-2" in text
    score = PairScore.from_json(with_all_paradigms(figures))
    assert "not scored" not in minimal_pair_tables.note(score)


def test_the_curve_of_some_pairs_joins_the_table_of_all(tmp_path):
    whole = with_all_paradigms(pairs_figures())
    manifest(tmp_path / "evaluate-blimp", "evaluate", "e", {"pretrained": "c"}, **whole)
    figures = pairs_figures(checkpoints=points(0, 1), baseline=None, baseline_tables=None)
    manifest(tmp_path / "evaluate-a-curve", "evaluate", "f", {}, **figures)
    text = page(tmp_path)
    assert text.count("60.0% of 20 pairs right") == 1
    card = next(part for part in text.split('<div class="card">') if part.startswith("BLiMP"))
    assert "<b>60.0%</b>" in card
    assert "60.0% random initialisation" in card
    assert text.count("over checkpoints (20 pairs)") == 1
    table = text.split("<th>over all")[1].split("</table>")[0]
    names = [re.sub("<[^>]+>", "", row) for row in re.findall(r"<tr><td>(.*?)<td", table)]
    scores = [float(one) for one in re.findall(r'<td class="n">([\d.]+)', table)]
    assert (scores, scores[names.index("this model")]) == (sorted(scores, reverse=True), 60)
    assert scores[names.index("random initialisation")] == 25
    assert scores[names.index("BabyLM 2026 GPT-2, 10M words")] == 65.1
    assert scores[names.index("BabyLM RoBERTa-base, 10M words")] == 69.5


def test_scores_over_converted_checkpoints_are_drawn_where_nothing_is_fine_tuned(tmp_path):
    for step in (100, 200):
        manifest(tmp_path / f"convert-{step}", "convert", "f", {}, step=step)
        manifest(tmp_path / f"evaluate-{step}", "evaluate", "e", {}, **pairs_figures())
        configure(tmp_path / f"evaluate-{step}", {"pretrained": str(tmp_path / f"convert-{step}")})
    text = page(tmp_path)
    assert "Scores on dev sets" not in text
    assert text.count("<figcaption>BLiMP over checkpoints") == 1


def test_learning_curves_of_minimal_pairs_are_drawn_a_line_per_seed(tmp_path):
    for seed in (0, 1, 5):
        points = [
            {"words": words, "tokens": None, "step": None, "score": score, "phenomena": {}}
            for words, score in ((0, 0.5), (1e6, 0.6 + seed / 100))
        ]
        folder = tmp_path / f"evaluate-curve{f'-seed{seed}' * bool(seed)}"
        manifest(folder, "evaluate", f"{seed}", {}, **pairs_figures(checkpoints=points))
    figure = page(tmp_path).split("<figcaption>BLiMP, mean of paradigms (evaluate-curve)")[1]
    figure = figure.split("</figure>")[0]
    assert [f"seed {seed}" in figure for seed in (0, 1, 5, 7)] == [True, True, True, False]
    assert "words seen" in figure


def test_checkpoints_are_drawn_over_the_words_that_they_have_seen(tmp_path):
    figures = pairs_figures(checkpoints=points(1, 2, 3))
    manifest(tmp_path / "evaluate-blimp", "evaluate", "e", {"pretrained": "c"}, **figures)
    text = page(tmp_path)
    assert "words seen" in text
    assert "Phenomena 1 to 1" in text
