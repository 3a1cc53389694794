"""The workspace and the report of a run on W&B, built with its library `wandb_workspaces`.

The workspace has the curves of all runs of the project, by group; the report has this run's, with
tables of its corpus and its scores.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import wandb_workspaces.reports.v2 as wr
import wandb_workspaces.workspaces as ws
from wandb_workspaces import expr

from model.tracking.metrics_file import RUN_ID
from pipeline.common.tables import read_table
from pipeline.errors import InputError
from pipeline.records.metrics import CorpusCounts
from pipeline.reporting.score_tables import Stages, format_score, scores_in
from pipeline.reporting.wandb_stages import HEAD, RECORD, compared, finished_in
from pipeline.storage import strict_json

SECTIONS: dict[str, list[dict[str, Any]]] = read_table(__file__, "dashboards.yaml")["sections"]
Blocks = list[Any]
TABLES = ("prepare/corpus", "evaluate/scores", "convert/masked_sentences")


def panels(name: str) -> list[wr.LinePlot]:
    """Return the plots of a section."""
    return [wr.LinePlot(**plot) for plot in SECTIONS[name]]


def tables() -> Blocks:
    """Return the tables that stages log once: corpus, scores, filled masks."""
    return [
        *(wr.WeavePanelSummaryTable(table_name=name) for name in TABLES),
        wr.BarPlot(title="dev score of every task", metrics=["score"]),
        wr.BarPlot(title="dev score, random start", metrics=["baseline"]),
    ]


def workspace(entity: str, project: str) -> ws.Workspace:
    """Return the workspace with the curves of all runs."""
    return ws.Workspace(
        entity=entity,
        project=project,
        name="BERT pre-training",
        sections=[
            *(ws.Section(name=name, panels=panels(name), is_open=name != "Fleet") for name in SECTIONS),
            ws.Section(name="Stages", panels=tables(), is_open=True),
        ],
        runset_settings=ws.RunsetSettings(groupby=[ws.Metric("Group"), ws.Metric("JobType")]),
    )


def table(head: Sequence[str], rows: Iterable[Iterable[str]]) -> wr.MarkdownBlock:
    """Return a Markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return wr.MarkdownBlock(text="\n".join(f"| {' | '.join(cells)} |" for cells in lines))


def corpus_blocks(stages: Stages) -> Blocks:
    """Return the outcomes of documents and the fill of sequences."""
    blocks: Blocks = [wr.H1(text="Data")]
    for name, stage in stages.items():
        if isinstance(counts := stage.record, CorpusCounts):
            blocks += [
                wr.H2(text=f"{name}: {stage.manifest.summary}"),
                table(("count", "of"), ((f"{n:,}", title) for title, n in counts.rows())),
                wr.P(text=counts.lengths_line),
            ]
    return blocks


def score_blocks(stages: Stages) -> Blocks:
    """Return every task's score with its baselines."""
    rows = []
    for score in scores_in(stages):
        title = score.title + " (sample task)" * score.sample
        rows.append((title, score.metric_title, *map(format_score, compared(score))))
    return [wr.H1(text="GLUE"), table(HEAD, rows) if rows else wr.P(text="No scores yet.")]


def report(entity: str, project: str, work: Path) -> wr.Report:
    """Return the report of one run.

    Raises:
        InputError: No training was found, or W&B was off.
    """
    blocks, stages = Blocks(), finished_in(work)
    runs = {path.parent.name: path.read_text().strip() for path in work.glob(f"train*/{RUN_ID}")}
    if not runs:
        raise InputError(f"no train*/{RUN_ID} found; train with tracking=wandb first", path=work)
    ids = strict_json.own(work / RECORD)
    for name in SECTIONS:
        chosen = [expr.Metric("ID").isin(sorted({*runs.values(), *ids.values()}))]
        runset = wr.Runset(name=work.name, filters=chosen)  # of the report's own project
        blocks += [wr.H1(text=name), wr.PanelGrid(runsets=[runset], panels=panels(name))]
        if name == "Data":
            blocks[-2:-1] = corpus_blocks(stages)
    blocks += score_blocks(stages)
    return wr.Report(
        entity=entity,
        project=project,
        title=f"BERT pre-training: {work.name}",
        description=", ".join(f"{name} is run {run}" for name, run in sorted(runs.items())),
        blocks=[wr.TableOfContents(), *blocks],
        width="fluid",
    )
