"""DeepSpeed behind a small interface: build the engine, gather its state, load a state."""

import math
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, get_args

import deepspeed
import torch
from deepspeed import utils as fragments
from deepspeed.runtime.config import DeepSpeedConfig
from deepspeed.runtime.config_utils import DeepSpeedConfigModel
from deepspeed.runtime.zero.utils import ZeRORuntimeException
from pydantic import ValidationError
from torch import Tensor, nn
from torch.optim import Optimizer

from model.config import Json, TrainConfig, Weights, deepspeed_keys
from model.distributed import process_group
from model.distributed.rank_card import RankCard
from model.distributed.world import World, join_world
from model.encoders.device import TYPES, has_compiler
from model.encoders.encoder import prepare_for
from model.optim.average import AVERAGE, keep_average
from model.optim.build import build_optimizer, moment_keys
from model.optim.partitioned_adam import PartitionedAdam
from model.optim.zero_layout import layouts
from model.resilience.nonfinite import clip_and_skip
from model.training.checkpoint import Tensors
from model.training.deepspeed_patches import (
    before_start,
    force_zero_wrapper,
    fuse_grad_norm,
    install_flat_gradients,
    require_version,
)
from pipeline.errors import ConfigError, InputError, first_line, named

# The dynamic loss scale of fp16, which the next steps depend on.
SCALE = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")

# Of `zero_optimization`, keys that mean nothing on a CPU.
ONLY_ON_GPUS = ("overlap_comm", "reduce_bucket_size", "allgather_bucket_size")
OFFLOADS = {"offload_optimizer", "offload_param"}
# The type in which gradients in bf16 are added up, over micro-batches and over ranks. A sum of 128
# numbers in bf16 is off by about 1 %, one of 1,024 by several: the small ones are lost. In fp32
# nothing of this can be seen. It costs 4 bytes for each parameter on each rank at ZeRO 1, and twice
# the traffic of reductions.
FP32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}


def start_world(card: RankCard, threads: int | None, start_timeout: float = 1800.0, timeout: float = 900.0) -> World:
    """Join the other ranks, and DeepSpeed with them; arguments and errors as of `join_world`.

    Raises:
        InputError: Another version of DeepSpeed is installed.
    """
    require_version()
    world, limit = join_world(card, threads, start_timeout, timeout), timedelta(seconds=timeout)
    before_start(limit, world.device.type == "cuda")
    deepspeed.init_distributed(verbose=False, timeout=limit)
    return world


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
        kept = settings.get(key)
        settings[key] = kept | typed if isinstance(kept, dict) else typed
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


def build_engine(module: nn.Module, config: TrainConfig, world: World) -> Any:
    """Build the DeepSpeed engine around `module`, with our optimizer.

    An optimizer named in DeepSpeed's JSON would apply weight decay to biases and layer norms.

    Raises:
        ConfigError: DeepSpeed cannot combine what `config.deepspeed` asks for.
    """
    # What is not trained stays as it is in fp32, whatever the type of the passes.
    frozen = {
        name: p.detach().to("cpu", torch.float32, copy=True)
        for name, p in module.named_parameters()
        if not p.requires_grad
    }
    prepare_for(world.device, TYPES[config.precision], module)
    optimizer = build_optimizer(module, config.optimizer, config.precision == "bf16")
    if config.ema is not None:
        keep_average(optimizer, config.ema)
    # ZeRO puts flat partitions into the groups: what is a parameter's has to be noted before.
    keys = {p: moment_keys(optimizer, g) for g in optimizer.param_groups for p in g["params"]}
    moments = {name: keys[p] for name, p in module.named_parameters() if p in keys}
    settings = deepspeed_config(config, world)
    clip = 0.0
    if settings.get("zero_optimization", {}).get("stage", 0) == 0:
        clip, settings["gradient_clipping"] = settings["gradient_clipping"], 0.0
    module.to(world.device)
    try:
        with force_zero_wrapper():
            engine, *_ = deepspeed.initialize(
                model=module, optimizer=optimizer, config=settings, dist_init_required=False
            )
    except (ZeRORuntimeException, AssertionError, NotImplementedError, ValueError) as error:
        *_, place = traceback.walk_tb(error.__traceback__)
        if not place[0].f_globals["__name__"].startswith("deepspeed."):
            raise  # our own mistake, or PyTorch's
        raise ConfigError(first_line(error), "deepspeed") from error  # what it cannot combine
    if not hasattr(engine.optimizer, "overflow"):
        clip_and_skip(engine.optimizer, clip)
    fuse_grad_norm(engine.optimizer)
    install_flat_gradients(engine.optimizer, [p for p in engine.module.parameters() if p.requires_grad])
    if isinstance(optimizer, PartitionedAdam):
        optimizer.partitions = layouts(engine)
    engine.moments, engine.frozen = moments, frozen
    return engine


