"""LAMB is the published one; biases and norms do not decay."""

import torch
from torch import Tensor, nn

from model.config import OptimizerConfig
from model.training.optimizer import build_optimizer, parameter_groups


def test_only_matrices_decay() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    matrices, vectors = parameter_groups(module, 0.01)
    assert matrices["weight_decay"] == 0.01
    assert vectors["weight_decay"] == 0.0
    assert [p.dim() for p in matrices["params"]] == [2, 2]  # type: ignore[attr-defined]
    assert [p.dim() for p in vectors["params"]] == [1, 1, 1]  # type: ignore[attr-defined]


def lamb_reference(
    weights: list[Tensor], gradients: list[list[Tensor]], config: OptimizerConfig
) -> list[Tensor]:
    """You et al. 2020, algorithm 2, one parameter at a time in float64."""
    (beta1, beta2), learnt = config.betas, []
    for place, weight in enumerate(weights):
        x, m, v = weight.double().clone(), torch.zeros(()), torch.zeros(())
        for step, gradient in enumerate(gradients, start=1):
            g = gradient[place].double()
            m, v = beta1 * m + (1 - beta1) * g, beta2 * v + (1 - beta2) * g * g
            update = m / (1 - beta1**step) / ((v / (1 - beta2**step)).sqrt() + config.epsilon)
            if x.dim() > 1:
                update = update + config.weight_decay * x
                sizes = x.norm(), update.norm()
                update = update * (sizes[0] / sizes[1] if min(sizes) > 0 else 1.0)
            x = x - config.learning_rate * update
        learnt.append(x)
    return learnt


def test_lamb_is_the_published_algorithm() -> None:
    draws = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    nn.init.zeros_(module[2].weight)  # type: ignore[arg-type]
    config = OptimizerConfig(name="lamb", learning_rate=0.1, weight_decay=0.05)
    weights = [p.detach().clone() for p in module.parameters()]
    gradients = [[torch.randn(w.shape, generator=draws) for w in weights] for _ in range(6)]
    optimizer = build_optimizer(module, config)
    for step in gradients:
        for parameter, gradient in zip(module.parameters(), step, strict=True):
            parameter.grad = gradient
        optimizer.step()
    for parameter, right in zip(
        module.parameters(), lamb_reference(weights, gradients, config), strict=True
    ):
        torch.testing.assert_close(parameter.double(), right, rtol=2e-6, atol=2e-7)


def stable_reference(
    weights: list[Tensor], gradients: list[list[Tensor]], config: OptimizerConfig
) -> tuple[list[Tensor], int]:
    """Wortsman et al. 2023, algorithm 2, one parameter at a time in float64; how often it clips."""
    (beta1, beta2), learnt, clipped = config.betas, [], 0
    for place, weight in enumerate(weights):
        x, m, v = weight.double().clone(), torch.zeros(()), torch.zeros(())
        decay = config.weight_decay if x.dim() > 1 else 0.0
        for step, gradient in enumerate(gradients, start=1):
            g = gradient[place].double()
            first, second = (b * (1 - b ** (step - 1)) / (1 - b**step) for b in (beta1, beta2))
            m, v = first * m + (1 - first) * g, second * v + (1 - second) * g * g
            rms = (g * g / v.clamp_min(config.epsilon**2)).mean().sqrt()
            rate = config.learning_rate / max(1.0, float(rms))
            clipped += float(rms) > 1 + 1e-6
            x = x - rate * decay * x - rate * m / (v.sqrt() + config.epsilon)
        learnt.append(x)
    return learnt, clipped


def test_stable_adamw_is_the_published_algorithm() -> None:
    draws = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    config = OptimizerConfig(name="stable_adamw", learning_rate=0.1, weight_decay=0.05)
    weights = [p.detach().clone() for p in module.parameters()]
    sizes = (1.0, 0.1, 3.0, 100.0, 0.5, 1.0)  # some gradients come as a shock
    gradients = [[size * torch.randn(w.shape, generator=draws) for w in weights] for size in sizes]
    optimizer = build_optimizer(module, config)
    for step in gradients:
        for parameter, gradient in zip(module.parameters(), step, strict=True):
            parameter.grad = gradient
        optimizer.step()
    learnt, clipped = stable_reference(weights, gradients, config)
    assert 5 <= clipped < 6 * len(weights)
    for parameter, right in zip(module.parameters(), learnt, strict=True):
        torch.testing.assert_close(parameter.double(), right, rtol=2e-6, atol=2e-6)
