"""The workspace and the report of a run on W&B, built with its library `wandb_workspaces`.

The workspace has the curves of all runs of the project, by group; the report has this run's, with
tables of its corpus and its scores.
"""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from model.training.tracking import RUN_ID
from pipeline.common.errors import InputError
from pipeline.common.figures import CorpusCounts, Score
from pipeline.common.manifest import Manifest
from pipeline.reporting.score_tables import shown
from pipeline.reporting.wandb_stages import HEAD, RECORD, compared

LOSSES = ("loss", "masked_lm_loss", "next_sentence_loss")
TABLES = ("prepare/corpus", "evaluate/scores", "convert/masked_sentences")
ACCURACIES = ("masked_lm_accuracy", "next_sentence_accuracy")


def curves(title: str, *names: str, **options: Any) -> wr.LinePlot:
    """Return a plot of metrics over training steps."""
    return wr.LinePlot(title=title, y=list(names), **options)


def system(title: str, pattern: str) -> wr.LinePlot:
    """Return a plot of the system metrics that W&B collects on every node, over time."""
    return wr.LinePlot(title=title, x="RelativeTime(Wall)", metric_regex=pattern)


def pretraining() -> list[wr.LinePlot]:
    """Return the plots of training progress and speed."""
    both = ("train", "validation")
    return [
        *(curves(name.replace("_", " "), *(f"{kind}/{name}" for kind in both)) for name in LOSSES),
        *(curves(name.replace("_", " "), *(f"{k}/{name}" for k in both)) for name in ACCURACIES),
        curves("learning rate", "train/learning_rate"),
        curves("gradient norm", "train/gradient_norm", log_y=True),
        curves("tokens a second", "train/tokens_per_second"),
        curves("model FLOP utilisation", "train/mfu", range_y=(0.0, None)),
        curves(
            "shares of a step's time",
            "train/data_wait_share",
            "train/forward_share",
            "train/backward_share",
            "train/step_share",
            plot_type="stacked-area",
        ),
    ]


def data() -> list[wr.LinePlot]:
    """Return the plots of consumed data and time spent waiting for it."""
    return [
        curves("samples", "train/samples"),
        curves("tokens", "train/tokens"),
        curves("samples a second", "train/samples_per_second"),
        curves("waiting for data", "train/data_wait_share", range_y=(0.0, 1.0)),
    ]


def fleet() -> list[wr.LinePlot]:
    """Return the plots of node health; at a restart the step stays constant over time."""
    return [
        wr.LinePlot(title="restarts: steps over time", x="RelativeTime(Wall)", y=["Step"]),
        curves("updates skipped", "train/skipped_steps"),
        curves("memory a device, GiB", "train/memory_gib"),
        system("GPU utilisation", r"system\.gpu\.\d+\.gpu"),
        system("GPU temperature", r"system\.gpu\.\d+\.temp"),
        system("GPU power", r"system\.gpu\.\d+\.powerWatts"),
        system("network", r"system\.network\..*"),
        system("CPU and memory", r"system\.(cpu|memory).*"),
    ]


def fine_tuning() -> list[wr.LinePlot]:
    """Return the plots of fine-tuning, one curve per task; see `wandb_stages`."""
    return [
        wr.LinePlot(title=title, x="evaluate/epoch", y=[f"evaluate/{key}"])
        for title, key in (
            ("dev score", "score"),
            ("dev score, random start", "random_score"),
            ("training loss", "train_loss"),
        )
    ]


def tables() -> list[Any]:
    """Return the tables that stages log once: corpus, scores, filled masks."""
    return [
        *(wr.WeavePanelSummaryTable(table_name=name) for name in TABLES),
        wr.BarPlot(title="dev score of every task", metrics=["score"]),
        wr.BarPlot(title="dev score, random start", metrics=["baseline"]),
    ]


SECTIONS = {"Pre-training": pretraining, "Data": data, "Fine-tuning": fine_tuning, "Fleet": fleet}


def workspace(entity: str, project: str) -> ws.Workspace:
    """Return the workspace with the curves of all runs."""
    return ws.Workspace(
        entity=entity,
        project=project,
        name="BERT pre-training",
        sections=[
            *(ws.Section(name=name, panels=panels(), is_open=name != "Fleet") for name, panels in SECTIONS.items()),
            ws.Section(name="Stages", panels=tables(), is_open=True),
        ],
        runset_settings=ws.RunsetSettings(groupby=[ws.Metric("Group"), ws.Metric("JobType")]),
    )


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> wr.MarkdownBlock:
    """Return a Markdown table."""
    lines = [list(head), ["---"] * len(list(head)), *map(list, rows)]
    return wr.MarkdownBlock(text="\n".join(f"| {' | '.join(cells)} |" for cells in lines))


def corpus_blocks(work: Path) -> list[Any]:
    """Return the outcomes of documents and the fill of sequences."""
    blocks: list[Any] = [wr.H1(text="Data")]
    for folder in sorted(work.glob("prepare*")):
        manifest = Manifest.read(folder, of_input=True)
        if manifest is None:
            continue
        counts = CorpusCounts.of(manifest)
        blocks += [
            wr.H2(text=f"{folder.name}: {manifest.summary}"),
            table(("count", "of"), ((f"{n:,}", name) for name, n in counts.rows())),
            wr.P(text=counts.lengths_line),
        ]
    return blocks


def score_blocks(work: Path) -> list[Any]:
    """Return every task's score with its baselines."""
    rows = []
    for path in sorted(work.glob("evaluate*/results.json")):
        found = Score.from_json(json.loads(path.read_text()))
        title = found.title + (" (sample task)" if found.sample else "")
        rows.append((title, found.metric_title, *map(shown, compared(found))))
    return [wr.H1(text="GLUE"), table(HEAD, rows) if rows else wr.P(text="No scores yet.")]


def report(entity: str, project: str, work: Path) -> wr.Report:
    """Return the report of one run.

    Raises:
        InputError: No training was found, or W&B was off.
    """
    blocks: list[Any] = []
    runs = {path.parent.name: path.read_text().strip() for path in work.glob(f"train*/{RUN_ID}")}
    logged = work / RECORD
    stages = json.loads(logged.read_text()) if runs and logged.exists() else {}
    if not runs:
        raise InputError(f"no train*/{RUN_ID} found; train with tracking=wandb first", path=work)
    for name, panels in SECTIONS.items():
        chosen = [expr.Metric("ID").isin(sorted({*runs.values(), *stages.values()}))]
        runset = wr.Runset(name=work.name, filters=chosen)  # of the report's own project
        blocks += [wr.H1(text=name), wr.PanelGrid(runsets=[runset], panels=panels())]
        if name == "Data":
            blocks[-2:-1] = corpus_blocks(work)
    blocks += score_blocks(work)
    return wr.Report(
        entity=entity,
        project=project,
        title=f"BERT pre-training: {work.name}",
        description=", ".join(f"{name} is run {run}" for name, run in sorted(runs.items())),
        blocks=[wr.TableOfContents(), *blocks],
        width="fluid",
    )