def _optimizer(engine: Any) -> Optimizer:
    """Return the torch optimizer inside ZeRO's wrapper."""
    return getattr(engine.optimizer, "optimizer", engine.optimizer)  # type: ignore[no-any-return]


def gather_state(engine: Any, compare: bool = True) -> tuple[Weights, Weights]:
    """Gather whole fp32 weights and moments by name on rank 0; every rank must call it.

    `compare` looks whether they are the weights that the model computes with, to the bit. On a CPU
    it adds 7 % to a save, so that it is for the first one.

    Raises:
        FloatingPointError: A weight is not finite.
        RuntimeError: The optimizer's weights are not those that the model computes with.
    """
    weights: Weights = {}
    moments: Weights = {}
    infinite = different = False
    if any(_optimizer(engine).state.values()):
        _link_optimizer_state(engine)
    else:  # no update has been applied yet: the moments are zeros
        _make_state(engine)
    for name, parameter in engine.module.named_parameters():
        if name in engine.frozen:
            weights |= {name: engine.frozen[name]} if engine.global_rank == 0 else {}
            continue
        weight, found = _whole(engine, parameter, engine.moments[name])
        own, live = weight, parameter.detach()
        if engine.zero_optimization_stage() == 3:
            own = _own_part(parameter, weight)
            live = parameter.ds_tensor.flatten()[: own.numel()]
        # A sum is fast; it may overflow where no weight does.
        infinite |= not (own.sum().isfinite() or own.isfinite().all())
        different |= compare and not torch.equal(own.to(live.device, live.dtype), live)
        if engine.global_rank == 0:
            weights[name] = weight.to("cpu", torch.float32, copy=True).contiguous()
            for key, moment in found.items():
                moments[f"{key}.{name}"] = moment.to("cpu", torch.float32, copy=True).view(weight.shape).contiguous()
    if process_group.any_rank(infinite):
        raise FloatingPointError("a weight is not finite")
    if process_group.any_rank(different):
        raise RuntimeError(
            "DeepSpeed's optimizer has other weights than those that the model computes with: a "
            "checkpoint of them would be wrong, and was not written"
        )
    return weights, moments


def _whole(engine: Any, parameter: nn.Parameter, keys: Sequence[str]) -> tuple[Tensor, Weights]:
    """Return a parameter's fp32 weight and moments, gathered from the ranks."""
    if engine.zero_optimization_stage() == 0:
        state = engine.optimizer.state[parameter]
        return parameter.detach(), {key: state[key] for key in keys}
    moments = {key: fragments.safe_get_full_optimizer_state(parameter, key) for key in keys}
    return fragments.safe_get_full_fp32_param(parameter), moments


def load_state(engine: Any, tensors: Tensors, step: int) -> None:
    """Load a checkpoint's fp32 weights and moments, after `step` updates, into the partitions.

    The engine's module must already hold the same weights, as the forward pass uses them; this sets
    only the optimizer's copies.

    Raises:
        InputError: The checkpoint has the moments of another type of optimizer.
    """
    wanted = {(key, name) for name, keys in engine.moments.items() for key in keys}
    if missing := sorted({key for key, name in wanted - tensors.moments if key != AVERAGE}):
        raise InputError(
            f"does not contain {', '.join(missing)}, required by this optimizer; set the optimizer that wrote it, or "
            f"{named('start_optimizer')}=false",
            "optimizer",
            path=tensors.path,
        )
    _make_state(engine)
    for name, parameter in engine.module.named_parameters():
        if name in engine.frozen:
            continue
        weight = tensors.weight(name).to(engine.device)
        moments = {
            # An average that is not there yet begins with the weights.
            key: tensors.moment(key, name).to(engine.device) if (key, name) in tensors.moments else weight
            for key in engine.moments[name]
        }
        _scatter(engine, parameter, weight, moments)
    for entry in _optimizer(engine).state.values():
        entry["step"] = torch.full_like(entry["step"], float(step))


