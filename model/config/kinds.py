"""Types that many modules name."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

Json = dict[str, Any]  # an object
Figures = dict[str, float]  # metrics by name
Weights = dict[str, "Tensor"]  # by the names of parameters
