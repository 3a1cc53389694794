"""Layers are compiled by default on a GPU and never on a CPU."""

import pytest
import torch

from model.config import ComputeConfig, TrainConfig
from model.distributed.world import World
from model.encoders.device import has_compiler
from model.training.deepspeed_config import compiles
from pipeline.errors import ConfigError
from tests.support.refusals import refused

DEFAULT = ComputeConfig().compile


def decided(device, stage=1, compile=DEFAULT):
    config = TrainConfig(
        out="out", compute=ComputeConfig(compile=compile), deepspeed={"zero_optimization": {"stage": stage}}
    )
    return compiles(config, World(0, 1, torch.device(device)))


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
def test_the_default_is_compiled_on_a_gpu_with_a_compiler_unless_parameters_are_gathered(stage):
    assert decided("cuda", stage) is (has_compiler() and stage < 3)
    assert decided("cpu", stage) is False


def test_a_choice_is_kept():
    assert decided("cuda", compile=False) is False
    assert decided("cpu", compile=True) is True


def test_without_a_compiler_the_default_is_eager_and_the_choice_refused(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CC", raising=False)
    assert decided("cuda") is False
    with refused(ConfigError, key="compute.compile"):
        decided("cuda", compile=True)
    assert decided("cpu", compile=True) is True
