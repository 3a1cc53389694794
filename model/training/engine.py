"""The engine: a model and its optimizer on all ranks, by DeepSpeed, of which the trainer knows nothing else.

Its weights and moments are at each ZeRO stage elsewhere: whole, divided, or the module's weights too.
"""

import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import deepspeed
import torch
from deepspeed import utils as fragments
from deepspeed.runtime.zero.utils import ZeRORuntimeException
from torch import Tensor, nn
from torch.optim import Optimizer

from model.config import Json, TrainConfig, Weights
from model.distributed import process_group
from model.distributed.rank_card import RankCard
from model.distributed.world import World, join_world
from model.encoders.device import TYPES
from model.encoders.encoder import prepare_for
from model.optim.average import AVERAGE, keep_average
from model.optim.build import build_optimizer, moment_keys
from model.optim.partitioned_adam import PartitionedAdam
from model.optim.zero_layout import layouts
from model.resilience.nonfinite import clip_and_skip
from model.training.checkpoint import Tensors
from model.training.deepspeed_config import deepspeed_config
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
Scale = dict[str, float | None]


Places = list[tuple[Tensor, Tensor]]  # where the module takes a weight from, each with its average


class Replicated:
    """Stage 0: each rank has all of it, in the optimizer's own state."""

    def __init__(self, wrapper: Any):
        """Look at `wrapper`, the optimizer of DeepSpeed's engine."""
        self.wrapper = wrapper

    @property
    def optimizer(self) -> Optimizer:
        """Return the torch optimizer inside ZeRO's wrapper."""
        return getattr(self.wrapper, "optimizer", self.wrapper)  # type: ignore[no-any-return]

    def owned(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """Yield what the optimizer updates on this rank, with its group."""
        for group in self.optimizer.param_groups:
            yield from ((parameter, group) for parameter in group["params"])

    def create(self) -> None:
        """Create zero moments: before its first step the optimizer has none to write into.

        An average begins with the weights; the first update replaces it.
        """
        optimizer = self.optimizer
        for parameter, group in self.owned():
            # Ours count in host memory, PyTorch's fused ones on the device.
            counted = "cpu" if isinstance(optimizer, PartitionedAdam) else parameter.device
            optimizer.state[parameter] = {
                "step": torch.zeros((), dtype=torch.float32, device=counted),
                **{
                    key: parameter.detach().clone() if key == AVERAGE else torch.zeros_like(parameter)
                    for key in moment_keys(optimizer, group)
                },
            }
        self.link()

    def link(self) -> None:
        """Let the parameters find their moments."""

    def gather(self, parameter: nn.Parameter, keys: Sequence[str]) -> tuple[Tensor, Weights]:
        """Return a parameter's fp32 weight and moments, gathered from the ranks."""
        state = self.optimizer.state[parameter]
        return parameter.detach(), {key: state[key] for key in keys}

    def held(self, parameter: nn.Parameter, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of a whole weight this rank has, and the same as the module computes with it."""
        return weight, parameter.detach()

    def scatter(self, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
        for key, moment in moments.items():
            self.optimizer.state[parameter][key].copy_(moment)

    def averages(self, parameter: Any) -> Places:
        """Return the tensors from which the module computes a parameter, each with its average."""
        return [(parameter.data, self.optimizer.state[parameter][AVERAGE])]


class Partitioned(Replicated):
    """Stages 1 and 2: the ranks share fp32 weights and moments in flat parts."""

    def link(self) -> None:
        """Link the parameters to their moments.

        DeepSpeed does so only once, after the first group's first step, when the other groups' moments
        do not exist yet.
        """
        wrapper = self.wrapper
        for parameters, flat in zip(wrapper.bit16_groups, wrapper.single_partition_of_fp32_groups, strict=True):
            fragments.lazy_init_hp_params_optimizer_state(parameters, flat, self.optimizer.state)

    def gather(self, parameter: nn.Parameter, keys: Sequence[str]) -> tuple[Tensor, Weights]:
        """Return a parameter's fp32 weight and moments, gathered from the ranks."""
        moments = {key: fragments.safe_get_full_optimizer_state(parameter, key) for key in keys}
        return fragments.safe_get_full_fp32_param(parameter), moments

    def scatter(self, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
        fragments.safe_set_full_fp32_param(parameter, weight)
        for key, moment in moments.items():
            fragments.safe_set_full_optimizer_state(parameter, moment, key)

    def averages(self, parameter: Any) -> Places:
        """Return the tensors from which the module computes a parameter, each with its average."""
        return [(parameter.data, fragments.safe_get_full_optimizer_state(parameter, AVERAGE))]


class FullyPartitioned(Partitioned):
    """Stage 3: the ranks share the module's weights too, each an equal part of every parameter."""

    def owned(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        """Yield what the optimizer updates on this rank, with its group."""
        groups, owner = self.optimizer.param_groups, self.wrapper.sub_group_to_group_id
        for number, flat in enumerate(self.wrapper.fp32_partitioned_groups_flat):
            yield flat, groups[owner[number]]

    def link(self) -> None:
        """Do nothing: the parameters find their moments."""

    def held(self, parameter: Any, weight: Tensor) -> tuple[Tensor, Tensor]:
        """Return what of a whole weight this rank has, and the same as the module computes with it."""
        part = part_of(parameter, weight)
        return part, parameter.ds_tensor.flatten()[: part.numel()]

    def scatter(self, parameter: nn.Parameter, weight: Tensor, moments: Mapping[str, Tensor]) -> None:
        """Set the optimizer's copies of a parameter's weight and moments, on the ranks that own them."""
        fragments.safe_set_local_fp32_param(parameter, pad_part(parameter, weight))
        for key, moment in moments.items():
            fragments.safe_set_local_optimizer_state(parameter, pad_part(parameter, moment), key)

    def averages(self, parameter: Any) -> Places:
        """Return the tensors from which the module computes a parameter, each with its average."""
        whole = fragments.safe_get_full_optimizer_state(parameter, AVERAGE)
        part = fragments.safe_get_local_optimizer_state(parameter, AVERAGE)
        small = parameter.data.numel() == whole.numel()  # held whole, too
        return [(parameter.ds_tensor.data, part), *([(parameter.data, whole)] if small else [])]


KINDS = (Replicated, Partitioned, Partitioned, FullyPartitioned)  # by stage


def part_of(parameter: Any, whole: Tensor) -> Tensor:
    """Return the part of a tensor that this rank owns at stage 3: an equal one, or what is left."""
    size = parameter.ds_tensor.numel()
    start = size * torch.distributed.get_rank()
    return whole.flatten()[start : start + size]


def pad_part(parameter: Any, whole: Tensor) -> Tensor:
    """Return this rank's part in the size that all ranks have, with zeros."""
    part = part_of(parameter, whole)
    return nn.functional.pad(part, (0, parameter.ds_tensor.numel() - part.numel()))


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


class Engine:
    """Passes, updates and the whole state of a model whose optimizer is divided among the ranks."""

    def __init__(self, module: nn.Module, config: TrainConfig, world: World):
        """Build DeepSpeed's engine around `module`, with our optimizer.

        An optimizer named in DeepSpeed's JSON would apply weight decay to biases and layer norms.

        Raises:
            ConfigError: DeepSpeed cannot combine what `config.deepspeed` asks for.
        """
        self.module, self.world = module, world
        # What is not trained stays as it is in fp32, whatever the type of the passes.
        self.frozen: Weights = {
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
        self.moments = {name: keys[p] for name, p in module.named_parameters() if p in keys}
        settings = deepspeed_config(config, world)
        clip = 0.0
        if settings.get("zero_optimization", {}).get("stage", 0) == 0:
            clip, settings["gradient_clipping"] = settings["gradient_clipping"], 0.0
        self.deepspeed, wrapper = initialize(module.to(world.device), optimizer, settings)
        if not hasattr(wrapper, "overflow"):
            clip_and_skip(wrapper, clip)
        fuse_grad_norm(wrapper)
        install_flat_gradients(wrapper, [p for p in module.parameters() if p.requires_grad])
        if isinstance(optimizer, PartitionedAdam):
            optimizer.partitions = layouts(self.deepspeed)
        self.stage: int = self.deepspeed.zero_optimization_stage()
        self.micro_batches: int = self.deepspeed.gradient_accumulation_steps()  # of a full batch on a rank
        self.state = KINDS[self.stage](wrapper)
        self._fp16 = config.precision == "fp16"

    def __call__(self, *inputs: Any) -> Any:
        """Return the output of the module."""
        return self.deepspeed(*inputs)

    def train(self, training: bool = True) -> None:
        """Switch dropout on, or off."""
        self.deepspeed.train(training)

    def backward(self, loss: Tensor, last: bool = True) -> None:
        """Add the gradients of a micro-batch, whose loss is a share of that of the batch; `last`: an update follows."""
        self.deepspeed.set_gradient_accumulation_boundary(last)
        # DeepSpeed averages over ranks and over the micro-batches of a full batch, but the loss is
        # a share of a mean over this batch.
        self.deepspeed.backward(loss * (self.world.size * self.micro_batches))

    def set_lr(self, rate: float) -> None:
        """Set the learning rate of the next updates."""
        for group in self.state.wrapper.param_groups:
            group["lr"] = rate

    def step(self) -> None:
        """Update the weights after the last micro-batch; before it, do nothing."""
        self.deepspeed.step()

    @property
    def was_applied(self) -> bool:
        """Return whether the last update was finite, and so was applied."""
        return bool(self.deepspeed.was_step_applied())

    @property
    def grad_norm(self) -> float:
        """Return the norm of the last update's gradients before clipping."""
        return float(self.deepspeed.get_global_grad_norm())

    @property
    def parameters(self) -> int:
        """Return how many there are, those of other ranks too."""
        return sum(getattr(p, "ds_numel", p.numel()) for p in self.module.parameters())

    def state_dict(self, compare: bool = True) -> tuple[Weights, Weights]:
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
        if any(self.state.optimizer.state.values()):
            self.state.link()
        else:  # no update has been applied yet: the moments are zeros
            self.state.create()
        first = self.world.rank == 0
        for name, parameter in self.module.named_parameters():
            if name in self.frozen:
                weights |= {name: self.frozen[name]} if first else {}
                continue
            weight, gathered = self.state.gather(parameter, self.moments[name])
            part, live = self.state.held(parameter, weight)
            # A sum is fast; it may overflow where no weight does.
            infinite |= not (part.sum().isfinite() or part.isfinite().all())
            different |= compare and not torch.equal(part.to(live.device, live.dtype), live)
            if first:
                weights[name] = copy_to_host(weight)
                moments |= {f"{key}.{name}": copy_to_host(each.view(weight.shape)) for key, each in gathered.items()}
        if process_group.any_rank(infinite):
            raise FloatingPointError("a weight is not finite")
        if process_group.any_rank(different):
            raise RuntimeError(
                "DeepSpeed's optimizer has other weights than those that the model computes with: a "
                "checkpoint of them would be wrong, and was not written"
            )
        return weights, moments

    def load_state_dict(self, tensors: Tensors, updates: int) -> None:
        """Load a checkpoint's fp32 weights and moments, after a number of updates, into the partitions.

        The module must already hold the same weights, as the forward pass uses them; this sets
        only the optimizer's copies.

        Raises:
            InputError: The checkpoint has the moments of another type of optimizer.
        """
        require_moments(self.moments, tensors)
        self.state.create()
        device = self.world.device
        for name, parameter in self.module.named_parameters():
            if name in self.frozen:
                continue
            weight = tensors.weight(name).to(device)
            moments = {
                # An average that is not there yet begins with the weights.
                key: tensors.moment(key, name).to(device) if (key, name) in tensors.moments else weight
                for key in self.moments[name]
            }
            self.state.scatter(parameter, weight, moments)
        for entry in self.state.optimizer.state.values():
            entry["step"] = torch.full_like(entry["step"], float(updates))

    @contextmanager
    def averaged_weights(self) -> Iterator[None]:
        """Let the module compute with the averages instead of the weights; all ranks enter."""
        backups = []
        if any(self.state.optimizer.state.values()):  # else no update has been applied yet
            self.state.link()
            for parameter in (one for one in self.module.parameters() if one.requires_grad):
                for place, value in self.state.averages(parameter):
                    backups.append((place, place.clone()))
                    place.copy_(value.view_as(place))
        try:
            yield
        finally:
            for place, value in backups:
                place.copy_(value)

    @property
    def loss_scale(self) -> float | None:
        """Return that of fp16; None in other precisions."""
        return float(self.state.wrapper.loss_scale) if self._fp16 else None

    def scale_state(self) -> Scale:
        """Return the loss scale and what it changes by; nothing but in fp16."""
        return scale_of(self.state.wrapper.loss_scaler) if self._fp16 else {}

    def load_scale(self, state: Scale) -> None:
        """Continue from a saved loss scale, if any."""
        restore_scale(self.state.wrapper.loss_scaler if state else None, state)


def initialize(module: nn.Module, optimizer: Optimizer, settings: Json) -> tuple[Any, Any]:
    """Return DeepSpeed's engine and its wrapper of the optimizer.

    Raises:
        ConfigError: DeepSpeed cannot combine the settings.
    """
    try:
        with force_zero_wrapper():
            engine, wrapper, *_ = deepspeed.initialize(
                model=module, optimizer=optimizer, config=settings, dist_init_required=False
            )
    except (ZeRORuntimeException, AssertionError, NotImplementedError, ValueError) as error:
        *_, place = traceback.walk_tb(error.__traceback__)
        if not place[0].f_globals["__name__"].startswith("deepspeed."):
            raise  # our own mistake, or PyTorch's
        raise ConfigError(first_line(error), "deepspeed") from error  # what it cannot combine
    return engine, wrapper


def scale_of(scaler: Any) -> Scale:
    """Return the fields of a loss scaler that the next steps depend on; those that it has."""
    return {name: getattr(scaler, name) for name in SCALE if hasattr(scaler, name)}


def restore_scale(scaler: Any, state: Scale) -> None:
    """Set the fields of a loss scaler."""
    for name, value in state.items():
        setattr(scaler, name, value)


def require_moments(moments: dict[str, tuple[str, ...]], tensors: Tensors) -> None:
    """Refuse a checkpoint without the moments of an optimizer, by parameter; an average may be missing."""
    required = {(key, name) for name, keys in moments.items() for key in keys}
    if missing := sorted({key for key, name in required - tensors.moments if key != AVERAGE}):
        raise InputError(
            f"does not contain {', '.join(missing)}, required by this optimizer; set the optimizer that wrote it, or "
            f"{named('start_optimizer')}=false",
            "optimizer",
            path=tensors.path,
        )


def copy_to_host(tensor: Tensor) -> Tensor:
    """Return a copy in fp32 in host memory."""
    return tensor.to("cpu", torch.float32, copy=True).contiguous()
