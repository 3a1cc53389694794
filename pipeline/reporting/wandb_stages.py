"""Log the finished stages of a run to W&B, next to what training logs itself.

Every stage is one W&B run, whose job type is the stage, in the group of the run. Its id follows
from the stage's fingerprint, and is recorded in the run's folder: a stage that is skipped next time
is not logged again. Artifacts are references with the checksums of the manifests: W&B shows what
was made from what, and no file is uploaded.
"""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

from model.tracking.metrics_file import RUN_ID
from model.tracking.wandb import init_run, mode_of
from pipeline.errors import first_line
from pipeline.records.manifest import TRACKER, Manifest
from pipeline.records.metrics import Conversion, CorpusCounts, Record, Score
from pipeline.reporting.graph_svg import needs_of
from pipeline.reporting.score_tables import PUBLISHED, Stages, published_scores, read_finished
from pipeline.stages import fetch_inputs
from pipeline.storage import strict_json
from pipeline.storage.atomic import write_text
from pipeline.storage.checksums import sha256_of

RECORD = Path("wandb", "stages.json")  # in a run's folder: stage to id of its W&B run
KINDS = {  # an artifact's type by the stage that makes it
    "download": "corpus",
    "vocab": "vocabulary",
    "prepare": "shards",
    "train": "checkpoint",
    "convert": "model",
    "evaluate": "scores",
    "tasks": "tasks",
}
HEAD = ("task", "metric", "dev", "random start", "most frequent", "BERT base, published test")
MOST = 1000  # files of an artifact; the sums of more are one sum


def finished_in(work: Path) -> Stages:
    """Return the finished stages in the folder of a run."""
    return {stage.folder.name: stage for stage in read_finished(fetch_inputs.list_stages(str(work))).values()}


def log(work: Path, stages: Stages, project: str | None) -> None:
    """Log those of `stages` that W&B does not have yet; a failure of W&B is a warning."""
    record = work / RECORD
    logged = strict_json.own(record)
    try:
        if mode_of("auto") == "disabled":
            return
        for name, stage in sorted(stages.items(), key=lambda one: one[1].manifest.finished):
            identity = run_id(work, name, stage.manifest)
            if stage.manifest.stage not in KINDS or logged.get(name) == identity:
                continue
            log_stage(work, name, stages, identity, project)
            logged[name] = identity
            write_text(record, json.dumps(logged, indent=1))
    except Exception as error:  # no failure of W&B may end a run
        print(f"warning: stages are not logged to W&B ({first_line(error)})", flush=True)


def run_id(work: Path, name: str, manifest: Manifest) -> str:
    """Return the id of a stage's W&B run; that of a training is its own."""
    path = work / name / RUN_ID
    if manifest.stage == "train" and path.exists():
        return path.read_text().strip()
    return sha256_of(f"{work.absolute()}/{name}/{manifest.fingerprint}/{manifest.finished}")[:8]


def log_stage(work: Path, name: str, stages: Stages, identity: str, project: str | None) -> None:
    """Log one stage, as the W&B run `identity`: its settings, figures and artifact."""
    import wandb

    manifest, record = stages[name].manifest, stages[name].record
    (work / RECORD.parent).mkdir(exist_ok=True)
    about = {"id": identity, "name": name, "job_type": manifest.stage, "tags": tags(stages)}
    run = init_run(work, mode_of("auto"), work.absolute().name, project, manifest.config, **about)
    try:
        if isinstance(record, CorpusCounts):
            outcomes = {f"documents_{outcome}": count for outcome, count in record.documents.items()}
            run.summary.update(outcomes | record.totals)
        elif isinstance(record, Score):
            log_curves(run, record)
            run.summary.update({key: getattr(record, key) for key in ("score", "baseline", "majority")})
        for title, (columns, rows) in tables_of(record).items():
            if rows:
                run.log({title: wandb.Table(columns=list(columns), data=rows)})
        log_artifact(run, name, stages)
    finally:
        run.finish()


def tags(stages: Stages) -> list[str]:
    """Return the tags of a run: those of the environment, the corpus and the model's size."""
    labels = [tag for tag in os.environ.get("WANDB_TAGS", "").split(",") if tag]
    for stage in stages.values():
        names = ((stage.manifest.config.get(key) or {}).get("name") for key in ("corpus", "model"))
        labels += [str(name) for name in names if name]
    return list(dict.fromkeys(labels))


