"""Types that many modules name."""

from typing import TYPE_CHECKING

from pipeline.common.foreign_json import Json as Json

if TYPE_CHECKING:
    from torch import Tensor

Figures = dict[str, float]  # metrics by name
Weights = dict[str, "Tensor"]  # by the names of parameters
