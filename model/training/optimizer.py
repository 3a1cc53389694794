"""The optimizer and its parameter groups."""

import torch
from torch import nn

from model.config import OptimizerConfig
from model.training.lamb import Lamb
from model.training.stable_adamw import StableAdamW


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return two groups: matrices with decay; biases and layer norms without (Devlin et al.).

    `adapt` enables LAMB's trust ratios, for matrices only.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay, "adapt": True},
        {"params": vectors, "weight_decay": 0.0, "adapt": False},
    ]


ADAM = ("exp_avg", "exp_avg_sq")  # first and second moment


def moment_keys(optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
    """Return the names of the tensors that an optimizer keeps per parameter, in its shape.

    An optimizer whose tensors differ from Adam's names them in an attribute `moment_keys`.
    """
    keys: tuple[str, ...] = getattr(optimizer, "moment_keys", ADAM)
    return keys


def build_optimizer(module: nn.Module, config: OptimizerConfig) -> torch.optim.Optimizer:
    """Build AdamW, StableAdamW or LAMB for the module; none needs a compiler at start-up."""
    groups = parameter_groups(module, config.weight_decay)
    rate, epsilon = config.learning_rate, config.epsilon
    betas = (config.betas[0], config.betas[1])
    if config.name == "lamb":
        return Lamb(groups, lr=rate, betas=betas, eps=epsilon)
    if config.name == "stable_adamw":
        return StableAdamW(groups, lr=rate, betas=betas, eps=epsilon)
    return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)
