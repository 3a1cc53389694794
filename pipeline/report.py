"""`python -m pipeline.report`: one self-contained page about a run: what was made, and how good."""

import json
from html import escape
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, select_autoescape

from model.tracking import read_metrics
from pipeline import entry, plots, published, scores, stage
from pipeline.config import ReportConfig
from pipeline.errors import InputError

PAGE = "report.html"


def manifests(config: ReportConfig) -> dict[str, tuple[Path, stage.Manifest]]:
    """The stages to report, by folder name: those stated, else all in the run's folder.

    Raises:
        InputError: none of them is finished.
    """
    work = Path(config.workdir)
    folders = [Path(f) for f in config.stages] or sorted(
        p.parent for p in work.glob("*/manifest.json")
    )
    found = {}
    for folder in folders:
        manifest = stage.Manifest.read(folder)
        if manifest is not None and manifest.stage != "report":
            found[folder.name] = (folder, manifest)
    if not found:
        raise InputError(f"{config.workdir}: no finished stage there to report")
    return found


def draw_dag(stages: dict[str, tuple[Path, stage.Manifest]]) -> str:
    """The graph as SVG: a column for each distance from the start, an arrow for each input."""
    makers = {manifest.fingerprint: name for name, (_, manifest) in stages.items()}
    needs = {
        name: [makers[f] for f in manifest.inputs.values() if f in makers]
        for name, (_, manifest) in stages.items()
    }
    depth: dict[str, int] = {}
    for name in sorted(stages, key=lambda n: stages[n][1].finished):
        depth[name] = 1 + max((depth.get(other, 0) for other in needs[name]), default=-1)
    rows: dict[int, int] = {}
    places = {}
    for name in sorted(stages, key=lambda n: depth[n]):
        row = rows.setdefault(depth[name], 0)
        rows[depth[name]] += 1
        places[name] = (20 + 240 * depth[name], 20 + 66 * row)
    width = 240 * (max(depth.values()) + 1) + 10
    height = 66 * max(rows.values()) + 10
    parts = [f'<svg class="dag" viewBox="0 0 {width} {height}" width="{width}" role="img">']
    for name, others in needs.items():
        x, y = places[name]
        for other in others:
            a, b = places[other][0] + 200, places[other][1] + 22
            parts.append(f'<path d="M{a} {b}C{a + 25} {b} {x - 25} {y + 22} {x} {y + 22}"/>')
    for name, (x, y) in places.items():
        seconds = stages[name][1].seconds
        parts.append(f'<rect x="{x}" y="{y}" width="200" height="44" rx="8"/>')
        parts.append(f'<text x="{x + 10}" y="{y + 19}">{escape(name)}</text>')
        parts.append(f'<text x="{x + 10}" y="{y + 36}" opacity=".7">{seconds:,.1f} s</text>')
    return "".join([*parts, "</svg>"])


def corpus_section(name: str, figures: dict[str, Any]) -> dict[str, Any]:
    """The account of documents and the lengths of instances."""
    documents, totals = figures["documents"], figures["totals"]
    rows = [(f"documents {fate}", f"{count:,}") for fate, count in documents.items()]
    rows += [(f"passed over: {reason}", f"{n:,}") for reason, n in figures["skipped"].items()]
    names = {"train": "instances to train on", "validation": "instances held out",
             "random_next": "instances with a random next segment"}  # fmt: skip
    rows += [(names.get(kind, kind), f"{count:,}") for kind, count in totals.items()]
    lengths = {int(length): count for length, count in figures["lengths"].items()}
    plot = plots.histogram(
        list(lengths), list(lengths.values()), "length of an instance (tokens)", "instances"
    )
    return {"title": f"Corpus ({name})", "rows": rows, "plots": [("Lengths of instances", plot)]}


