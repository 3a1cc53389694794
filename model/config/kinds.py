"""Types that many modules name."""

from typing import TYPE_CHECKING

from pipeline.common.figures import Json as Json  # an object

if TYPE_CHECKING:
    from torch import Tensor

Figures = dict[str, float]  # metrics by name
Weights = dict[str, "Tensor"]  # by the names of parameters
