"""Part B: how fast a step is, over sizes, lengths and tokens at a time; and what it consists of."""

import gc
import itertools
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.gpu.correctness import half_of
from benchmarks.gpu.model import VOCABULARY, config_of, loss_of, make_batch, make_model, step_of
from benchmarks.gpu.rows import Rows
from model.encoders.attention import dispatch
from model.encoders.attention.backend import AttentionArgs
from model.encoders.device import has_compiler
from model.training import cost, device_peak
from model.training.device_peak import synchronize

MARKS = {"base": 0.38, "large": 0.43}  # MFU that one H100 should reach in bf16


def run(rows: Rows, device: torch.device, small: bool) -> None:
    """Measure products, attention, then steps: the largest micro-batches first."""
    half = half_of(device)
    peak = device_peak.tflops(device, "bf16" if device.type == "cuda" else "fp32")
    rows.add("peak", published=peak, measured=device_peak.measure_peak(device, half))
    for entries in (VOCABULARY, -(-VOCABULARY // 64) * 64):
        rows.attempt(f"decoder product, {entries} entries", product, device, half, entries, small)
    for length in (128, 512):
        for backend in ("flash", "padded"):
            tokens = 512 if small else 32768
            name = f"attention {backend}, {length}"
            rows.attempt(name, one_attention, device, half, backend, length, tokens)
    sizes = ("tiny",) if small else ("base", "large")
    amounts = (256, 512) if small else (65536, 32768, 16384, 8192, 4096)
    compilable = has_compiler() and not small
    for size, length, tokens in itertools.product(sizes, (128, 512), amounts):
        for compiled in (False, True):
            name = f"step {size}, {length}, {tokens} tokens, {'compiled' if compiled else 'plain'}"
            if compiled and not compilable:
                rows.skip(name, "no C compiler" if not small else "small")
                continue
            rows.attempt(name, one_step, device, size, length, tokens, compiled, peak, small)
            gc.collect()
            if device.type == "cuda":
                torch.cuda.empty_cache()
    if device.type == "cuda":
        rows.attempt("kernels of a step", kernels, device)
    else:
        rows.skip("kernels of a step", "no GPU")


def timed(work: Callable[[], Any], device: torch.device, repeats: int) -> float:
    """Return the seconds of one call: the best third of some, warmed up."""
    for _ in range(3):
        work()
    spent = []
    for _ in range(repeats):
        synchronize(device)
        began = time.perf_counter()
        work()
        synchronize(device)
        spent.append(time.perf_counter() - began)
    return sorted(spent)[len(spent) // 3]


def product(device: torch.device, kind: torch.dtype, entries: int, small: bool) -> dict[str, Any]:
    """Time the product of hidden states and the vocabulary."""
    rows, hidden = (64, 128) if small else (8192, 768)
    x = torch.randn(rows, hidden, device=device, dtype=kind)
    words = torch.randn(entries, hidden, device=device, dtype=kind)
    seconds = timed(lambda: torch.nn.functional.linear(x, words), device, 10)
    return {"tflops": 2 * rows * hidden * entries / seconds / 1e12, "seconds": seconds}


def one_attention(device: torch.device, kind: torch.dtype, backend: str, length: int, tokens: int) -> dict[str, Any]:
    """Time attention of a layer of base, forward and backward, dropout 0.1."""
    batch = make_batch(tokens, length).to(device)
    shape = (3, len(batch.input_ids), 12, 64)
    q, k, v = torch.randn(shape, device=device, dtype=kind).requires_grad_().unbind()
    upstream = torch.randn_like(q)

    def work() -> None:
        mixed = dispatch.attend(q, k, v, backend, AttentionArgs(batch.cu_seqlens, batch.max_length, 0.1))
        torch.autograd.grad(mixed, (q, k, v), upstream)

    return {"seconds": timed(work, device, 5), "tokens": len(batch.input_ids)}


def one_step(
    device: torch.device, size: str, length: int, tokens: int, compiled: bool, peak: float, small: bool
) -> dict[str, Any]:
    """Time forward, backward and a fused AdamW update, over batches of three sizes."""
    config = config_of(size, length)
    model = make_model(config, device, half_of(device))
    if compiled:
        model.encoder.compile_layers(device, half_of(device))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batches = [make_batch(tokens * n // 100, length, n).to(device) for n in (90, 100, 95)]
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)

    step = step_of(optimizer, partial(loss_of, model))
    seconds = timed(lambda: [step(batch) for batch in batches], device, 1 if small else 5)
    lengths = [one for batch in batches for one in batch.cu_seqlens.diff().tolist()]
    mfu = cost.flops(config, lengths) / seconds / (peak * 1e12)
    figures = {
        "tokens_per_second": sum(lengths) / seconds,
        "mfu": mfu,
        "seconds": seconds / len(batches),
        "memory_gib": device_peak.memory(device),
    }
    return figures | ({"mark": MARKS[size]} if size in MARKS else {})


def kernels(device: torch.device) -> dict[str, Any]:
    """Profile one step of base: the kernels that take most, and the share of time they take."""
    model = make_model(config_of("base", 128), device, torch.bfloat16)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    batch = make_batch(32768, 128).to(device)

    step = step_of(optimizer, partial(loss_of, model))
    seconds = timed(lambda: step(batch), device, 5)
    activities = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=activities) as profile:
        step(batch)
        synchronize(device)
    spent = sorted(profile.key_averages(), key=lambda event: -event.self_device_time_total)
    busy = sum(event.self_device_time_total for event in spent) / 1e6
    return {
        "seconds": seconds,
        "busy_share": busy / seconds,
        "kernels": [[event.key[:80], round(event.self_device_time_total)] for event in spent[:40]],
    }
