"""The dynamic loss scale of fp16, which the next steps depend on."""

from typing import Any

FIELDS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")

State = dict[str, float | None]


def state_of(optimizer: Any, precision: str) -> State:
    """Return the scale and what it changes by; nothing but in fp16."""
    scaler = optimizer.loss_scaler if precision == "fp16" else None
    return {name: getattr(scaler, name) for name in FIELDS if hasattr(scaler, name)}


def restore(optimizer: Any, state: State) -> None:
    """Continue from a saved scale, if any."""
    for name, value in state.items():
        setattr(optimizer.loss_scaler, name, value)
