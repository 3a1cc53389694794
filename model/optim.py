"""The optimizer and the learning rate over the steps."""

import math

import torch
from torch import nn

from model.config import OptimizerConfig, ScheduleConfig
from model.lamb import Lamb


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Two groups: matrices decay, biases and layer norms do not (Devlin et al.'s optimizer).

    Nor do these have trust ratios under LAMB, which `adapt` says.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay, "adapt": True},
        {"params": vectors, "weight_decay": 0.0, "adapt": False},
    ]


def build_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW or LAMB on the module's parameters; neither needs a compiler at start-up."""
    groups = parameter_groups(module, config.weight_decay)
    rate, epsilon = config.learning_rate, config.epsilon
    betas = (config.betas[0], config.betas[1])
    if config.name == "lamb":
        return Lamb(groups, lr=rate, betas=betas, eps=epsilon)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)


def warmup_steps(config: ScheduleConfig, steps: int) -> int:
    """Updates until the peak."""
    return max(1, round(config.warmup_share * steps))


def rate_share(config: ScheduleConfig, step: int, steps: int) -> float:
    """The share of the peak learning rate that update `step` (from 0) of `steps` uses."""
    warmup = warmup_steps(config, steps)
    if step < warmup:
        return (step + 1) / warmup
    progress = min(1.0, (step - warmup) / max(1, steps - warmup))
    if config.name == "constant":
        return 1.0
    cosine = (1 + math.cos(math.pi * progress)) / 2
    left = cosine if config.name == "cosine" else 1 - progress
    return config.final_share + (1 - config.final_share) * left
