"""The start of a training that reads its shards through `data.cache`."""

from collections.abc import Callable

from model.config import TrainConfig
from model.loader.loader import Loader
from model.loader.shard_cache import Reading, ShardCache
from model.resilience import process_group
from model.training.schedule import batch_size


def begin(
    cache: ShardCache,
    loader: Loader,
    config: TrainConfig,
    run: str,
    rank: int,
    step: int,
    last: int,
    start: int,
    beat: Callable[[], None],
) -> None:
    """Fetch ahead what the steps from `step` to `last` read, from sample `start` on, on all ranks.

    Raises:
        ConfigError, InputError: `data.cache_size` is too small, or the folder is not writable.
    """
    steps = range(step, last)
    sizes = [batch_size(config.schedule, config.batch_size, n, last) for n in steps]
    stop = start + sum(sizes)
    if config.epochs is not None:
        stop = min(stop, config.epochs * loader.samples)
    cache.begin(
        Reading(
            run=run,
            rank=rank,
            spans=loader.spans,
            start=start,
            stop=stop,
            batch=max(sizes, default=1),
            gather=process_group.gather,
            beat=beat,
        )
    )
