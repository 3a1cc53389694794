"""Count where the host would wait for a GPU, on any machine.

An operation that hands a value of the device to Python, or whose result has a size that only the
device knows, makes the host wait until the device has caught up; so does a tensor made from Python
numbers on the device. They are counted as they are dispatched, so that a CPU is enough to find
them. What is in host memory on purpose is read through numpy, which refuses a tensor of a device
and is not counted; what is made of numpy's arrays by `device_copy.send` is not either, but its copy
is, where it waits: the device may be `meta`.
"""

import traceback
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

# By the name of the operator without its overload.
READS = {
    "aten::_local_scalar_dense",
    "aten::is_nonzero",
    "aten::equal",
    "aten::nonzero",
    "aten::masked_select",
    "aten::_unique2",
    "aten::unique_consecutive",
    "aten::unique_dim",
}
MAKES = {"aten::lift_fresh"}  # torch.tensor(...) of Python numbers
ON_THE_HOST = ("device_copy.py", "send")  # file and function that make what is to be copied
INDEXES = {"aten::index", "aten::index_put", "aten::index_put_", "aten::_index_put_impl_"}


class HostWaits(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts while active: `counts` by operator, `places` by the innermost line outside PyTorch."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.counts: Counter[str] = Counter()
        self.places: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        """Run the operation, and count it if it waits."""
        kwargs = kwargs or {}
        name = func._schema.name
        if waits(name, args, kwargs):
            self.note(name)
        return func(*args, **kwargs)

    def note(self, name: str) -> None:
        """Count one wait by its name and place."""
        frames = [f for f in traceback.extract_stack() if "/torch/" not in f.filename]
        caller = next(f for f in reversed(frames) if f.filename != __file__)
        if name in MAKES and (Path(caller.filename).name, caller.name) == ON_THE_HOST:
            return
        self.counts[name] += 1
        self.places[f"{caller.filename}:{caller.lineno} {caller.name}"] += 1

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.counts.values())


def waits(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether an operation makes the host wait for the device."""
    if name in READS or name in MAKES:
        return True
    if name in INDEXES:
        return any(isinstance(index, torch.Tensor) and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    if name == "aten::repeat_interleave":
        return kwargs.get("output_size") is None
    if name == "aten::copy_":
        return bool(args[0].device != args[1].device) and not kwargs.get("non_blocking", False)
    if name == "aten::_to_copy":
        device = kwargs.get("device")
        moved = device is not None and torch.device(device) != args[0].device
        return moved and not kwargs.get("non_blocking", False)
    return False


def warned(step: Callable[[], None]) -> list[str]:
    """Return where PyTorch warns of a wait for the GPU during `step`, as FILE:LINE."""
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    return [f"{one.filename}:{one.lineno}" for one in found if "synchroniz" in str(one.message)]
