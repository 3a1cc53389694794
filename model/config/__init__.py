"""Schema of training: sizes, optimizer, schedule, objective, data. Does not import torch."""

from typing import TYPE_CHECKING

from model.config.learning import ObjectiveConfig, OptimizerConfig, ScheduleConfig
from model.config.sizes import AUTO, PUBLISHED, SHAPE, ModelConfig
from model.config.training import ComputeConfig, DataConfig, TrackingConfig, TrainConfig, check_length
from pipeline.storage.strict_json import Json

if TYPE_CHECKING:
    from torch import Tensor

Metrics = dict[str, float]  # by name
Weights = dict[str, "Tensor"]  # by the names of parameters
