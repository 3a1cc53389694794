"""The type in which gradients in bf16 are added up: over micro-batches, and over ranks.

A sum of 128 numbers in bf16 is off by about 1 %, one of 1,024 by several: the small ones are lost.
In fp32 nothing of this can be seen. It costs 4 bytes for each parameter on each rank at ZeRO 1, and
twice the traffic of reductions.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from deepspeed.runtime import engine

FP32 = {"data_types": {"grad_accum_dtype": "fp32"}, "communication_data_type": "fp32"}


@contextmanager
def usual_wrapper() -> Iterator[None]:
    """Make engines at ZeRO 1 that add up bf16 in fp32 take the optimizer wrapper of all others.

    DeepSpeed 0.19.8 takes a third one there, whose partitions can be neither located nor saved. The
    usual one adds up in fp32 as well: in an attribute of each parameter.
    """
    room: Any = engine.DeepSpeedEngine
    choose = room._do_optimizer_sanity_check

    def choose_usual(made: Any, optimizer: Any) -> Any:
        return engine.ZERO_OPTIMIZATION if made.zero_optimization() else choose(made, optimizer)

    room._do_optimizer_sanity_check = choose_usual
    try:
        yield
    finally:
        room._do_optimizer_sanity_check = choose
