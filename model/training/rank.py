"""Training as one of the ranks, with the end that its exit code means."""

import logging
import os
from collections.abc import Mapping
from pathlib import Path

import torch.distributed as dist

from model.config import TrainConfig
from model.resilience.watchdog import LEAVING, Watchdog
from model.training import micro_batch
from model.training.trainer import Trainer
from pipeline.common import checkpoints
from pipeline.common.manifest import Result
from pipeline.common.stores.background_upload import CheckpointStore


def make(
    config: TrainConfig,
    out: Path,
    fingerprint: str,
    common: str,
    store: CheckpointStore | None = None,
    addresses: Mapping[str, str] | None = None,
) -> Result:
    """Train as one of the ranks, resuming from the newest checkpoint of `fingerprint`, if any.

    `common` is a hash of the inputs and of the settings that every step depends on, by which the
    first steps of another training in `out` are recognised as this one's. With a `store` the ranks
    share checkpoints through it, not through the folder. `addresses` are where the shards of local
    folders come from, for `data.cache`.

    Raises:
        ConfigError, InputError: Settings, shards, vocabulary or checkpoints do not match.
        Restart: A rank got a signal or lost its peers; the state is saved if possible.
        Diverged: Too many updates in a row were not finite.
    """
    logging.getLogger("DeepSpeed").setLevel(logging.WARNING)
    rank = int(os.environ.get("RANK", "0"))
    # Longer than the start timeout: waiting for peers raises an error of its own.
    patience = config.start_timeout + LEAVING
    guard = Watchdog(rank, patience, config.watchdog, config.heartbeat)
    try:
        trainer = Trainer(config, out, fingerprint, common, guard, store, addresses or {})
        try:
            result = trainer.run()
        finally:
            trainer.tracker.close()
    except Exception as error:
        guard.leaving()  # it stays: a signal or a hang must not spoil the exit code
        found = micro_batch.ending(error, config, rank, checkpoints.runs(out) / checkpoints.run_name(fingerprint))
        if found is not None:
            raise found from error
        raise
    dist.destroy_process_group()
    guard.close()
    return result
