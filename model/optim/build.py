"""The optimizers and their parameter groups."""

import torch
from torch import nn

from model.config import OptimizerConfig
from model.optim.average import AVERAGE
from model.optim.lamb import Lamb
from model.optim.muon import MOMENTUM, Muon
from model.optim.partitioned_adam import ADAM, Group
from model.optim.stable_adamw import StableAdamW


def parameter_groups(module: nn.Module, weight_decay: float) -> list[dict[str, object]]:
    """Return two groups: matrices with decay; biases and layer norms without (Devlin et al. 2019).

    `adapt` enables LAMB's trust ratios, for matrices only.
    """
    parameters = [p for p in module.parameters() if p.requires_grad]
    matrices = [p for p in parameters if p.dim() >= 2]
    vectors = [p for p in parameters if p.dim() < 2]
    return [
        {"params": matrices, "weight_decay": weight_decay, "adapt": True},
        {"params": vectors, "weight_decay": 0.0, "adapt": False},
    ]


def muon_groups(module: nn.Module, config: OptimizerConfig) -> list[dict[str, object]]:
    """Return the matrices of hidden layers, and the groups of AdamW: other matrices, vectors."""
    hidden = [
        parameter
        for name, parameter in module.named_parameters()
        if parameter.dim() == 2 and ".layers." in f".{name}" and parameter.requires_grad
    ]
    hidden_ids = {id(parameter) for parameter in hidden}
    matrices, vectors = parameter_groups(module, config.weight_decay)
    matrices["params"] = [p for p in matrices["params"] if id(p) not in hidden_ids]  # type: ignore[attr-defined]
    by_adam = {"rate_share": config.adam_share}
    return [
        {"params": hidden, "weight_decay": config.weight_decay, "moments": (MOMENTUM,), "momentum": config.momentum},
        matrices | by_adam,
        vectors | by_adam,
    ]


def moment_keys(optimizer: torch.optim.Optimizer, group: Group) -> tuple[str, ...]:
    """Return the names of the tensors that an optimizer keeps per parameter of a group.

    They have the parameter's shape. Where they differ from Adam's, the group has them as `moments`.
    """
    keys: tuple[str, ...] = group.get("moments", ADAM)
    return (*keys, AVERAGE) if hasattr(optimizer, "average_decay") else keys


def build_optimizer(module: nn.Module, config: OptimizerConfig, bf16: bool = False) -> torch.optim.Optimizer:
    """Build the configured optimizer for the module, which may be trained in bf16.

    None needs a compiler at start-up.
    """
    rate, epsilon = config.learning_rate, config.epsilon
    betas = (config.betas[0], config.betas[1])
    if config.name == "muon":
        return Muon([each for each in muon_groups(module, config) if each["params"]], rate, betas, epsilon, bf16)
    groups = parameter_groups(module, config.weight_decay)
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)
    return {"lamb": Lamb, "stable_adamw": StableAdamW}[config.name](groups, rate, betas, epsilon)
