"""`python -m pipeline.report`: one self-contained page about a run: stages, curves, scores."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path
from shlex import quote
from typing import Any, NamedTuple

from jinja2 import Environment, FileSystemLoader
from matplotlib.figure import Figure

from model.huggingface import model_card
from model.tracking.metrics_file import read_metrics
from model.training.provenance import overfitting
from pipeline.cli import entry_point
from pipeline.common.schema import check
from pipeline.config import ReportConfig
from pipeline.console import formatting
from pipeline.console.formatting import WARNING, pluralize
from pipeline.console.redact import redact
from pipeline.errors import InputError
from pipeline.evaluation import significance
from pipeline.evaluation.grid_search import MODEL
from pipeline.records import run_file
from pipeline.records.manifest import Manifest, Result
from pipeline.records.metrics import Conversion, CorpusCounts, Score, TrainingSummary
from pipeline.reporting import graph_svg, minimal_pair_tables, plots, score_tables, side_by_side, wandb_stages
from pipeline.reporting.score_tables import Figures, Made, Plot, Stages, format_score
from pipeline.stages import fetch_inputs, stage
from pipeline.stages.fingerprints import absolute, compare_inputs
from pipeline.storage.atomic import write_text

PAGE, FIGURES = "report.html", "figures"


def stages_of(config: ReportConfig) -> Stages:
    """Return the stages to report, by folder name: those of `stages`, else all of the run.

    Raises:
        ConfigError: two folders have the same name.
        InputError: no stage is finished.
    """
    by_name: dict[str, Made] = {}
    for made in read_stages(config).values():
        name, folder = made.folder.name, made.folder
        both = f"{by_name[name].folder if name in by_name else ''} and {folder} have the same name"
        check(name not in by_name, f"{both}, by which a page refers to them; report one of them", "stages")
        by_name[name] = made
    return by_name


def read_stages(config: ReportConfig) -> Stages:
    """Return the stages to report as they were finished, by folder, which may be in a store.

    Raises:
        InputError: no stage is finished, or one that is named is not.
    """
    every = score_tables.read_finished(config.stages or fetch_inputs.list_stages(config.workdir))
    if lost := next((folder for folder in config.stages if folder not in every), None):
        raise InputError("no finished stage; run it, or leave it out", "stages", lost)
    others = (item for item in every.items() if item[1].manifest.stage != "report")
    known = dict(sorted(others, key=lambda item: item[1].manifest.finished))
    if not known:
        key = "runs" if config.runs else "workdir"
        raise InputError(f"no finished stages found; run some first, or set {key}", key, config.workdir)
    return known


def corpus_section(name: str, counts: CorpusCounts, manifest: Manifest) -> Figures:
    """Return the section of a corpus: source, document counts, instance lengths, and where the time went."""
    corpus = manifest.config.get("corpus") or {}
    origin = {
        "corpus": corpus.get("name"),
        "language": corpus.get("language"),
        "from": ", ".join(model_card.sources(corpus)),
    }
    rows = [(key, value) for key, value in origin.items() if value]
    rows += [(title, f"{count:,}") for title, count in counts.rows()]
    figure = plots.histogram(counts.lengths, "tokens of an instance", "instances (log scale)")
    drawn = [(counts.lengths_line, figure)]
    if spent := manifest.spent:
        kinds = zip(("processor", "waiting"), zip(*spent.values(), strict=True), strict=True)
        drawn.append(("Where the time of the workers went", plots.bars(list(spent), list(kinds), "seconds")))
    outcomes = {**counts.documents, "read": 0, "skipped": sum(counts.skipped.values())}
    return {
        "title": f"Corpus ({name})",
        "outcomes": sorted(((name, n) for name, n in outcomes.items() if n), key=lambda one: -one[1]),
        "rows": rows,
        "plots": drawn,
        "warnings": counts.warnings,
    }


def train_section(name: str, folder: Path, seeds: list[Path]) -> Figures:
    """Return the section of a training run: curves over its steps, means with bands over the folders of `seeds`."""
    logs = [read_metrics(one) for one in seeds]
    drawn: dict[bool, list[Plot]] = {False: [], True: []}  # by whether it is folded
    for one in plots.TABLE["curves"]:
        if plot := score_tables.plot_metric(one, {kind: (kind, logs) for kind in ("train", "validation")}):
            drawn[one.get("folded", False)].append(plot)
    return {
        "title": f"Training ({name})",
        "warnings": overfitting(read_metrics(folder)),
        "plots": drawn[False],
        "folded": drawn[True],
    }


class Card(NamedTuple):
    """A figure that says how a run went, next to what it is compared with."""

    title: str
    value: str
    baseline: str = ""
    remark: str | None = None  # what spoils the figure, in a sentence


def cards(stages: Stages, pairs: list[Figures]) -> list[Card]:
    """Return the few figures that say how a run went, a card for each task among them.

    `pairs` are the sections of minimal pairs.
    """
    listed = []
    for name, made in stages.items():
        if isinstance(counts := made.record, CorpusCounts):
            others = f"of {counts.found:,} in the corpus" if counts.found > counts.written else ""
            listed.append(Card(f"documents ({name})", f"{counts.written:,}", others))
            listed.append(Card(f"tokens ({name})", f"{counts.tokens:,}"))
        elif isinstance(summary := made.record, TrainingSummary):
            guess = format_score(summary.most_frequent_accuracy)
            guess = f"baseline {guess}: most frequent token" if guess else ""
            accuracy = format_score(summary.accuracy, summary.deviation) or "not finite"
            listed.append(Card(f"masked-LM accuracy ({name})", accuracy, guess))
    for part in pairs:
        _, own, random, _ = part["rows"][-1]
        low, high = own["interval"]
        against = f"{random['accuracy']:.1%} random initialisation, " if random else ""
        remark = f"95% interval {100 * low:.1f} to {100 * high:.1f}; {against}chance 50%"
        listed.append(Card(part["task"], f"{own['accuracy']:.1%}", remark))
    for table in score_tables.system_tables(stages):
        others = ", ".join(f"{one['scores'][table.metric]:.3f} {name}" for name, one in [*table.systems.items()][1:])
        listed.append(
            Card(f"{table.title} {table.metric}", format_score(table.score), others, significance.verdict(table))
        )
    for score in score_tables.task_scores(stages):
        guesses = (score.baseline, "random initialisation"), (score.majority, "most frequent class")
        baselines = ", ".join(f"{format_score(value)} {what}" for value, what in guesses if value is not None)
        title = f"{score.title} {score.metric_title}"
        listed.append(Card(title, format_score(score.score, score.deviation), baselines, significance.verdict(score)))
    return listed


def title_of(manifests: Iterable[Manifest], workdir: Path) -> str:
    """Return the title of the page, with the name of the architecture that was trained last."""
    name = "Pre-training"
    for manifest in manifests:
        if manifest.stage == "train":
            kind = manifest.config.get("model", {}).get("architecture", "bert")
            name = f"{model_card.PUBLISHED.get(kind, (kind,))[0]} pre-training"
    return f"{name}: {workdir.name}"


def make(config: ReportConfig, out: Path) -> Result:
    """Write report.html into `out`."""
    if config.runs:
        return compare(config, out)
    stages = stages_of(config)
    groups = score_tables.seed_groups(stages)
    leading = score_tables.average_seeds(stages, groups)
    scores, published = score_tables.task_scores(leading), score_tables.glue_rows(leading)
    over_seeds = score_tables.seed_scores(groups, stages)
    sections = list(sections_of(leading, groups, stages))
    pairs, tables = minimal_pair_tables.sections(leading), score_tables.system_tables(leading)
    made, outdated = [one.manifest for one in stages.values()], list(find_outdated(stages, config.workdir))
    render(
        out,
        title=title_of(made, Path(config.workdir)),
        finished=formatting.moment(max(one.finished for one in made)),
        spent=sum(one.seconds for one in made),
        cards=cards(leading, pairs),
        warnings=[*outdated, *warnings_of(sections, [*scores, *tables])],
        command=command_of(config.workdir),
        uses=list(uses_of(leading)),
        samples=samples_of(leading),
        dag=graph_svg.draw(stages),
        scores=scores,
        score_plot=score_tables.score_plot(scores),
        checkpoint_plots=score_tables.plot_checkpoints(leading),
        seeds=list(dict.fromkeys(seed for by_seed in groups.values() for seed in by_seed)),
        leader=score_tables.leader(stages, groups),
        seed_scores=over_seeds,
        seed_plots=list(score_tables.seed_curves(groups, stages)),
        columns=score_tables.PUBLISHED["columns"],
        published=published,
        minimal_pairs=pairs,
        system_tables=tables,
        sections=sections,
        stages=list(stages.items()),
    )
    if groups:
        write_text(out / "seeds.json", json.dumps(over_seeds, indent=1) + "\n")
    if published:
        write_text(out / "scores.md", score_tables.markdown(published))
        write_text(out / "scores.json", json.dumps(published, indent=1) + "\n")
    counted = f"{pluralize(len(stages), 'stage')}, {pluralize(len(scores) + len(pairs) + len(tables), 'task')}"
    return Result(summary=WARNING.join([counted, *outdated]), figures={"page": PAGE})


def render(out: Path, **known: Any) -> None:
    """Write the page, and each figure that it shows as files."""

    def draw(figure: Figure, *caption: str) -> str:
        plots.save(figure, " ".join(caption), out / FIGURES)
        return plots.svg(figure)

    environment = Environment(loader=FileSystemLoader(Path(__file__).parent / "reporting"), autoescape=True)
    environment.globals |= {
        "draw": draw,
        "shown": format_score,
        "cell": score_tables.cell,
        "verdict": significance.verdict,
        "duration": formatting.duration,
        "colours": plots.OUTCOMES,
    }
    write_text(out / PAGE, redact(environment.get_template("report.html.j2").render(known)))


def compare(config: ReportConfig, out: Path) -> Result:
    """Write the page of several runs side by side into `out`."""
    runs = stages_by_run(config)
    every = [(f"{run}/{name}", made) for run, stages in runs.items() for name, made in stages.items()]
    made = [one.manifest for _, one in every]
    tops = zip(runs, config.runs, strict=True)
    old = [f"{run}/{text}" for run, top in tops for text in find_outdated(runs[run], top)]
    warnings = [*old, *side_by_side.warnings(runs)]
    tables = side_by_side.tables(runs)
    render(
        out,
        title=f"Runs side by side: {', '.join(runs)}",
        finished=formatting.moment(max(one.finished for one in made)),
        spent=sum(one.seconds for one in made),
        warnings=warnings,
        comparisons=tables,
        comparison_plots=list(side_by_side.curves(runs)),
        stages=every,
    )
    write_text(out / "runs.json", json.dumps(tables, indent=1) + "\n")
    return Result(summary=WARNING.join([f"{len(runs)} runs side by side", *warnings]), figures={"page": PAGE})


def stages_by_run(config: ReportConfig) -> dict[str, Stages]:
    """Return the stages of several runs, by the run's folder without what all have in common."""
    tops = [Path(run).absolute() for run in config.runs]
    common = os.path.commonpath(tops) if len(set(tops)) > 1 else tops[0].parent
    return {
        os.path.relpath(top, common): stages_of(replace(config, workdir=run, stages=[]))
        for top, run in zip(tops, config.runs, strict=True)
    }


