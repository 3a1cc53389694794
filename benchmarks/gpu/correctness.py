"""Part A: what a GPU computes is what plain arithmetic says."""

import dataclasses
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.gpu import engines as gpu_engines
from benchmarks.gpu.model import config_of, loss_of, make_batch, make_model, step_of, without_dropout
from benchmarks.gpu.rows import Rows
from model.encoders.attention import dispatch, flash
from model.encoders.attention.backend import AttentionArgs

LENGTHS = [128, 3, 77, 1, 40]
HEADS, WIDTH = 4, 64


def run(rows: Rows, device: torch.device, small: bool) -> None:
    """Check all of it."""
    kinds = [torch.bfloat16, torch.float16] if device.type == "cuda" else [torch.float32]
    for kind in kinds:
        for causal, window in ((False, flash.FAR), (True, flash.FAR), (False, 9)):
            name = f"flash {kind}, causal {causal}, window {window}"
            rows.attempt(name, against_reference, device, kind, causal, window)
        rows.attempt(f"flash {kind}, dropout", dropout_is_consistent, device, kind)
    rows.attempt("padded fp32 against plain", padded_is_right, device)
    sizes = ("tiny",) if small else ("tiny", "base")
    for size in sizes:
        rows.attempt(f"{size}: half precision against fp32", half_against_full, device, size)
        name = f"{size}: compiled against plain"
        if small:  # minutes on a CPU, and tests count graphs there
            rows.skip(name, "small")
        else:
            rows.attempt(name, compiled_is_the_same, device, size)
    rows.attempt("waits in a step", waits_in_a_step, device)
    gpu_engines.run(rows, device, small)


def verdict(distance: float, limit: float) -> dict[str, Any]:
    """Return the figures of a comparison."""
    return {"ok": distance <= limit, "distance": distance, "limit": limit}


def inputs(device: torch.device, kind: torch.dtype) -> tuple[Any, Any, Tensor]:
    """Return queries, keys and values on the CPU in fp32 and on the device, and the bounds."""
    torch.manual_seed(0)
    shape = (sum(LENGTHS), HEADS, WIDTH)
    there = [torch.randn(shape).to(kind) for _ in range(3)]
    here = [x.float().clone().requires_grad_() for x in there]
    bounds = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return here, [x.to(device).requires_grad_() for x in there], bounds


def against_reference(device: torch.device, kind: torch.dtype, causal: bool, window: int) -> dict[str, Any]:
    """Compare outputs and gradients of the operator with the loop in fp32 on the CPU."""
    here, there, bounds = inputs(device, kind)
    seen = None if window == flash.FAR else window
    q, k, v = here
    expected = dispatch.attend(q, k, v, "each", AttentionArgs(bounds, max(LENGTHS), 0.0, causal, seen))
    how = (max(LENGTHS), 0.0, causal, window)
    found = flash.flash_attention(*there, bounds.to(device), *how)[0]
    upstream = torch.linspace(-1, 1, expected.numel()).view(expected.shape)
    expected.backward(upstream)  # type: ignore[no-untyped-call]
    found.backward(upstream.to(device, kind))
    pairs = [(found.detach(), expected.detach()), *((x.grad, y.grad) for x, y in zip(there, here, strict=True))]
    distance = max(float((a.float().cpu() - b).abs().max() / b.abs().max()) for a, b in pairs)
    return verdict(distance, 0.02)


def dropout_is_consistent(device: torch.device, kind: torch.dtype) -> dict[str, Any]:
    """Check that backward drops what forward dropped, and that the mean stays.

    The output is linear in the values: the gradient times the values is the output.
    """
    _, (q, k, v), bounds = inputs(device, kind)
    place = bounds.to(device)
    how = (max(LENGTHS), 0.3, False, flash.FAR)
    out = flash.flash_attention(q, k, v, place, *how)[0]
    upstream = torch.randn_like(out)
    out.backward(upstream)
    assert v.grad is not None
    one = (out.float() * upstream.float()).sum()
    other = (v.grad.float() * v.float()).sum()
    scale = (out.float() * upstream.float()).norm()
    with torch.no_grad():
        whole = flash.flash_attention(q, k, v, place, how[0], 0.0, *how[2:])[0].float()
        draws = 200 if device.type == "cuda" else 20
        drawn = [flash.flash_attention(q, k, v, place, *how)[0].float() for _ in range(draws)]
    drift = float((torch.stack(drawn).mean(0) - whole).norm() / whole.norm())
    distance = float((one - other).abs() / scale)
    fine = distance <= 0.5 and drift <= draws**-0.5
    return verdict(distance, 0.5) | {"ok": fine, "drift": drift}


