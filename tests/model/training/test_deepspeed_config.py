"""Combinations that DeepSpeed would train wrongly without a word are refused."""

import pytest
import torch

from model.config import ComputeConfig, OptimizerConfig, TrainConfig
from model.distributed.world import World, ranks_of_this_node
from model.training.deepspeed_config import deepspeed_config
from pipeline.errors import ConfigError

ZERO = "deepspeed.zero_optimization"
CPU = World(0, 2, torch.device("cpu"))


def settings(stage, optimizer="lamb", precision="fp32", **deepspeed):
    zero = {"stage": stage} | deepspeed.pop("zero", {})
    return deepspeed_config(
        TrainConfig(
            out="out",
            optimizer=OptimizerConfig(name=optimizer),
            precision=precision,
            compute=deepspeed.pop("compute", ComputeConfig()),
            deepspeed={"zero_optimization": zero, **deepspeed},
        ),
        CPU,
    )


@pytest.mark.parametrize(
    ("refused", "key"),
    [
        ({"stage": 0, "precision": "bf16"}, "precision"),
        ({"stage": 1, "precision": "fp16"}, "precision"),
        ({"stage": 3, "compute": ComputeConfig(compile=True)}, "compute"),
        ({"stage": 1, "precision": "bf16", "compute": ComputeConfig(compile=True)}, "compute"),
        ({"stage": 1, "train_batch_size": 128}, "deepspeed.train_batch_size"),
        ({"stage": 1, "gradient_accumulation_steps": 2}, "deepspeed.gradient_accumulation_steps"),
        ({"stage": 1, "gradient_cliping": 1.0}, "deepspeed.gradient_cliping"),
        ({"stage": 7}, "deepspeed.zero_optimization.stage"),
        ({"stage": 1, "zero": {"reduce_bucket_size": -1}}, f"{ZERO}.reduce_bucket_size"),
        ({"stage": 1, "data_types": {"grad_dtype": "bf16"}}, "deepspeed.data_types.grad_dtype"),
        ({"stage": 1, "communication_data_type": "fp17"}, "deepspeed"),
        ({"stage": 1, "amp": {"enabled": True}}, "deepspeed.amp.enabled"),
        ({"stage": 1, "train_batch_size": 256}, "deepspeed.train_batch_size"),
    ],
)
def test_what_would_train_wrongly_is_refused(refused, key):
    with pytest.raises(ConfigError) as raised:
        settings(**refused)
    assert raised.value.key == key


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ({"gradient_cliping": 1.0}, "gradient_clipping"),
        ({"zero_optimization": {"reduce_bucket": 3}}, "zero_optimization.reduce_bucket_size"),
        (
            {"zero_optimization": {"offload_optimizer": {"device": "cpu", "pin_mem": True}}},
            "zero_optimization.offload_optimizer.pin_memory",
        ),
        ({"flops_profiler": {"detail": 1}}, "flops_profiler.detailed"),
    ],
)
def test_a_key_that_deepspeed_lacks_has_a_neighbour(typed, meant):
    with pytest.raises(ConfigError, match=f"did you mean deepspeed.{meant}[?]"):
        deepspeed_config(TrainConfig(out="out", deepspeed=typed), CPU)


def test_a_batch_is_cut_into_equal_counts_of_micro_batches():
    made = settings(2, gradient_clipping=1.0)
    assert made["gradient_accumulation_steps"] * made["train_micro_batch_size_per_gpu"] * 2 == 256


def test_a_key_of_the_precision_leaves_it_enabled():
    made = settings(1, precision="bf16", bf16={"immediate_grad_update": True})
    assert made["bf16"] == {"enabled": True, "immediate_grad_update": True}


@pytest.mark.parametrize(
    ("environment", "ranks"),
    [
        ({"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, 8),  # torchrun
        ({"WORLD_SIZE": "16", "LOCAL_SIZE": "4"}, 4),  # deepspeed
        ({"WORLD_SIZE": "2"}, 2),
    ],
)
def test_the_ranks_of_a_node_share_its_cores(environment, ranks, monkeypatch):
    for name in ("LOCAL_WORLD_SIZE", "LOCAL_SIZE", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert ranks_of_this_node() == ranks