def samples_of(stages: Stages) -> list[tuple[str, Any]]:
    """Return what converted models fill into sentences, with their stages."""
    records = ((name, one.record) for name, one in stages.items())
    return [(name, sample) for name, one in records if isinstance(one, Conversion) for sample in one.samples]


def sections_of(leading: Stages, groups: score_tables.Groups, stages: Stages) -> Iterator[Figures]:
    """Yield a section of each corpus and each training, of all its seeds."""
    for name, one in leading.items():
        if isinstance(one.record, CorpusCounts):
            yield corpus_section(name, one.record, one.manifest)
        elif isinstance(one.record, TrainingSummary):
            seeds = next((list(by_seed.values()) for by_seed in groups.values() if name in by_seed.values()), [name])
            yield train_section(name, one.folder, [stages[seed].folder for seed in seeds])


def warnings_of(sections: list[Figures], scores: list[Score]) -> Iterator[str]:
    """Yield what makes results doubtful, with the part of the page that they are in."""
    for section in sections:
        yield from (f"{section['title']}: {text}" for text in section["warnings"])
    for score in scores:
        yield from (f"{score.title}: {text}" for text in score.remarks)


def find_outdated(stages: Stages, workdir: str) -> Iterator[str]:
    """Yield which results are of what another stage was before it was made again."""
    for name, made in stages.items():
        top = made.manifest.config.get("workdir", workdir)  # before it was moved or copied from a store
        known = {
            absolute(os.path.join(top, os.path.relpath(one.folder, workdir))): one.manifest.fingerprint
            for one in stages.values()
        }
        for key, same in compare_inputs(made.manifest, known).items():
            if not same:
                yield f"{name}: {key} was another when this was made; run it again"


