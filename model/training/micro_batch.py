"""How much is computed at a time, and what to say where it does not fit."""

import dataclasses
import json
from pathlib import Path

import torch

from model.config import ModelConfig, TrainConfig
from model.distributed import process_group
from model.distributed.world import World
from model.training import cost
from pipeline.errors import ConfigError, Restart, UserError, error_from_record, first_line, named
from pipeline.storage.atomic import write_text

OOM_RECORD = "out-of-memory"  # file in a run's folder: what the rank said whose memory was too small


def resolve_micro_batch(config: TrainConfig, model: ModelConfig, world: World, length: int) -> TrainConfig:
    """Return the configuration with the samples of a micro-batch, where `auto` is set.

    `length` is that of the longest sequence. All ranks get the number that fits on all.

    Raises:
        ConfigError: not one sequence fits.
    """
    if config.micro_batch != "auto":
        return config
    tokens = tokens_that_fit(config, model, world)
    if tokens < length:
        raise ConfigError(
            f"not one sequence of {length} tokens fits into the memory of {world.device}; take compute=recompute, "
            "deepspeed=zero2_offload or a smaller model",
            "micro_batch",
            "auto",
        )
    fitting = cost.micro_batch(config, world.size, tokens, length)
    return dataclasses.replace(config, micro_batch=min(process_group.gather(fitting)))


def tokens_that_fit(config: TrainConfig, model: ModelConfig, world: World) -> int:
    """Return how many tokens the device of this rank can learn from at a time."""
    if world.device.type != "cuda":
        return cost.tokens_on_a_cpu(model)
    memory = torch.cuda.get_device_properties(world.device).total_memory
    return cost.tokens_that_fit(cost.Setting.of(config, model, world.size), memory)


def is_too_large(error: BaseException) -> bool:
    """Return whether an error says that memory was too small."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
    )


def classify_failure(error: BaseException, config: TrainConfig, rank: int, folder: Path) -> UserError | Restart | None:
    """Return what an error that ends training means, where it is not a bug; leave a lack of memory for other ranks."""
    if is_too_large(error):
        now = config.micro_batch
        half = now // 2 if isinstance(now, int) else 8
        smaller = f"{named('micro_batch')}={half}, " if half else ""
        refused = ConfigError(
            f"out of memory on rank {rank}; take {smaller}{named('compute')}=recompute, or a ZeRO stage that divides "
            f"more, such as {named('deepspeed')}=zero2_offload",
            "micro_batch",
            now,
        )
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / OOM_RECORD, json.dumps(refused.record()))
        return refused
    if process_group.is_peer_failure(error):
        if (folder / OOM_RECORD).exists():  # a lost rank left why, if its memory was too small
            return error_from_record(json.loads((folder / OOM_RECORD).read_text(encoding="utf-8")))
        return Restart(f"rank {rank}: lost the others ({first_line(error)})")
    return None