def _scatter(engine: Any, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
    """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
    stage = engine.zero_optimization_stage()
    if stage == 0:
        for key, moment in moments.items():
            engine.optimizer.state[parameter][key].copy_(moment)
    elif stage == 3:
        fragments.safe_set_local_fp32_param(parameter, _padded(parameter, weight))
        for key, moment in moments.items():
            fragments.safe_set_local_optimizer_state(parameter, _padded(parameter, moment), key)
    else:
        fragments.safe_set_full_fp32_param(parameter, weight)
        for key, moment in moments.items():
            fragments.safe_set_full_optimizer_state(parameter, moment, key)


def _own_part(parameter: nn.Parameter, whole: Tensor) -> Tensor:
    """Return the part of a tensor that this rank owns at stage 3: an equal one, or what is left."""
    size = parameter.ds_tensor.numel()  # type: ignore[attr-defined]
    start = size * torch.distributed.get_rank()
    return whole.flatten()[start : start + size]


def _padded(parameter: nn.Parameter, whole: Tensor) -> Tensor:
    """Return this rank's part in the size that all ranks have, with zeros."""
    part = _own_part(parameter, whole)
    size = parameter.ds_tensor.numel()  # type: ignore[attr-defined]
    return torch.nn.functional.pad(part, (0, size - part.numel()))


def _make_state(engine: Any) -> None:
    """Create zero moments: before its first step the optimizer has none to write into.

    An average begins with the weights; the first update replaces it.
    """
    optimizer = _optimizer(engine)
    groups = optimizer.param_groups
    flat = getattr(engine.optimizer, "fp32_partitioned_groups_flat", None)  # stage 3
    if flat is None:
        owned = [(p, group) for group in groups for p in group["params"]]
    else:
        owner = engine.optimizer.sub_group_to_group_id
        owned = [(p, groups[owner[number]]) for number, p in enumerate(flat)]
    for parameter, group in owned:
        # Ours count in host memory, PyTorch's fused ones on the device.
        counted = "cpu" if isinstance(optimizer, PartitionedAdam) else parameter.device
        optimizer.state[parameter] = {
            "step": torch.zeros((), dtype=torch.float32, device=counted),
            **{
                key: parameter.detach().clone() if key == AVERAGE else torch.zeros_like(parameter)
                for key in moment_keys(optimizer, group)
            },
        }
    _link_optimizer_state(engine)


def _link_optimizer_state(engine: Any) -> None:
    """Link the parameters of stages 1 and 2 to their moments.

    DeepSpeed does so only once, after the first group's first step, when the other groups' moments
    do not exist yet.
    """
    wrapper = engine.optimizer
    if engine.zero_optimization_stage() in (1, 2):
        for parameters, flat in zip(wrapper.bit16_groups, wrapper.single_partition_of_fp32_groups, strict=True):
            fragments.lazy_init_hp_params_optimizer_state(parameters, flat, wrapper.optimizer.state)


@contextmanager
def averaged_weights(engine: Any) -> Iterator[None]:
    """Let the engine's module compute with the averages instead of the weights; all ranks enter."""
    kept = []
    if any(_optimizer(engine).state.values()):  # else no update has been applied yet
        _link_optimizer_state(engine)
        for parameter in (one for one in engine.module.parameters() if one.requires_grad):
            for place, value in copies(engine, parameter):
                kept.append((place, place.clone()))
                place.copy_(value.view_as(place))
    try:
        yield
    finally:
        for place, value in kept:
            place.copy_(value)


def copies(engine: Any, parameter: Any) -> list[tuple[Tensor, Tensor]]:
    """Return the tensors from which the module computes a parameter, each with its average."""
    if engine.zero_optimization_stage() == 0:
        return [(parameter.data, engine.optimizer.state[parameter][AVERAGE])]
    whole = fragments.safe_get_full_optimizer_state(parameter, AVERAGE)
    if engine.zero_optimization_stage() < 3:
        return [(parameter.data, whole)]
    own = fragments.safe_get_local_optimizer_state(parameter, AVERAGE)
    found = [(parameter.ds_tensor.data, own)]
    if parameter.data.numel() == whole.numel():  # small ones are held whole, too
        found.append((parameter.data, whole))
    return found


def scale_of(optimizer: Any, precision: str) -> dict[str, float | None]:
    """Return the loss scale and what it changes by; nothing but in fp16."""
    scaler = optimizer.loss_scaler if precision == "fp16" else None
    return {name: getattr(scaler, name) for name in SCALE if hasattr(scaler, name)}


def restore_scale(optimizer: Any, state: dict[str, float | None]) -> None:
    """Continue from a saved loss scale, if any."""
    for name, value in state.items():
        setattr(optimizer.loss_scaler, name, value)


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