def uses_of(stages: Stages) -> Iterator[str]:
    """Yield how the models of a run are used."""
    for made in stages.values():
        folder = made.folder
        if isinstance(made.record, Conversion) and not made.record.checkpoints:
            load = f"from transformers import pipeline\n\nfill = pipeline('fill-mask', {str(folder)!r})"
            yield f"{load}\nfill(f'… {{fill.tokenizer.mask_token}} …')"
        if any(name.startswith(f"{MODEL}/") for name in made.manifest.files):
            yield f"python -m pipeline.predict pretrained={quote(str(folder / MODEL))} input=FILE"


def run(config: ReportConfig) -> None:
    """Make the page unless it is there; of all finished stages of a run, or of several, where none are named.

    Raises:
        InputError: none of them is finished.
    """
    check(not (config.runs and config.stages), "cannot be combined with stages; leave one out", "runs")
    runs = [replace(config, workdir=run) for run in config.runs] or [config]
    config = replace(config, stages=config.stages or [folder for one in runs for folder in read_stages(one)])
    made, page = Manifest.read(config.out), Path(config.out, PAGE)
    if made is not None and not any(name.startswith(f"{FIGURES}/") for name in made.files) and page.is_file():
        # Earlier code drew them into the page alone.
        config = replace(config, force=config.force or "<figure>" in page.read_text(encoding="utf-8"))
    stage.run("report", config, make)
    if config.tracking.name == "wandb":
        wandb_stages.log(Path(config.workdir), stages_of(config), config.tracking.project)


def command_of(workdir: str) -> str | None:
    """Return the command line of the last run in a folder; None where no run left one."""
    try:
        return str(run_file.load(run_file.place_of(workdir))["command"])
    except (InputError, KeyError):
        return None


def main() -> None:
    """Run the command."""
    entry_point.run("report", ReportConfig, run)


if __name__ == "__main__":
    main()
