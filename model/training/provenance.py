"""What is known of the origin of weights: the manifests of their training and of its data."""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from model.config import Json, Metrics
from model.huggingface import sentence_model
from model.tracking.metrics_file import read_metrics
from pipeline.records import checkpoint_folder
from pipeline.records.manifest import Manifest, manifest_of
from pipeline.records.metrics import BITS, CorpusCounts, TrainingSummary, noted_of

if TYPE_CHECKING:
    from model.training.initial_weights import InitialWeights

RISES = 1.05  # a held-out loss that is larger than its minimum by this factor has risen
LOSSES = {"masked_lm_loss": "Masked-LM loss", "next_sentence_loss": "Next-sentence loss"}
OF_AVERAGE = "average_"  # begins the held-out figures of a moving average


def is_better(metrics: Metrics, best: Metrics) -> bool:
    """Return whether held-out figures are better than the best ones so far: by bits per byte.

    By loss where these are not known, as of the best step that earlier code has noted.
    """
    measure = BITS if BITS in metrics and BITS in (best or metrics) else "loss"
    return metrics[measure] < best.get(measure, math.inf)


def training_of(place: Path | str) -> Manifest | None:
    """Return the manifest of a finished training; `place` may be a checkpoint."""
    above = (Path(place), *Path(place).parents[:3])  # a checkpoint is up to three levels below its run
    manifests = (Manifest.read(folder, of_input=True) for folder in above)
    return next((manifest for manifest in manifests if manifest is not None and manifest.stage == "train"), None)


def histories(place: str) -> Iterator[Manifest]:
    """Yield the existing manifests of a training and its data; `place` may be a checkpoint."""
    if (train := training_of(place)) is not None:
        yield train
        data = train.config["data"]
        for shards in map(Manifest.read, [data["dir"], *data.get("more", [])]):
            if shards is not None and shards.stage == "prepare":
                yield shards


def learnt(place: Path | str, positions: int = sys.maxsize) -> int:
    """Return the tokens of the longest sequences that a model has learnt or was tuned on, at most its `positions`.

    Checkpoints and folders in Hugging Face's format note it. Of what earlier code has written, the shards of the
    training tell it; where these are gone, it is `positions`.
    """
    folder = Path(place)
    if not (folder / "config.json").is_file():
        return min(checkpoint_folder.read_field(folder, "learnt") or _of_shards(folder, positions), positions)
    length = min(sentence_model.stated_length(folder) or positions, positions)
    noted = noted_of(manifest := manifest_of(folder), folder)
    if manifest is None or noted is None or noted.learnt:
        return length
    return min(length, learnt(manifest.config["train"], positions))


def _of_shards(folder: Path, positions: int) -> int:
    """Return the same of a training, by the manifests of its shards; `positions` if any is missing."""
    manifests = [*histories(str(folder))]
    if len(manifests) < 2 or len(manifests) < 2 + len(manifests[0].config["data"].get("more", [])):
        return positions
    train, *shards = manifests
    start = train.config.get("start")
    lengths = [CorpusCounts.of(one).sequence_length or positions for one in shards]
    return max(*lengths, learnt(start, positions) if start else 0)


def beyond(length: int, learnt: int) -> list[str]:
    """Return a line if sequences are longer than a model has learnt."""
    return [f"sequence_length={length} is beyond the {learnt} tokens that the model has learnt"][: length > learnt]


def weight_histories(place: str, source: "InitialWeights", average: bool) -> Iterator[Manifest]:
    """Yield the same manifests, that of the training with the figures of the weights themselves.

    `average` says that these are the moving average that the training kept.
    """
    for manifest in histories(place):
        if manifest.stage != "train" or source.last is None:
            yield manifest
            continue
        state = source.last[1]
        whole = TrainingSummary.of(manifest)
        summary = replace(
            whole,
            steps=state.step,
            samples=state.samples,
            tokens=state.tokens,
            words=state.words,
            validation=validation_of(whole, source, average),
        )
        seconds = state.seconds if state.step != whole.steps else 0.0
        yield replace(manifest, figures=summary.to_json(), seconds=seconds or manifest.seconds)


def validation_of(summary: TrainingSummary, source: "InitialWeights", average: bool) -> dict[str, float]:
    """Return the held-out figures of weights that a training left, or none if it has none of them.

    A checkpoint before the last may have been evaluated; a mean of several was not.
    """
    assert source.last is not None
    path, state = source.last
    metrics = summary.validation
    if state.step != summary.steps:
        now = {"kind": "validation", "step": state.step}
        rows = [row for row in read_metrics(path.parents[2]) if now.items() <= row.items()]
        metrics = {key: rows[-1][key] for key in metrics if key in rows[-1]} if rows else {}
    if average:
        averages = {key: value for key, value in metrics.items() if key.startswith(OF_AVERAGE)}
        return {key.removeprefix(OF_AVERAGE): value for key, value in averages.items()}
    return metrics if len(source.steps) == 1 else {}


def overfitting(rows: list[Json]) -> Iterator[str]:
    """Yield a sentence for each held-out loss of a curve that rose while that of training fell."""
    for key, title in LOSSES.items():
        held_out = [(row[key], row["step"]) for row in rows if row["kind"] == "validation" and key in row]
        best, step = min(held_out, default=(0.0, 0))
        late = [row[key] for row in rows if row["kind"] == "train" and key in row and row["step"] > step]
        half = len(late) // 2
        falls = half > 0 and fmean(late[half:]) < fmean(late[:half])
        if falls and held_out and held_out[-1][0] >= RISES * best:
            yield (
                f"{title} of held-out text rose from {best:.3f} at step {step:,} to {held_out[-1][0]:.3f}, "
                "while that of training fell: more text, or fewer steps, would help"
            )
