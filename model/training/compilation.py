"""Whether layers are compiled: on a GPU by default, where all that it needs is there."""

import os
import shutil
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING

from model.config import TrainConfig
from pipeline.common.errors import ConfigError

if TYPE_CHECKING:
    from model.training.deepspeed_engine import World

COMPILERS = ("cc", "gcc", "clang")  # Triton builds its launchers with one of them


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
                "compute.compile=true: found no C compiler with Python's headers, which Triton "
                "needs at run time; install gcc and python3-dev, or set compute.compile=false",
                key="compute.compile",
            )
        return False
    stage = config.deepspeed.get("zero_optimization", {}).get("stage", 0)
    return bool(chosen or stage < 3)


def has_compiler() -> bool:
    """Return whether this machine has a C compiler and Python's headers."""
    headers = Path(sysconfig.get_path("include")) / "Python.h"
    return headers.exists() and any(
        shutil.which(name) for name in (os.environ.get("CC", ""), *COMPILERS) if name
    )