def tables_of(record: Record | None) -> dict[str, tuple[Sequence[str], list[Any]]]:
    """Return the columns and rows of the tables of a stage, by title.

    They are the account and the lengths of a corpus, masked sentences with the model's fillings, or the
    score of a task with its baselines.
    """
    if isinstance(record, CorpusCounts):
        lengths = sorted(record.lengths.items())
        return {
            "prepare/corpus": (("of", "count"), list(record.rows())),
            "prepare/lengths": (("tokens", "instances"), lengths),
        }
    if isinstance(record, Conversion):
        rows = [
            (sample["text"], sample.get("answer", ""), "; ".join(map(filled, sample["masks"])))
            for sample in record.samples
        ]
        return {"convert/masked_sentences": (("sentence", "word", "filled in, with probability"), rows)}
    if isinstance(record, Score):
        return {"evaluate/scores": (HEAD, [(record.title, record.metric_title, *compared(record))])}
    return {}


def filled(words: list[dict[str, Any]]) -> str:
    """Return what a model fills into one mask."""
    return ", ".join(f"{one['word']} {one['probability']:.2f}" for one in words)


def log_curves(run: Any, score: Score) -> None:
    """Log the curves of fine-tuning: a row per epoch, the means over the runs of each start."""
    run.define_metric("evaluate/epoch")
    run.define_metric("evaluate/*", step_metric="evaluate/epoch")
    for epoch in range(max((len(run["epochs"]) for run in score.runs), default=0)):
        row: dict[str, float] = {"evaluate/epoch": epoch + 1}
        for start, prefix in (("pretrained", ""), ("random", "random_")):
            rows = [one["epochs"][epoch] for one in score.runs if one["start"] == start and epoch < len(one["epochs"])]
            if rows:
                row[f"evaluate/{prefix}score"] = fmean(one["scores"][score.metric] for one in rows)
                row[f"evaluate/{prefix}train_loss"] = fmean(one["train_loss"] for one in rows)
        run.log(row)


def compared(score: Score) -> tuple[float | None, ...]:
    """Return a score and what it is compared with, in the order of `HEAD`."""
    (base,) = (one for one in PUBLISHED["models"] if one["name"] == "BERT-base")
    test = published_scores(base).get(score.task)  # in percent
    return score.score, score.baseline, score.majority, test and test / 100


def log_artifact(run: Any, name: str, stages: Stages) -> None:
    """Log what a stage made, by reference, and what it was made from."""
    import wandb

    folder, manifest = stages[name].folder, stages[name].manifest
    sources = needs_of(stages)[name]
    artifact = wandb.Artifact(
        f"{run.group}-{name}",
        type=KINDS[manifest.stage],
        description=manifest.summary,
        metadata={
            "fingerprint": manifest.fingerprint,
            "made_from": [f"{run.group}-{other}" for other in sources],
            "inputs": manifest.inputs,
        },
    )
    for uri, path in references(folder, manifest):
        artifact.add_reference(uri, name=path, checksum=False)
    if not run.offline:  # W&B resolves an input on its server
        for other in sources:
            try:
                run.use_artifact(f"{run.group}-{other}:latest")
            except Exception as error:  # the other inputs and stages do not depend on it
                print(
                    f"warning: W&B does not link {run.name} to {run.group}-{other} ({first_line(error)}); "
                    "if it was logged offline, run wandb sync",
                    flush=True,
                )
    run.log_artifact(artifact)


def references(folder: Path, manifest: Manifest) -> list[tuple[str, str]]:
    """Return an URI with its checksum, and a name, of every file; of many files one for all."""
    place = folder.absolute().as_uri()
    # W&B's own logs are links to the disk of the node that trained.
    files = {path: info for path, info in manifest.files.items() if not path.startswith(TRACKER)}
    if len(files) > MOST:
        text = json.dumps({path: entry["sha256"] for path, entry in sorted(files.items())})
        return [(f"{place}#sha256={sha256_of(text)}", folder.name)]
    return [(f"{place}/{path}#sha256={info['sha256']}", path) for path, info in sorted(files.items())]
