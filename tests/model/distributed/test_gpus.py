"""Promised GPUs that cannot be used end a command instead of moving its work to the CPU."""

import os
import shlex

import pytest
import torch

from model.distributed import gpus
from pipeline.common import cores
from pipeline.errors import ConfigError
from tests.support import forked
from tests.support.refusals import refused


@pytest.fixture(autouse=True)
def hidden():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")


@pytest.mark.parametrize("promised", [None, "", "0"])
def test_without_a_promise_the_cpu_is_right(monkeypatch, promised):
    monkeypatch.delenv("BERT_GPUS", raising=False)
    if promised is not None:
        monkeypatch.setenv("BERT_GPUS", promised)
    gpus.require_gpus()


def test_promised_gpus_without_cuda_are_the_users_to_look_at(monkeypatch):
    monkeypatch.setenv("BERT_GPUS", "8")
    with refused(ConfigError, key="BERT_GPUS") as caught:
        gpus.require_gpus()
    assert gpus.reason() in str(caught.value)


def test_a_rank_without_a_gpu_of_its_own_is_refused(monkeypatch):
    monkeypatch.setenv("BERT_GPUS", "2")
    for name, value in {"is_available": True, "device_count": 2, "set_device": None}.items():
        monkeypatch.setattr(torch.cuda, name, lambda *_, value=value: value)
    monkeypatch.setenv("LOCAL_RANK", "1")
    assert gpus.device_of_rank() == torch.device("cuda", 1)
    monkeypatch.setenv("LOCAL_RANK", "2")
    with refused(ConfigError, key="processes"):
        gpus.device_of_rank()


def test_the_driver_that_a_build_needs_is_named(monkeypatch):
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    assert "580" in gpus.how_to_use()


def test_a_node_whose_driver_is_too_old_is_refused_with_the_one_that_is_needed(monkeypatch, tmp_path):
    monkeypatch.delenv("BERT_GPUS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(cores, "NVIDIA", tmp_path / "nvidiactl")
    gpus.require_gpus()  # no driver: no GPU
    cores.NVIDIA.touch()
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with refused(ConfigError, key="BERT_GPUS") as caught:
        gpus.require_gpus()
    assert "580" in str(caught.value)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    gpus.require_gpus()


def test_training_joins_no_group_without_them(monkeypatch):
    from model.distributed.rank_card import RankCard
    from model.training import engine

    monkeypatch.setenv("BERT_GPUS", "2")
    card = RankCard(run="r", out="o", host="h", world=1, fingerprint="f", versions={}, settings={}, code={})
    with refused(ConfigError, key="BERT_GPUS"):
        engine.start_world(card, None)
    assert not torch.distributed.is_initialized()


def test_evaluation_ends_with_2(tmp_path):
    (tmp_path / "model").mkdir()
    done = forked.module(
        *shlex.split(f"pipeline.evaluate +task=sample_next workdir={tmp_path} pretrained={tmp_path}/model"),
        env={**os.environ, "BERT_GPUS": "2"},
    )
    assert done.returncode == 2, done.stderr
    assert "GPUS=2" in done.stderr
