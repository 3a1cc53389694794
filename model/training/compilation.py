"""Whether layers are compiled: on a GPU by default, where all that it needs is there."""

from typing import TYPE_CHECKING

from model.config import TrainConfig
from model.encoders.device import has_compiler
from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    from model.training.deepspeed_engine import World


def wanted(config: TrainConfig, world: "World") -> bool:
    """Return whether to compile.

    Raises:
        ConfigError: it is asked for on a GPU without a C compiler.
    """
    chosen = config.compute.compile
    if chosen is False or (chosen is None and world.device.type != "cuda"):
        return False
    if world.device.type == "cuda" and not has_compiler():
        if chosen:
            raise ConfigError(
                "found no C compiler with Python's headers, which Triton needs at run time; install gcc and "
                "python3-dev, or set compute.compile=false",
                "compute.compile",
                True,
            )
        return False
    stage = config.deepspeed.get("zero_optimization", {}).get("stage", 0)
    return bool(chosen or stage < 3)
