"""The optimizer and its parameter groups."""

from typing import Any

import torch
from torch import Tensor, nn

from model.config import OptimizerConfig
from model.training.muon import MOMENTUM, Muon
from model.training.partitioned import Layout, PartitionedAdam, multiply, on_device, pieces_of, squares, whole_sums


class Lamb(PartitionedAdam):
    """LAMB: Adam with each update scaled to the norm of its parameter.

    You et al. 2020, "Large batch optimization for deep learning: training BERT in 76 minutes",
    algorithm 2. `adapt` of a parameter group enables trust ratios for its parameters: as in the
    published code, biases and layer norms have none.
    """

    def _scale(self, parameters: list[Tensor], updates: list[Tensor], group: dict[str, Any]) -> None:
        """Scale each parameter's update by its trust ratio, |parameter| / |update|, in place."""
        if not group["adapt"]:
            return
        if not self.partitions:
            adapt(parameters, updates, None)
            return
        for parameter, update in zip(parameters, updates, strict=True):
            layout = self.partitions[parameter]
            adapt(pieces_of(parameter, layout), pieces_of(update, layout), layout)


def adapt(pieces: list[Tensor], updates: list[Tensor], layout: Layout | None) -> None:
    """Multiply `updates` by their parameters' trust ratios, in place; 1 where a norm is zero."""
    weight, update = whole_sums((squares(pieces), squares(updates)), layout).sqrt()
    multiply(updates, torch.where((weight > 0) & (update > 0), weight / update, 1.0))


class StableAdamW(PartitionedAdam):
    """AdamW with smaller updates where gradients exceed their running average.

    Wortsman et al. 2023, "Stable and low-precision training for large-scale vision-language models",
    algorithm 2 (Adafactor's update clipping), in place of gradient-norm clipping: a parameter's
    learning rate is divided by the root mean square of g / sqrt(v) over its elements, where that is
    above one. It includes biases and layer norms.
    """

    def _scale(self, parameters: list[Tensor], updates: list[Tensor], group: dict[str, Any]) -> None:
        """Divide each parameter's update by the RMS of its ratios where above one, in place."""
        ratios = self._ratios(parameters, group)
        if not self.partitions:
            clip(ratios, updates, None)
            return
        for parameter, ratio, update in zip(parameters, ratios, updates, strict=True):
            layout = self.partitions[parameter]
            clip(pieces_of(ratio, layout), pieces_of(update, layout), layout)

    def _ratios(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Return g / sqrt(v) per element, v bias-corrected and at least epsilon^2."""
        beta2, states = group["betas"][1], [self.state[p] for p in parameters]
        size = torch._foreach_sqrt([state["exp_avg_sq"] for state in states])
        torch._foreach_div_(size, (1 - beta2 ** int(states[0]["step"].numpy())) ** 0.5)
        torch._foreach_clamp_min_(size, group["eps"])
        gradients = [p.grad.to(p.dtype) for p in parameters if p.grad is not None]
        return list(torch._foreach_div(gradients, size))


def clip(ratios: list[Tensor], updates: list[Tensor], layout: Layout | None) -> None:
    """Divide `updates` by the RMS of their parameters' ratios where it is above one, in place."""
    found = squares(ratios)
    counts = on_device(tuple(ratio.numel() for ratio in ratios), found.device).float()
    total, count = whole_sums((found, counts), layout)
    multiply(updates, 1 / (total / count).sqrt().clamp_min(1.0))


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
        parameter for name, parameter in module.named_parameters() if parameter.dim() == 2 and ".layers." in f".{name}"
    ]
    known = {id(parameter) for parameter in hidden}
    matrices, vectors = parameter_groups(module, config.weight_decay)
    matrices["params"] = [p for p in matrices["params"] if id(p) not in known]  # type: ignore[attr-defined]
    by_adam = {"moments": ADAM, "rate_share": config.adam_share}
    return [
        {"params": hidden, "weight_decay": config.weight_decay, "moments": (MOMENTUM,), "momentum": config.momentum},
        matrices | by_adam,
        vectors | by_adam,
    ]


ADAM = ("exp_avg", "exp_avg_sq")  # first and second moment
AVERAGE = "average"  # of the weights, an optimizer's moment like the others


def moment_keys(optimizer: torch.optim.Optimizer, group: dict[str, Any]) -> tuple[str, ...]:
    """Return the names of the tensors that an optimizer keeps per parameter of a group.

    They have the parameter's shape. Where they differ from Adam's, the group has them as `moments`
    or the optimizer in an attribute `moment_keys`.
    """
    keys: tuple[str, ...] = group.get("moments", getattr(optimizer, "moment_keys", ADAM))
    return (*keys, AVERAGE) if hasattr(optimizer, "average_decay") else keys


def build_optimizer(module: nn.Module, config: OptimizerConfig, bf16: bool = False) -> torch.optim.Optimizer:
    """Build the configured optimizer for the module, which may be trained in bf16.

    None needs a compiler at start-up.
    """
    rate, epsilon = config.learning_rate, config.epsilon
    betas = (config.betas[0], config.betas[1])
    if config.name == "muon":
        return Muon(muon_groups(module, config), rate, betas, epsilon, bf16)
    groups = parameter_groups(module, config.weight_decay)
    if config.name == "adamw":
        return torch.optim.AdamW(groups, lr=rate, betas=betas, eps=epsilon, fused=True)
    return {"lamb": Lamb, "stable_adamw": StableAdamW}[config.name](groups, rate, betas, epsilon)
