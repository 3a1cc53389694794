"""What keys of DeepSpeed that are passed through may change: nothing, the output, or too much."""

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.common.errors import ConfigError, named
from pipeline.common.formatting import flatten
from pipeline.common.tables import read_table

if TYPE_CHECKING:
    from model.config.training import TrainConfig

# What our keys say: any other value contradicts them.
OURS = {
    "bf16.enabled": "precision",
    "fp16.enabled": "precision",
    "gradient_clipping": "clip",
    "train_batch_size": "batch_size",
    "train_micro_batch_size_per_gpu": "micro_batch",
    "gradient_accumulation_steps": "micro_batch",
}
# Refused, with what to do instead: they lay state out, compute or check it in ways that the trainer
# and its checkpoints do not know. Some have one value that does nothing.
UNSUPPORTED = {
    "bfloat16": f"set {named('precision')}=",
    "compile": f"set {named('compute')}=compile",
    "data_efficiency": "remove it",
    "data_types.param_dtype": f"set {named('precision')}=",
    "expert_parallel": "remove it",
    "hybrid_engine": "remove it",
    "optimizer": f"set {named('optimizer')}=, as its decay would also apply to biases and layer norms",
    "scheduler": f"set {named('schedule')}=",
    "sequence_parallel_size": "remove it",
    "tensor_parallel": "remove it",
    "torch_autocast": f"set {named('precision')}=",
    "use_data_before_expert_parallelism": "remove it",
    "weight_quantization": "remove it",
    "zero_optimization.cpu_offload": f"set {named('deepspeed')}=zero2_offload",
    "zero_optimization.offload_optimizer.super_offload": "remove it",
    "zero_optimization.zenflow": "remove it",
}
FIXED = {
    "bf16.bf16_master_weights_and_grads": False,  # the optimizer keeps weights in fp32
    "bf16.bf16_optimizer_states": False,
    "bf16.check_grad_overflow": True,  # one NaN would reach all weights
    "fp16.fp16_master_weights_and_grads": False,
    "gradient_allreduce_op": "mean",
    "managed_gradient_accumulation": True,
    "zero_optimization.compute_grad_norm": True,  # it shows which updates are not finite
    "zero_optimization.parameter_alignment": False,
    "zero_optimization.round_robin_gradients": False,  # saved weights would be mixed up
    "zero_optimization.zero_hpz_partition_size": 1,
}


@functools.cache
def harmless() -> tuple[str, ...]:
    """Return the keys that change no result."""
    return tuple(read_table(__file__, "deepspeed_keys.yaml")["harmless"])


def _among(key: str, names: Any) -> str | None:
    """Return the one of `names` that is a key or contains it."""
    return next((name for name in names if f"{key}.".startswith(f"{name}.")), None)


def of_output(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may change the output, by dotted key."""
    known = (*OURS, *FIXED, *UNSUPPORTED)
    return {key: value for key, value in flatten(typed) if _among(key, (*known, *harmless())) is None}


def derived(config: "TrainConfig") -> dict[str, Any]:
    """Return the keys that follow from ours, whatever the ranks."""
    kinds = {kind: {"enabled": config.precision == kind} for kind in ("bf16", "fp16")}
    return {"gradient_clipping": config.clip or 0.0, **kinds}


def check(typed: Mapping[str, Any], ours: Mapping[str, Any]) -> None:
    """Refuse what is not supported, or contradicts the keys that follow from ours.

    Raises:
        ConfigError: There is such a key.
    """
    wanted = {key: value for key, value in flatten(ours) if key in OURS} | FIXED
    for key, value in flatten(typed):
        name = _among(key, UNSUPPORTED)
        inner = next((each for each in (*harmless(), *wanted, *UNSUPPORTED) if each.startswith(f"{key}.")), None)
        if inner is not None:
            problem = f"has keys of its own; set one of these, as deepspeed.{inner}="
        elif name is not None:
            problem = f"not supported; {UNSUPPORTED[name]}"
        elif key not in wanted or value == wanted[key]:
            continue
        elif key in OURS:
            problem = f"contradicts {OURS[key]}; remove it and set {named(OURS[key])}="
        else:
            problem = "not supported, as it lays out or checks state in another way; remove it"
        raise ConfigError(problem, f"deepspeed.{key}", value)