def train_section(name: str, folder: Path) -> dict[str, Any]:
    """Curves over the steps of a training run."""
    rows = read_metrics(folder)
    kinds = {kind: [r for r in rows if r["kind"] == kind] for kind in ("train", "validation")}

    def curves(*keys: str) -> list[plots.Curve]:
        return [
            (f"{kind}" if len(keys) == 1 else f"{kind}, {key.replace('_', ' ')}",
             [r["step"] for r in part if key in r], [r[key] for r in part if key in r])
            for key in keys for kind, part in kinds.items() if any(key in r for r in part)
        ]  # fmt: skip

    wanted = [
        ("Masked-LM loss", "masked_lm_loss", "nats a masked token"),
        ("Masked-LM accuracy", "masked_lm_accuracy", "share of masked tokens"),
        ("Next-sentence loss", "next_sentence_loss", "nats an instance"),
        ("Next-sentence accuracy", "next_sentence_accuracy", "share of instances"),
        ("Throughput", "tokens_per_second", "real tokens a second"),
        ("Learning rate", "learning_rate", "learning rate"),
        ("Gradient norm", "gradient_norm", "before clipping"),
        ("Model FLOP/s utilisation", "mfu", "share of the device's peak"),
        ("Waiting for data", "data_wait_share", "share of time"),
    ]
    drawn = [
        (title, plots.lines(found, "step", unit))
        for title, key, unit in wanted
        if (found := curves(key))
    ]
    return {"title": f"Training ({name})", "rows": [], "plots": drawn}


def cards(stages: dict[str, tuple[Path, stage.Manifest]]) -> list[tuple[str, str]]:
    """The few figures that say how a run went."""
    found = []
    for name, (_, manifest) in stages.items():
        figures = manifest.figures
        if manifest.stage == "prepare":
            found.append((f"documents ({name})", f"{figures['documents']['read']:,}"))
            found.append((f"tokens ({name})", f"{figures['totals']['tokens']:,}"))
        elif manifest.stage == "train":
            accuracy = figures["validation"]["masked_lm_accuracy"]
            found.append((f"masked-LM accuracy ({name})", f"{accuracy:.3f}"))
            found.append(("most frequent token", f"{figures['most_frequent_accuracy']:.3f}"))
    return found


def make(config: ReportConfig, out: Path) -> stage.Result:
    """Write report.html into `out`."""
    stages = manifests(config)
    rows = scores.score_rows(stages)
    beside = published.table(scores.our_scores(stages))
    sections = []
    for name, (folder, manifest) in stages.items():
        if manifest.stage == "prepare":
            sections.append(corpus_section(name, manifest.figures))
        elif manifest.stage == "train":
            sections.append(train_section(name, folder))
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), autoescape=select_autoescape(["j2"])
    )
    seconds = sum(manifest.seconds for _, manifest in stages.values())
    page = environment.get_template("report.html.j2").render(
        title=f"BERT pre-training: {Path(config.workdir).name}",
        finished=max(manifest.finished for _, manifest in stages.values()),
        minutes=f"{seconds / 60:.1f} minutes",
        cards=cards(stages),
        dag=draw_dag(stages),
        scores=rows,
        score_plot=scores.score_plot(rows),
        checkpoint_plots=scores.by_checkpoint(stages),
        columns=published.COLUMNS,
        beside=beside,
        cell=published.cell,
        sections=sections,
        stages=[table_row(name, manifest) for name, (_, manifest) in stages.items()],
    )
    stage.write_text(out / PAGE, page)
    if beside:
        stage.write_text(out / "scores.md", published.markdown(beside))
        stage.write_text(out / "scores.json", json.dumps(beside, indent=1) + "\n")
    return stage.Result(summary=f"{len(stages)} stages, {len(rows)} tasks", figures={"page": PAGE})


def table_row(name: str, manifest: stage.Manifest) -> dict[str, Any]:
    """A row of the table of stages."""
    size = sum(file["bytes"] for file in manifest.files.values())
    return {
        "name": name,
        "summary": manifest.summary,
        "seconds": f"{manifest.seconds:,.1f}",
        "files": len(manifest.files),
        "megabytes": f"{size / 1e6:,.1f}",
        "fingerprint": manifest.fingerprint[:12],
    }


def main() -> None:
    """The command."""
    entry.run("report", ReportConfig, lambda config: stage.run("report", config, make))


if __name__ == "__main__":
    main()
