"""Count the time that the host needs to launch a training step, which a GPU waits for.

    python -m benchmarks.model.host_time --layers 12

It needs no GPU. The depth is that of `base` (12 layers) or `large` (24), the widths are 16 and a
micro-batch has one sequence of 8 tokens, so that nearly all of the time goes into Python, autograd
and dispatch, which launches on a GPU cost as well. Attention is the operator of a GPU, with kernels
that compute nothing. Compiled layers are those of a GPU too, by Inductor: what differs is that its
kernels are C++, which Python calls, instead of Triton's, each of which costs some microseconds more
to launch. The best of some steps counts, by the CPU time of one thread, so that other work on the
machine matters little; and of one more step the calls of Python functions, which do not depend on
the machine. DeepSpeed's own hook of each parameter and its own look at the gradients are timed next
to ours.
"""

import argparse
import cProfile
import pstats
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from benchmarks.shared import heading
from model.config import ModelConfig, OptimizerConfig, TrainConfig
from model.distributed import rank_card
from model.distributed.world import World
from model.encoders.architectures import build_model
from model.encoders.attention import flash
from model.encoders.batch import Batch
from model.encoders.encoder import Encoder
from model.training import engine as engines
from model.training.deepspeed_config import FP32
from model.training.step_metrics import losses

# Products of at most 4,096 multiplications do not go to oneDNN, whose set-up takes 30 microseconds.
WIDTH, TOKENS, VOCABULARY = 16, 8, 64


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=50)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows = attention(options.steps)
    compute_no_attention()
    for compiled in (False, True):
        for kind in (torch.float32, torch.bfloat16):
            rows += plain(options.layers, options.steps, kind, compiled)
        for ours in (False, True):
            rows += engine(options.layers, options.steps, ours, compiled)
    print("\n" + heading(f"{options.layers} layers | ms of CPU time | Python calls"))
    for row in rows:
        print(f"| {row.name} | {row.seconds * 1000:.2f} | {row.calls:,} |")


def batch() -> Batch:
    """Return one sequence of random tokens."""
    each = torch.arange(TOKENS)
    masked = torch.arange(1, TOKENS, 6)
    ids = torch.randint(5, VOCABULARY, (TOKENS,))
    bounds = torch.tensor([0, TOKENS]).int()
    return Batch(ids, torch.zeros_like(ids), each, bounds, TOKENS, masked, ids[masked], each[:1] * 0)


