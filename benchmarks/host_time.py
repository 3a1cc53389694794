"""Count the time that the host needs to launch a training step, which a GPU waits for.

    python -m benchmarks.host_time --layers 12

It needs no GPU. The depth is that of `base` (12 layers) or `large` (24), the widths are 32 and a
micro-batch has one sequence of 32 tokens, so that nearly all of the time goes into Python, autograd
and dispatch, which launches on a GPU cost as well. CPU seconds of one thread are counted, so that
other work on the machine matters little; the median of some steps counts. DeepSpeed's own look at
the gradients is timed next to ours.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from model.config import ModelConfig, OptimizerConfig, TrainConfig
from model.encoders import flash
from model.encoders.architectures import build_model
from model.encoders.batch import Batch
from model.resilience import rank_card
from model.training import deepspeed_engine, gradient_sums
from model.training.step_metrics import losses

WIDTH, TOKENS, VOCABULARY = 32, 32, 64


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    torch.set_num_threads(1)
    rows: list[tuple[str, float]] = []
    rows += plain(options.layers, options.steps)
    rows += engine(options.layers, options.steps, ours=False)
    rows += engine(options.layers, options.steps, ours=True)
    rows += attention(options.steps)
    print(f"\n| {options.layers} layers | ms of CPU time |\n|---|---:|")
    for name, seconds in rows:
        print(f"| {name} | {seconds * 1000:.2f} |")


def batch() -> Batch:
    """Return one sequence of random tokens."""
    each = torch.arange(TOKENS)
    masked = torch.arange(1, TOKENS, 6)
    ids = torch.randint(5, VOCABULARY, (TOKENS,))
    bounds = torch.tensor([0, TOKENS]).int()
    return Batch(
        ids, torch.zeros_like(ids), each, bounds, TOKENS, masked, ids[masked], each[:1] * 0
    )


def model(layers: int) -> Any:
    config = ModelConfig(
        name="x", layers=layers, hidden=WIDTH, heads=1, feed_forward=WIDTH, positions=TOKENS,
        vocab_size=VOCABULARY,
    )  # fmt: skip
    return build_model(config)


class Laps:
    """CPU seconds of the parts of some steps; the first two warm up."""

    def __init__(self) -> None:
        self._spent: dict[str, list[float]] = {}
        self.restart()

    def restart(self) -> None:
        """Begin a part."""
        self._began = time.process_time()

    def end(self, name: str) -> None:
        """End a part, and begin the next one."""
        self._spent.setdefault(name, []).append(time.process_time() - self._began)
        self.restart()

    def medians(self) -> list[tuple[str, float]]:
        """Return the median of each part."""
        return [(name, statistics.median(each[2:])) for name, each in self._spent.items()]


def loss_of(logits: tuple[Tensor, Tensor | None], given: Batch) -> Tensor:
    """Return the loss as training has it, with its figures."""
    masked, pair, _ = losses(*logits, given)
    return masked + pair


def plain(layers: int, steps: int) -> list[tuple[str, float]]:
    """Time the model and PyTorch's fused AdamW alone."""
    module, given, laps = model(layers), batch(), Laps()
    optimizer = torch.optim.AdamW(module.parameters(), fused=True)
    for _ in range(steps + 2):
        laps.restart()
        loss = loss_of(module(given), given)
        laps.end("forward and losses")
        loss.backward()  # type: ignore[no-untyped-call]
        laps.end("backward, PyTorch alone")
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        laps.end("step, PyTorch alone")
    return laps.medians()


def engine(layers: int, steps: int, ours: bool) -> list[tuple[str, float]]:
    """Time DeepSpeed's engine at ZeRO 1 in bf16, with its own look at gradients or with ours."""
    config = TrainConfig(
        out="", precision="bf16", batch_size=1, micro_batch=1, threads=1,
        optimizer=OptimizerConfig(name="adamw"),
        deepspeed={"zero_optimization": {"stage": 1}, **gradient_sums.FP32},  # as on a GPU
    )  # fmt: skip
    room: Any = deepspeed_engine
    kept: Callable[[Any], None] = room.look_once
    if not torch.distributed.is_initialized():
        deepspeed_engine.start_world(rank_card.describe(config, ""), 1, 600.0, 600.0)
    world = deepspeed_engine.World(0, 1, 0, torch.device("cpu"))
    if not ours:
        room.look_once = lambda wrapper: None
    try:
        made = deepspeed_engine.build_engine(model(layers), config, world)
    finally:
        room.look_once = kept
    given, laps = batch(), Laps()
    name = "one look at all gradients" if ours else "DeepSpeed's own look at them"
    for _ in range(steps + 2):
        loss = loss_of(made(given), given)
        laps.restart()
        made.backward(loss)
        laps.end(f"backward, ZeRO 1 ({name})")
        made.step()
        laps.end(f"step, ZeRO 1 ({name})")
    return laps.medians()


def attention(steps: int) -> list[tuple[str, float]]:
    """Time the launch of one layer's flash attention, forward and backward, without its kernels."""
    laps = Laps()
    made = torch.empty(3, TOKENS, 1, WIDTH, device="meta", dtype=torch.bfloat16)
    q, k, v = (x.clone().requires_grad_() for x in made.unbind())
    bounds = torch.empty(2, device="meta", dtype=torch.int32)
    for _ in range(5 * steps):
        laps.restart()
        out = flash.flash_attention(q, k, v, bounds, TOKENS, 0.1, False, flash.FAR)[0]
        laps.end("attention of one layer, forward")
        out.backward(out)
        laps.end("attention of one layer, backward")
    return laps.medians()


if __name__ == "__main__":
    main()
