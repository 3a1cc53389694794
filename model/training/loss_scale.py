"""The dynamic loss scale of fp16, which the next steps depend on."""

from typing import Any

FIELDS = ("cur_scale", "cur_iter", "last_overflow_iter", "cur_hysteresis")

State = dict[str, float | None]


def _scaler(optimizer: Any) -> Any:
    """Return the object of DeepSpeed that has the scale; ZeRO stages differ in its name."""
    return getattr(optimizer, "loss_scaler", getattr(optimizer, "loss_scale_config", None))


def state_of(optimizer: Any, precision: str) -> State:
    """Return the scale and what it changes by; nothing but in fp16."""
    scaler = _scaler(optimizer) if precision == "fp16" else None
    return {name: getattr(scaler, name) for name in FIELDS if hasattr(scaler, name)}


def restore(optimizer: Any, state: State) -> None:
    """Continue from a saved scale, if any; of another ZeRO stage's what this one has."""
    scaler = _scaler(optimizer)
    for name, value in state.items():
        if hasattr(scaler, name):
            setattr(scaler, name, value)