def compute_no_attention() -> None:
    """Let the operator of attention only allocate what it returns, as the launch of a kernel does.

    Models take it on this CPU, too.
    """

    def forward(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
        total = q.new_zeros((q.shape[1], q.shape[0]), dtype=torch.float32)
        return torch.zeros_like(q), total, torch.zeros(2, dtype=torch.uint64)

    def backward(_: Tensor, q: Tensor, k: Tensor, v: Tensor, *__: Any) -> tuple[Tensor, ...]:
        return q.new_zeros(q.shape), k.new_zeros(k.shape), v.new_zeros(v.shape)

    flash.flash_attention.register_kernel("cpu", forward)
    flash.flash_attention_backward.register_kernel("cpu", backward)
    Encoder.backend = lambda *_: "flash"  # type: ignore[method-assign]


def model(layers: int, kind: torch.dtype, compiled: bool) -> Any:
    config = ModelConfig(
        name="x",
        layers=layers,
        hidden=WIDTH,
        heads=1,
        feed_forward=WIDTH,
        positions=TOKENS,
        vocab_size=VOCABULARY,
        attention="flash",
    )
    made = build_model(config)
    if compiled:
        made.encoder.compile_layers(torch.device("cpu"), kind)
    return made


@dataclass
class Row:
    """A part of a step."""

    name: str
    seconds: float
    calls: int


class Laps:
    """CPU seconds of the parts of some steps, of which two warm up; of the last one, the calls."""

    def __init__(self, steps: int) -> None:
        self._left = steps + 3
        self._spent: dict[str, list[float]] = {}
        self._calls: dict[str, int] = {}
        self._profile: cProfile.Profile | None = None

    def step(self) -> bool:
        """Begin a step, and its first part; return whether there is one more."""
        self._left -= 1
        self.restart()
        return self._left >= 0

    def restart(self) -> None:
        """Begin a part."""
        if self._profile:
            self._profile.disable()
        self._profile = cProfile.Profile() if self._left == 0 else None
        self._began = time.thread_time()
        if self._profile:
            self._profile.enable()

    def end(self, name: str) -> None:
        """End a part, and begin the next one."""
        if self._profile:
            self._profile.disable()
            self._calls[name] = pstats.Stats(self._profile).total_calls  # type: ignore[attr-defined]
        else:
            self._spent.setdefault(name, []).append(time.thread_time() - self._began)
        self.restart()

    def rows(self) -> list[Row]:
        """Return the best of each part, and its calls."""
        return [Row(name, min(each[2:]), self._calls[name]) for name, each in self._spent.items()]


def loss_of(logits: tuple[Tensor, Tensor | None], given: Batch) -> Tensor:
    """Return the loss as training has it, with its figures."""
    masked, pair, _ = losses(*logits, given)
    return masked + pair


def plain(layers: int, steps: int, kind: torch.dtype, compiled: bool) -> list[Row]:
    """Time the model and PyTorch's fused AdamW alone."""
    module, given, laps = model(layers, kind, compiled).to(kind), batch(), Laps(steps)
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    name = f"PyTorch alone, {str(kind).removeprefix('torch.')}" + ", compiled" * compiled
    while laps.step():
        loss = loss_of(module(given), given)
        laps.end(f"forward and losses, {name}")
        loss.backward()  # type: ignore[no-untyped-call]
        laps.end(f"backward, {name}")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        laps.end(f"step, {name}")
    return laps.rows()


def engine(layers: int, steps: int, ours: bool, compiled: bool) -> list[Row]:
    """Time the engine at ZeRO 1 in bf16, with DeepSpeed's way of handling gradients or ours."""
    config = TrainConfig(
        out="out",
        precision="bf16",
        batch_size=1,
        micro_batch=1,
        threads=1,
        optimizer=OptimizerConfig(name="adamw"),
        deepspeed={"zero_optimization": {"stage": 1}, **FP32},  # as on a GPU
    )
    room: Any = engines
    kept: list[Callable[..., None]] = [room.fuse_grad_norm, room.install_flat_gradients]
    if not torch.distributed.is_initialized():
        engines.start_world(rank_card.describe(config, ""), 1, 600.0, 600.0)
    world = World(0, 1, torch.device("cpu"))
    if not ours:
        room.fuse_grad_norm = room.install_flat_gradients = lambda *_: None
    try:
        made = engines.Engine(model(layers, torch.bfloat16, compiled), config, world)
    finally:
        room.fuse_grad_norm, room.install_flat_gradients = kept
    given, laps = batch(), Laps(steps)
    name = "ZeRO 1, bfloat16, " + ("ours" if ours else "DeepSpeed's own") + ", compiled" * compiled
    while laps.step():
        loss = loss_of(made(given), given)
        laps.end(f"forward and losses, {name}")
        made.backward(loss)
        laps.end(f"backward, {name}")
        made.step()
        laps.end(f"step, {name}")
    return laps.rows()


def attention(steps: int) -> list[Row]:
    """Time the launch of one layer's flash attention, forward and backward, without its kernels."""
    laps = Laps(5 * steps)
    made = torch.empty(3, TOKENS, 1, WIDTH, device="meta", dtype=torch.bfloat16)
    q, k, v = (x.clone().requires_grad_() for x in made.unbind())
    bounds = torch.empty(2, device="meta", dtype=torch.int32)
    while laps.step():
        out = flash.flash_attention(q, k, v, bounds, TOKENS, 0.1, False, flash.FAR)[0]
        laps.end("attention of one layer, forward")
        out.backward(out)
        laps.end("attention of one layer, backward")
    return laps.rows()


if __name__ == "__main__":
    main()
