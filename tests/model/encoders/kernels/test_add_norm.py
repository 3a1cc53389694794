"""Dropout, residual and norm in one: interpreted on a CPU, compiled for GPUs, an operator."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional as F

from model.encoders.kernels import add_norm
from model.encoders.kernels.add_norm import AddNorm

ROWS, WIDTH = 5, 8


@pytest.fixture(scope="module")
def interpreted(root: Path) -> dict:
    pytest.importorskip("triton", reason="PyTorch's builds for a CPU come without Triton")
    script = Path(__file__).with_name("interpret_add_norm.py")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=root,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("case", "limit"), [("bert fp32", 1e-5), ("modernbert fp32", 1e-5), ("bert bf16", 1e-2)])
def test_kernels_give_pytorchs_values_and_gradients(interpreted, case: str, limit: float) -> None:
    """The mask of the comparison is the forward pass's: the backward pass has drawn the same."""
    assert len(interpreted[case]) == 6
    assert max(interpreted[case].values()) < limit, interpreted[case]


def test_kernels_drop_the_share_and_no_two_rows_alike(interpreted) -> None:
    assert interpreted["dropped"] == pytest.approx(0.3, abs=0.04)  # of 1,800: 3.7 deviations
    assert interpreted["rows alike"] == 0
    assert interpreted["kept"] == pytest.approx(1 / 0.7)


@pytest.mark.parametrize("capability", [80, 90])
def test_kernels_are_compiled_for_gpus_that_are_not_here(capability: int) -> None:
    triton = pytest.importorskip("triton", reason="PyTorch's builds for a CPU come without Triton")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from model.encoders.kernels import add_norm_triton as kernels

    types = {"key": "i64", "rows": "i32", "share": "fp32", "epsilon": "fp32"}
    types |= dict.fromkeys(("mean", "rstd", "d_weight", "d_bias"), "*fp32")
    flags = {"WIDTH": 768, "BLOCK": 1024, "DROPS": True, "BIASED": True, "SUMMED": True}
    for kernel in (kernels.forward_kernel, kernels.backward_kernel):
        names = kernel.arg_names
        signature = {n: "constexpr" if n in flags else types.get(n, "*bf16") for n in names}
        constants = {(place,): flags[n] for place, n in enumerate(names) if n in flags}
        aligned = {(place,): [["tt.divisibility", 16]] for place, n in enumerate(names) if signature[n].startswith("*")}
        made = triton.compile(
            ASTSource(kernel, signature, constants, aligned),
            target=GPUTarget("cuda", capability, 32),
            options={"num_warps": kernels.warps(1024)},
        )
        assert f".target sm_{capability}" in made.asm["ptx"]
        assert made.asm["cubin"].startswith(b"\x7fELF")
        assert made.asm["ptx"].count("ld.global.v4") >= 2  # rows are read 16 bytes at a time


def inputs(dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    torch.manual_seed(0)
    shapes = (ROWS, WIDTH), (ROWS, WIDTH), (WIDTH,), (WIDTH,)
    return [torch.randn(shape, dtype=dtype, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("share", [0.0, 0.4])
def test_the_operators_gradients_are_those_of_the_same_mask(share: float) -> None:
    def run(*given: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        torch.manual_seed(7)
        return add_norm.add_norm(*given, share, 1e-6)[:2]

    assert torch.autograd.gradcheck(run, inputs(), fast_mode=True)


@pytest.mark.parametrize("biased", [True, False])
def test_the_operator_is_what_pytorch_computes(biased: bool) -> None:
    x, residual, weight, bias = inputs()
    shift = bias if biased else None
    normed, total, *_ = add_norm.add_norm(x, residual, weight, shift, 0.0, 1e-6)
    expected = F.layer_norm(x + residual, (WIDTH,), weight, shift, 1e-6)
    torch.testing.assert_close(normed, expected)
    torch.testing.assert_close(total, x + residual)
    used = [x, residual, weight, *([bias] if biased else [])]
    for one, other in zip(
        torch.autograd.grad(normed.square().sum(), used),
        torch.autograd.grad(expected.square().sum(), used),
        strict=True,
    ):
        torch.testing.assert_close(one, other)


def test_the_operator_keeps_the_promises_that_compilers_rely_on() -> None:
    found = torch.library.opcheck(add_norm.add_norm, (*inputs(torch.float32), 0.0, 1e-6))
    assert set(found.values()) == {"SUCCESS"}


def test_on_a_cpu_the_module_is_dropout_sum_and_layer_norm_with_the_same_parameters() -> None:
    x, residual, *_ = inputs(torch.float32)
    plain, ours = torch.nn.LayerNorm(WIDTH), AddNorm(WIDTH)
    assert plain.state_dict().keys() == ours.state_dict().keys()
    assert not add_norm.fits(x)
    normed, total = ours(x, residual)
    assert torch.equal(total, residual + x)
    assert torch.equal(normed, plain(residual + x))
    dropped = (ours(x, residual * 0, 0.5)[1] == 0).sum()
    assert 0 < dropped < x.numel()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_on_a_gpu_the_module_takes_the_kernels_and_gives_the_same(kind: torch.dtype) -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device here")
    rows = add_norm.FEWEST // 768 + 1
    x, residual = (torch.randn(rows, 768, device="cuda", dtype=kind) for _ in range(2))
    x.requires_grad_()
    norm = AddNorm(768).to("cuda", kind)
    assert add_norm.fits(x)
    normed, total = norm(x, residual)
    expected = F.layer_norm(x + residual, (768,), norm.weight, norm.bias)
    limit = {"atol": 1e-5, "rtol": 1e-5} if kind == torch.float32 else {"atol": 0.05, "rtol": 0.05}
    torch.testing.assert_close(normed, expected, **limit)
    upstream = torch.randn_like(x)
    gradients = (torch.autograd.grad(y, x, upstream)[0] for y in (normed, expected))
    torch.testing.assert_close(*gradients, **limit)
    _, total = norm(x, residual * 0, 0.3)
    (d_x,) = torch.autograd.grad(total, x, torch.ones_like(total))
    assert torch.equal(d_x == 0, total == 0)
    assert (total == 0).float().mean().item() == pytest.approx(0.3, abs=0.01)
