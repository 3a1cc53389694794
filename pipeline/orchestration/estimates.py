"""What a run will take, before it starts: its long stages, each with what is known of it."""

from dataclasses import replace
from pathlib import Path
from typing import cast

from model.config import TrainConfig
from model.training import estimate as training
from pipeline.beam import estimate as preparation
from pipeline.common.errors import Restart, UserError
from pipeline.common.estimate import Estimate
from pipeline.config import PrepareConfig, RunConfig, VocabConfig
from pipeline.orchestration.graph import Node


def of_stages(config: RunConfig, nodes: list[Node], ranks: int | None) -> dict[str, Estimate]:
    """Return the estimates of the stages that have to run and are long.

    `ranks` are the processes of training on this machine; None leaves the number, and so the time,
    to the GPUs that are found later.
    """
    found: dict[str, Estimate] = {}
    lengths = {
        str(node.out): cast(PrepareConfig, node.config).sequence_length
        for node in nodes
        if node.kind == "prepare"
    }
    sizes = [cast(VocabConfig, node.config).size for node in nodes if node.kind == "vocab"]
    entries = sizes[0] if sizes else training.VOCABULARY
    local = config.executor.name == "local"
    for node in nodes:
        if node.reason is None:
            continue
        if node.kind == "prepare":
            expected = _preparation(cast(PrepareConfig, node.config))
            if expected is not None:
                found[node.name] = expected
        elif node.kind == "train":
            settings = cast(TrainConfig, node.config)
            if settings.model.layers:
                folder = str(Path(settings.data.dir))
                model = replace(settings.model, vocab_size=settings.model.vocab_size or entries)
                found[node.name] = training.training(
                    settings, model, None, ranks or 1,
                    sequence_length=lengths.get(folder, 128), timed=bool(ranks) and local,
                )  # fmt: skip
    return found


def _preparation(config: PrepareConfig) -> Estimate | None:
    """Return the estimate of `prepare`; None where its corpus is not there yet, or small."""
    try:
        return preparation.of(config)
    except (UserError, Restart):  # the stage itself will say it
        return None


def line(found: dict[str, Estimate]) -> str:
    """Return all estimates as one line; nothing where no stage is long."""
    return f"estimate: {'; '.join(f'{name} {each}' for name, each in found.items())}" * bool(found)
