"""Schema of training: sizes, optimizer, schedule, objective, data. Does not import torch."""

from model.config.kinds import Figures, Json, Weights
from model.config.learning import ObjectiveConfig, OptimizerConfig, ScheduleConfig
from model.config.sizes import AUTO, PUBLISHED, SHAPE, ModelConfig
from model.config.training import ComputeConfig, DataConfig, TrackingConfig, TrainConfig, check_length
