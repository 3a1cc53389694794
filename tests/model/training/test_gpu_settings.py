"""What changes on a GPU, as far as it is decided without one."""

import dataclasses

import pytest
import torch
from omegaconf import OmegaConf

from model.config import OptimizerConfig, TrainConfig
from model.distributed.world import World
from model.encoders.architectures import build_model
from model.encoders.encoder import MaskedHead, prepare_for
from model.training import cost
from model.training.deepspeed_config import deepspeed_config
from model.training.step_metrics import losses
from pipeline.cli.conf_files import CONF
from tests.model.encoders.test_bert import VOCAB, ragged, small

STAGES = sorted(path.stem for path in (CONF / "deepspeed").glob("*.yaml"))
BUCKET = 50_000_000


def settings(stage, device, precision="bf16"):
    chosen = OmegaConf.to_container(OmegaConf.load(CONF / "deepspeed" / f"{stage}.yaml"))
    config = TrainConfig(out="out", optimizer=OptimizerConfig(name="adamw"), precision=precision, deepspeed=chosen)
    return deepspeed_config(config, World(0, 2, torch.device(device)))


@pytest.mark.parametrize("stage", [name for name in STAGES if name != "zero0"])
def test_on_gpus_gradients_are_sent_while_others_are_computed_and_nothing_is_pinned_on_a_cpu(stage):
    zero = settings(stage, "cuda")["zero_optimization"]
    assert zero["overlap_comm"] is True
    assert zero["reduce_bucket_size"] <= BUCKET
    offloads = [value for key, value in zero.items() if key.startswith("offload_")]
    assert bool(offloads) == stage.endswith("offload")
    assert all(value["pin_memory"] for value in offloads)
    zero = settings(stage, "cpu")["zero_optimization"]
    assert zero.keys() <= {"stage", "offload_optimizer", "offload_param"}
    assert not any(value.get("pin_memory") for value in zero.values() if isinstance(value, dict))


@pytest.mark.parametrize("stage", [name for name in STAGES if name != "zero0"])
def test_gradients_of_micro_batches_and_ranks_are_added_up_in_fp32(stage):
    made = settings(stage, "cuda")
    assert made["data_types"] == {"grad_accum_dtype": "fp32"}
    assert made["communication_data_type"] == "fp32"
    assert "data_types" not in settings(stage, "cpu")
    assert "data_types" not in settings(stage, "cuda", "fp32")


def test_no_timer_of_deepspeeds_waits_for_the_device():
    assert settings("zero1", "cuda")["timers"]["throughput"]["enabled"] is False


def test_made_up_entries_of_the_vocabulary_change_nothing():
    plain, filled = (make() for _ in range(2))
    prepare_for(torch.device("cuda"), torch.bfloat16, filled)
    batch = ragged([20, 31, 7])
    for model in (plain, filled):
        masked, pair, sums = losses(*model(batch), batch)
        (masked + pair).backward()
        model.sums = sums
    assert torch.allclose(plain.sums, filled.sums)
    logits = filled(batch)[0]
    assert VOCAB % 64
    assert logits.shape[1] % 64 == 0
    assert logits.softmax(-1)[:, VOCAB:].max() == 0
    state = filled.state_dict()
    assert {name: x.shape for name, x in plain.state_dict().items()} == {name: x.shape for name, x in state.items()}
    for one, other in zip(plain.parameters(), filled.parameters(), strict=True):
        torch.testing.assert_close(one.grad.to_dense(), other.grad.to_dense())


def make():
    torch.manual_seed(0)
    return build_model(dataclasses.replace(small(), dropout=0.0, attention_dropout=0.0))


def test_a_run_on_a_cpu_has_no_made_up_entries():
    heads = [part for part in make().modules() if isinstance(part, MaskedHead)]
    assert [head.multiple for head in heads] == [1]


@pytest.mark.parametrize(
    ("name", "figure"),
    [
        ("NVIDIA L40", 181.0),
        ("NVIDIA L40S", 362.0),
        ("NVIDIA L4", 121.0),
        ("NVIDIA A100-SXM4-80GB", 312.0),
        ("NVIDIA A10", 125.0),
        ("NVIDIA A10G", 70.0),
        ("NVIDIA H100 80GB HBM3", 989.4),
        ("NVIDIA H100 PCIe", 756.0),
        ("NVIDIA H200", 989.4),
        ("NVIDIA GH200 480GB", 989.4),
        ("NVIDIA RTX A1000", None),
    ],
)
def test_a_devices_peak_is_found_by_its_whole_name(name, figure):
    assert cost.published_peak(name) == figure
