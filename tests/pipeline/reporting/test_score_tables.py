"""What only one of several seeds has is shown as that seed's."""

import json
from pathlib import Path

import pytest

from pipeline import report
from pipeline.config import ReportConfig
from tests.pipeline.test_report import manifest, pairs_figures


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_all_that_one_seed_has_alone_is_of_the_seed_with_the_baselines(order: tuple[int, int], tmp_path: Path) -> None:
    for seed in order:
        end = f"-seed{seed}" if seed else ""
        blimp = pairs_figures(baseline=None if seed else 0.25, model=f"of seed {seed}")
        manifest(tmp_path / f"evaluate-blimp{end}", "evaluate", f"{seed}b", {}, **blimp)
        curve = pairs_figures(baseline=None, model=f"of seed {seed}", task="blimp2")
        manifest(tmp_path / f"evaluate-curve{end}", "evaluate", f"{seed}c", {}, **curve)
        manifest(
            tmp_path / f"evaluate-x{end}",
            "evaluate",
            f"{seed}d",
            {},
            task="x",
            metric="accuracy",
            sample=False,
            score=0.5,
            baseline=None,
            majority=0.5,
            rows={"train": 4000, "dev": 1000},
            **({} if seed else {"also": {"y": {"metric": "accuracy", "score": 0.5}}}),
        )
    config = ReportConfig(
        workdir=str(tmp_path),
        out=str(tmp_path / "report"),
        stages=[
            str(tmp_path / f"evaluate-{name}{f'-seed{seed}' if seed else ''}")
            for seed in order
            for name in ("blimp", "curve", "x")
        ],
    )
    report.run(config)
    text = (tmp_path / "report" / "report.html").read_text()
    assert text.count("Model of seed 0") == 2
    assert "Model of seed 1" not in text
    assert "samples and the curves elsewhere are of seed 0" in text


def test_learning_curves_of_minimal_pairs_are_drawn_a_line_per_seed(tmp_path: Path) -> None:
    for seed in (0, 1, 5):
        points = [
            {"words": words, "tokens": None, "step": None, "score": score, "phenomena": {}}
            for words, score in ((0, 0.5), (1e6, 0.6 + seed / 100))
        ]
        manifest(
            tmp_path / f"evaluate-curve{f'-seed{seed}' * bool(seed)}",
            "evaluate",
            f"{seed}",
            {},
            **pairs_figures(checkpoints=points),
        )
    report.run(ReportConfig(workdir=str(tmp_path), out=str(tmp_path / "report")))
    text = (tmp_path / "report" / "report.html").read_text()
    figure = text.split("<figcaption>BLiMP, mean of paradigms (evaluate-curve)")[1]
    figure = figure.split("</figure>")[0]
    assert [f"seed {seed}" in figure for seed in (0, 1, 5, 7)] == [True, True, True, False]
    assert "words seen" in figure


def test_evaluations_of_one_title_have_rows_of_their_own(tmp_path: Path) -> None:
    for seed in (0, 1):
        end = f"-seed{seed}" if seed else ""
        for name, score in (("evaluate-blimp", 0.6), ("evaluate-curve-blimp", 0.8)):
            figures = pairs_figures(score=score + seed / 100)
            manifest(tmp_path / f"{name}{end}", "evaluate", f"{seed}", {}, **figures)
        only = pairs_figures(title="EWoK", score=0.5 + seed / 100)
        manifest(tmp_path / f"evaluate-ewok{end}", "evaluate", f"{seed}", {}, **only)
    report.run(ReportConfig(workdir=str(tmp_path), out=str(tmp_path / "report")))
    found = json.loads((tmp_path / "report" / "seeds.json").read_text())
    means = {title: one["mean"] for title, one in found.items() if "mean of" in title}
    assert means == {
        "BLiMP, mean of paradigms (evaluate-blimp)": pytest.approx(0.605),
        "BLiMP, mean of paradigms (evaluate-curve-blimp)": pytest.approx(0.805),
        "EWoK, mean of paradigms": pytest.approx(0.505),
    }
