"""One place decides which device computes, and how precise its products are."""

import pytest
import torch

from model.encoders.device import allow_tf32, device_of


@pytest.fixture(autouse=True)
def kept():
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    yield
    torch.set_float32_matmul_precision(before)


@pytest.mark.parametrize(("device", "precision"), [("cuda:1", "high"), ("cpu", "highest")])
def test_a_gpu_computes_products_of_fp32_in_tf32(device, precision):
    allow_tf32(torch.device(device))
    assert torch.get_float32_matmul_precision() == precision


def test_the_device_of_this_machine_has_its_precision():
    on_a_gpu = device_of().type == "cuda"
    assert on_a_gpu == torch.cuda.is_available()
    assert torch.get_float32_matmul_precision() == ("high" if on_a_gpu else "highest")
