"""What keys of DeepSpeed that are passed through may change: nothing, the output, or too much."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pipeline.common.errors import ConfigError, named
from pipeline.common.formatting import flatten

if TYPE_CHECKING:
    from model.config.training import TrainConfig

# These change how the same numbers are computed, or what is printed: no part of a fingerprint.
HARMLESS = (
    "activation_checkpointing",
    "aio",
    "autotuning",
    "checkpoint",
    "comet",
    "comms_logger",
    "csv_monitor",
    "dataloader_drop_last",
    "datastates_ckpt",
    "disable_python_gc",
    "dump_state",
    "flops_profiler",
    "log_level",
    "memory_breakdown",
    "pipeline",
    "steps_per_print",
    "tensorboard",
    "timers",
    "vocabulary_size",
    "wall_clock_breakdown",
    "wandb",
    "zero_allow_untested_optimizer",
    "zero_force_ds_cpu_optimizer",
    *(
        f"zero_optimization.{key}"
        for key in (
            "allgather_bucket_size",
            "allgather_partitions",
            "allgather_sequential",
            "contiguous_gradients",
            "enable_sanity_checks",
            "ignore_unused_parameters",
            "leaf_module",
            "load_from_fp32_weights",
            "log_trace_cache_warnings",
            "max_live_parameters",
            "max_reuse_distance",
            "memory_efficient_linear",
            "model_persistence_threshold",
            "module_granularity_threshold",
            "offload_param",
            "overlap_comm",
            "override_module_apply",
            "param_persistence_threshold",
            "pipeline_loading_checkpoint",
            "prefetch_bucket_size",
            "reduce_bucket_size",
            "reduce_scatter",
            "stage",
            "stage3_allgather_sequential",
            "stage3_gather_16bit_weights_on_model_save",
            "stage3_max_live_parameters",
            "stage3_max_reuse_distance",
            "stage3_model_persistence_threshold",
            "stage3_module_granularity_threshold",
            "stage3_param_persistence_threshold",
            "stage3_prefetch_bucket_size",
            "stage3_use_all_reduce_for_fetch_params",
            "sub_group_size",
            "use_all_reduce_for_fetch_params",
            "use_multi_rank_bucket_allreduce",
            *(
                f"offload_optimizer.{key}"
                for key in (
                    "buffer_count",
                    "device",
                    "fast_init",
                    "nvme_path",
                    "pin_memory",
                    "pipeline",
                    "pipeline_read",
                    "pipeline_write",
                )
            ),
        )
    ),
)
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


def _among(key: str, names: Any) -> str | None:
    """Return the one of `names` that is a key or contains it."""
    return next((name for name in names if f"{key}.".startswith(f"{name}.")), None)


def of_output(typed: Mapping[str, Any]) -> dict[str, Any]:
    """Return what may change the output, by dotted key."""
    without = (*HARMLESS, *OURS, *FIXED, *UNSUPPORTED)
    return {key: value for key, value in flatten(typed) if _among(key, without) is None}


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
    known = (*HARMLESS, *wanted, *UNSUPPORTED)
    for key, value in flatten(typed):
        name = _among(key, UNSUPPORTED)
        inner = next((each for each in known if each.startswith(f"{key}.")), None)
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
