"""Batches come to the device ahead of their use; on a CPU they stay where they are."""

import dataclasses

import pytest
import torch

from model.encoders.batch import Batch
from model.loader.device_copy import Copier


def batch(tokens: int = 9) -> Batch:
    each = torch.arange(tokens)
    return Batch(each, each, each, torch.tensor([0, tokens]).int(), tokens, each[:3], each[:3], each[:1])


def test_on_a_cpu_nothing_is_copied() -> None:
    given = batch()
    copied = Copier(torch.device("cpu"))(given)
    assert copied.ready() is given
    assert copied.host is given


def test_every_tensor_of_a_batch_is_found() -> None:
    names = {one.name for one in dataclasses.fields(Batch)}
    assert batch().tensors().keys() == names - {"max_length"}


@pytest.mark.gpu
def test_on_a_gpu_a_copy_runs_beside_the_computation_and_arrives_whole() -> None:
    device = torch.device("cuda", torch.cuda.current_device())
    copy, given = Copier(device), batch(100_000)
    busy = torch.randn(4096, 4096, device=device)
    copied = copy(given)  # memory is pinned and got once
    torch.cuda.synchronize()
    for _ in range(50):
        busy = busy @ busy * 1e-4
    copied, running = copy(given), torch.cuda.Event()
    running.record()
    copied.arrived.synchronize()  # type: ignore[union-attr]
    assert not running.query()  # the products are still being computed
    for name, tensor in copied.ready().tensors().items():
        assert tensor.device == device
        assert torch.equal(tensor.cpu(), getattr(given, name))