def padded_is_right(device: torch.device) -> dict[str, Any]:
    """Compare the backend for fp32 with the loop on the CPU."""
    here, there, bounds = inputs(device, torch.float32)
    (q, k, v), (a, b, c) = here, there
    expected = dispatch.attend(q, k, v, "each", AttentionArgs(bounds, max(LENGTHS), 0.0))
    found = dispatch.attend(a, b, c, "padded", AttentionArgs(bounds.to(device), max(LENGTHS), 0.0))
    return verdict(float((found.cpu() - expected).abs().max().detach()), 2e-3)


def half_against_full(device: torch.device, size: str) -> dict[str, Any]:
    """Compare the loss and its gradient in half precision with those in fp32."""
    config = without_dropout(config_of(size, 128))
    batch = make_batch(8192 if device.type == "cuda" else 256, 128)
    found: list[tuple[float, Tensor]] = []
    for kind, how in ((torch.float32, "padded"), (half_of(device), "flash")):
        model = make_model(dataclasses.replace(config, attention=how), device, kind)
        result = loss_of(model, batch.to(device))
        result.backward()  # type: ignore[no-untyped-call]
        layer: Any = model.encoder.layers[0]
        found.append((result.item(), layer.up.weight.grad.float().cpu()))
    (loss, gradient), (other_loss, other) = found
    distance = float((gradient - other).norm() / gradient.norm())
    return verdict(distance, 0.1) | {"loss": loss, "half": other_loss}


def compiled_is_the_same(device: torch.device, size: str) -> dict[str, Any]:
    """Compare losses, and count graphs over batches of other sizes."""
    from torch._dynamo.utils import counters

    torch._dynamo.reset()
    counters.clear()
    half = half_of(device)
    config = dataclasses.replace(without_dropout(config_of(size, 128)), attention="flash")
    compiler = "inductor" if device.type == "cuda" else "aot_eager"
    plain, compiled = (make_model(config, device, half) for _ in range(2))
    compiled.encoder.compile_layers(device, half, compiler)
    distance, graphs = 0.0, []
    for number in range(12 if device.type == "cuda" else 3):
        batch = make_batch(300 + 100 * number, 128, number).to(device)
        losses = [loss_of(model, batch) for model in (plain, compiled)]
        losses[1].backward()  # type: ignore[no-untyped-call]
        distance = max(distance, abs(losses[0].item() - losses[1].item()))
        graphs.append(counters["stats"]["unique_graphs"])
    grown = graphs[-1] - graphs[0]
    return verdict(distance, 0.05) | {"ok": distance <= 0.05 and grown == 0, "graphs": graphs[-1], "recompiled": grown}


def waits_in_a_step(device: torch.device) -> dict[str, Any]:
    """Count the waits of a plain training step: by PyTorch on a GPU, by operator elsewhere."""
    from benchmarks.model.host_waits import HostWaits, warned

    model = make_model(config_of("tiny", 128, attention="flash"), device, half_of(device))
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    batch = make_batch(2048 if device.type == "cuda" else 128, 64).to(device)

    step = step_of(optimizer, partial(loss_of, model))
    step(batch)
    if device.type != "cuda":  # where dropout and the operator have loops of their own
        with HostWaits() as waits:
            optimizer.step()
        return {"ok": waits.total == 0, "waits": waits.total}
    said = len(warned(lambda: step(batch)))
    return {"ok": not said, "waits": said}


def half_of(device: torch.device) -> torch.dtype:
    """Return the type that models train in."""
    return torch.bfloat16 if device.type == "cuda" else torch.float32
