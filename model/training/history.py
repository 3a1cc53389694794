"""What is known of the origin of weights: the manifests of their training and of its data."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from model.training.tracking import read_metrics
from pipeline.common.manifest import Manifest

if TYPE_CHECKING:
    from model.training.initial_weights import Source

OF_AVERAGE = "average_"  # begins the held-out figures of a moving average


def histories(place: str) -> Iterator[Manifest]:
    """Yield the existing manifests of a training and its data; `place` may be a checkpoint."""
    start = Path(place)
    for folder in (start, *start.parents[:3]):  # a checkpoint is up to three levels below its run
        manifest = Manifest.read(folder, of_input=True)
        if manifest is not None and manifest.stage == "train":
            yield manifest
            data = manifest.config["data"]
            for shards in map(Manifest.read, [data["dir"], *data.get("more", [])]):
                if shards is not None and shards.stage == "prepare":
                    yield shards
            return


def of_weights(place: str, source: "Source", average: bool) -> Iterator[Manifest]:
    """Yield the same manifests, that of the training with the figures of the weights themselves.

    `average` says that these are the moving average that the training kept.
    """
    for made in histories(place):
        if made.stage != "train" or source.last is None:
            yield made
            continue
        state = source.last[1]
        own = {
            "steps": state.step,
            "tokens": state.tokens,
            "validation": validation_of(made, source, average),
        }
        yield replace(made, figures=made.figures | own)


def validation_of(made: Manifest, source: "Source", average: bool) -> dict[str, float]:
    """Return the held-out figures of weights that a training left, or none if it has none of them.

    A checkpoint before the last may have been evaluated; a mean of several was not.
    """
    assert source.last is not None
    path, state = source.last
    found: dict[str, float] = made.figures.get("validation", {})
    if state.step != made.figures.get("steps"):
        now = {"kind": "validation", "step": state.step}
        there = [row for row in read_metrics(path.parents[2]) if now.items() <= row.items()]
        found = {key: there[-1][key] for key in found if key in there[-1]} if there else {}
    if average:
        kept = {key: value for key, value in found.items() if key.startswith(OF_AVERAGE)}
        return {key.removeprefix(OF_AVERAGE): value for key, value in kept.items()}
    return found if len(source.steps) == 1 else {}
