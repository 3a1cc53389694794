"""What a run will take, before it starts: its long stages, each with what is known of it."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace

from model.config import TrainConfig
from model.training import cost
from model.training import estimate as training
from model.training.schedule import retention_of
from pipeline.config import ConvertConfig, PrepareConfig, RunConfig, VocabConfig
from pipeline.console.formatting import WARNING
from pipeline.errors import ConfigError, InputError, Restart, StoreError
from pipeline.orchestration import graph, stage_commands
from pipeline.orchestration.run_plan import StageRecords
from pipeline.preparation import estimate as preparation
from pipeline.records.estimate import Estimate, hours, size
from pipeline.storage.places import is_address
from pipeline.tokenization import existing_vocabulary


def estimate_stages(config: RunConfig, nodes: StageRecords) -> dict[str, Estimate]:
    """Return the estimates of the stages that have to run and are long.

    With GPUs the number of ranks, and so the time of training, is not known yet; of a GPU that
    `estimate_gpu` names, the hours that all ranks take together are.

    Raises:
        ConfigError: that GPU is unknown.
        InputError: raised by `_preparation`.
    """
    estimates: dict[str, Estimate] = {}
    gpu = _gpu_speed(config)
    lengths = {str(node.out): node.config.sequence_length for node in nodes if isinstance(node.config, PrepareConfig)}
    sizes = (existing_vocabulary.count_entries(node.config) for node in nodes if isinstance(node.config, VocabConfig))
    entries = next(sizes, training.VOCABULARY)
    weights, marked = 0.0, 0
    for node in nodes:
        settings = node.config
        if node.reason is None:
            continue
        if isinstance(settings, PrepareConfig):
            if expected := _preparation(settings):
                estimates[node.name] = expected
        elif isinstance(settings, TrainConfig):
            ranks = stage_commands.count_ranks(node, config.processes, config.cores)
            if settings.model.layers:
                model = replace(settings.model, vocab_size=settings.model.vocab_size or entries)
                core_count = config.cores or 0 if ranks and config.executor.here else None
                estimates[node.name] = training.estimate_training(
                    settings, model, None, ranks or 1, node.done, lengths, core_count, gpu
                )
                weights = training.WEIGHTS * cost.parameters(model)
                marked = retention_of(settings, 1).count_marked()
        elif isinstance(settings, ConvertConfig) and gpu is not None and weights:
            estimates[node.name] = Estimate(None, disk=weights * (marked if settings.checkpoints else 1))
    return estimates


def _gpu_speed(config: RunConfig) -> float | None:
    """Return the operations per second that the named GPU reaches; None if none is named."""
    name, peaks = config.estimate_gpu, cost.peaks()
    if name is None:
        return None
    if name not in peaks:
        raise ConfigError(f"its peak is not known; choose one of {', '.join(peaks)}", "estimate_gpu", name)
    return peaks[name] * 1e12 * config.estimate_mfu


def _preparation(config: PrepareConfig) -> Estimate | None:
    """Return the estimate of `prepare`; None where its corpus is small, or cannot be read now.

    Raises:
        InputError: its first document cannot be read.
    """
    try:
        return preparation.estimate_preparation(config)
    except (InputError, StoreError, Restart) as error:  # what was not downloaded yet, or does not answer
        if isinstance(error, InputError) and config.corpus.path is not None:
            raise
        later = config.corpus.path is None and config.corpus.files
        return Estimate(None, about="not known before the download") if later else None


def line(estimates: dict[str, Estimate], config: RunConfig) -> str:
    """Return all estimates as one line; nothing where no stage is long."""
    parts = [f"{name} {each}" for name, each in estimates.items()]
    total = [each.gpu_hours for each in estimates.values() if each.gpu_hours is not None]
    if total:
        device = f"{config.estimate_gpu} at an MFU of {config.estimate_mfu:.2f}"
        parts.append(f"in all about {hours(sum(total))} of training, {device}")
    return WARNING.join([f"estimate: {'; '.join(parts)}", *_lacks(estimates, config)]) if parts else ""


def _lacks(estimates: dict[str, Estimate], config: RunConfig) -> Iterator[str]:
    """Yield what the disk and the memory of this machine have too little of."""
    needed, free = sum(each.disk for each in estimates.values()), _free(config)
    if free is not None and needed > free:
        yield f"{size(needed)} of disk are needed, {config.workdir} has {size(free)} free"
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for name, each in estimates.items() if config.executor.here else ():
        if each.memory > memory:
            yield f"{name} needs {size(each.memory)} of memory, this machine has {size(memory)}"


def _free(config: RunConfig) -> int | None:
    """Return the free bytes of the disk of the run's folder; None where it is not of this machine."""
    if config.executor.pods or is_address(config.workdir):
        return None
    return shutil.disk_usage(graph.nearest_existing(config.workdir)).free
