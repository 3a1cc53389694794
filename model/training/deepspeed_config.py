"""The configuration that DeepSpeed gets, and what is refused before it is built."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, get_args

from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.config_utils import DeepSpeedConfigModel
from pydantic import ValidationError

from model.config import Json, TrainConfig, deepspeed_keys
from model.distributed.world import World
from model.encoders.device import has_compiler
from pipeline.errors import ConfigError, first_line, named

# Of `zero_optimization`, keys that mean nothing on a CPU.
ONLY_ON_GPUS = ("overlap_comm", "reduce_bucket_size", "allgather_bucket_size")
OFFLOADS = {"offload_optimizer", "offload_param"}
# The type in which gradients in bf16 are added up, over micro-batches and over ranks. A sum of 128
# numbers in bf16 is off by about 1 %, one of 1,024 by several: the small ones are lost. In fp32
# nothing of this can be seen. It costs 4 bytes for each parameter on each rank at ZeRO 1, and twice
# the traffic of reductions.
FP32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}


def deepspeed_config(config: TrainConfig, world: World) -> Json:
    """Return the DeepSpeed configuration: derived from ours, then overridden by `config.deepspeed`.

    Raises:
        ConfigError: DeepSpeed would train incorrectly with this combination.
    """
    accumulation = math.ceil(math.ceil(config.batch_size / world.size) / int(config.micro_batch))
    settings: Json = {
        "train_micro_batch_size_per_gpu": config.micro_batch,
        "gradient_accumulation_steps": accumulation,
        "train_batch_size": config.micro_batch * accumulation * world.size,
        **deepspeed_keys.derive_keys(config.precision, config.clip),
        "zero_allow_untested_optimizer": True,
        "steps_per_print": 2**31,
        # It would wait for the device twice in every micro-batch; `step_metrics` does not.
        "timers": {"throughput": {"enabled": False}},
    }
    for key, typed in config.deepspeed.items():
        derived = settings.get(key)
        settings[key] = derived | typed if isinstance(derived, dict) else typed
    check_names(settings)
    zero = dict(settings.get("zero_optimization", {}))
    if world.device.type == "cuda":
        if config.precision == "bf16" and zero.get("stage", 0) >= 1:
            settings = FP32 | settings
    elif zero:
        settings["zero_optimization"] = {k: v for k, v in zero.items() if k not in ONLY_ON_GPUS}
        for kind in zero.keys() & OFFLOADS:
            settings["zero_optimization"][kind] = {**zero[kind], "pin_memory": False}
    reject_unsupported(config, world)
    return settings


def reject_unsupported(config: TrainConfig, world: World) -> None:
    """Reject what this device does not do; `TrainConfig` refuses what none does."""
    precision = config.precision
    if precision == "fp16" and world.device.type != "cuda":
        raise ConfigError("requires a GPU; use bf16 or fp32 on a CPU", "precision", "fp16")
    if config.compute.compile and precision != "fp32" and world.device.type == "cpu":
        # PyTorch 2.13 fails on matrix products with a dynamic number of rows.
        raise ConfigError(
            f"not supported on a CPU with {named('precision')}={precision}; use plain", "compute", "compile"
        )


def check_names(settings: Mapping[str, Any]) -> None:
    """Refuse values, and keys of sections, that the installed DeepSpeed does not know.

    Raises:
        ConfigError: There is one.
    """
    try:
        DeepSpeedConfig({**settings, "train_batch_size": None})  # it follows from the other two
    except ValidationError as error:
        wrong = error.errors()[0]
        *place, name = map(str, wrong["loc"])
        first = [*place, name][0]
        top = [k for k, v in settings.items() if isinstance(v, dict) and first in v]
        prefix = ".".join(["deepspeed", *([] if first in settings else top[:1]), *place])
        if wrong["type"] == "extra_forbidden":
            raise deepspeed_keys.no_such_key(prefix, name, field_names(error.title, place), wrong["input"]) from error
        raise ConfigError(f"{wrong['msg']}", f"{prefix}.{name}", wrong["input"]) from error
    except Exception as error:  # keys of earlier versions, and numbers that should be sections
        raise ConfigError(f"{first_line(error)}", "deepspeed") from error


def field_names(model: str, place: Sequence[str]) -> list[str]:
    """Return the names in a section of DeepSpeed's, by its model and the way from there."""
    kind = next(each for each in DeepSpeedConfigModel.__subclasses__() if each.__name__ == model)
    for part in place:
        hint = kind.model_fields[part].annotation
        kind = next(each for each in (hint, *get_args(hint)) if hasattr(each, "model_fields"))
    return [name for key, one in kind.model_fields.items() for name in (key, one.alias) if name]


def compiles(config: TrainConfig, world: World) -> bool:
    """Return whether layers are compiled: by default on a GPU, where all that it needs is there.

    Raises:
        ConfigError: it is asked for on a GPU without a C compiler.
    """
    chosen, on_a_gpu = config.compute.compile, world.device.type == "cuda"
    if chosen is None:
        stage = config.deepspeed.get("zero_optimization", {}).get("stage", 0)
        return on_a_gpu and stage < 3 and has_compiler()
    if chosen and on_a_gpu and not has_compiler():
        raise ConfigError(
            "found no C compiler with Python's headers, which Triton needs at run time; install gcc and "
            "python3-dev, or set compute.compile=false",
            "compute.compile",
            True,
        )
    return chosen
