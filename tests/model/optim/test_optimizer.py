"""Each optimizer is the published one; biases and norms do not decay."""

import copy

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

from model.config import OptimizerConfig
from model.optim.average import keep_average
from model.optim.build import build_optimizer, parameter_groups
from model.optim.gradient_buckets import buckets, in_backward_order, sizes
from model.optim.muon import orthogonal
from model.optim.zero_layout import ParamShard, flat_shards
from tests.model.conftest import printed
from tests.support import forked


def test_only_matrices_decay():
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    matrices, vectors = parameter_groups(module, 0.01)
    assert (matrices["weight_decay"], vectors["weight_decay"]) == (0.01, 0.0)
    assert [p.dim() for p in matrices["params"]] == [2, 2]
    assert [p.dim() for p in vectors["params"]] == [1, 1, 1]


def learn(module, config, gradients):
    """Update a module by the gradients of each step, in the order of its parameters."""
    optimizer = build_optimizer(module, config)
    for step in gradients:
        for parameter, gradient in zip(module.parameters(), step, strict=True):
            parameter.grad = gradient
        optimizer.step()


def lamb_reference(weights, gradients, config):
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


def test_lamb_is_the_published_algorithm():
    draws = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    nn.init.zeros_(module[2].weight)
    config = OptimizerConfig(name="lamb", learning_rate=0.1, weight_decay=0.05)
    weights = [p.detach().clone() for p in module.parameters()]
    gradients = [[torch.randn(w.shape, generator=draws) for w in weights] for _ in range(6)]
    learn(module, config, gradients)
    for parameter, right in zip(module.parameters(), lamb_reference(weights, gradients, config), strict=True):
        torch.testing.assert_close(parameter.double(), right, rtol=2e-6, atol=2e-7)


def test_lamb_leaves_alone_what_has_no_gradient():
    module = nn.Linear(3, 4)
    before = module.weight.detach().clone()
    module.weight.grad = torch.zeros(4, 3)
    module.bias.grad = torch.ones(4)
    build_optimizer(module, OptimizerConfig(name="lamb", learning_rate=0.1, weight_decay=0.0)).step()
    assert torch.equal(module.weight, before)


def stable_reference(weights, gradients, config):
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


def test_stable_adamw_is_the_published_algorithm():
    draws = torch.Generator().manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Embedding(5, 4))
    config = OptimizerConfig(name="stable_adamw", learning_rate=0.1, weight_decay=0.05)
    weights = [p.detach().clone() for p in module.parameters()]
    sizes = (1.0, 0.1, 3.0, 100.0, 0.5, 1.0)  # some gradients come as a shock
    gradients = [[size * torch.randn(w.shape, generator=draws) for w in weights] for size in sizes]
    learn(module, config, gradients)
    learnt, clipped = stable_reference(weights, gradients, config)
    assert 5 <= clipped < 6 * len(weights)
    for parameter, right in zip(module.parameters(), learnt, strict=True):
        torch.testing.assert_close(parameter.double(), right, rtol=2e-6, atol=2e-6)


def muon_reference(weight, gradients, rate, decay, beta=0.95):
    """Jordan et al. 2024, their published loop over one matrix, in float64."""
    x, momentum = weight.double().clone(), torch.zeros_like(weight, dtype=torch.float64)
    for gradient in gradients:
        momentum = beta * momentum + (1 - beta) * gradient.double()
        update = (1 - beta) * gradient.double() + beta * momentum
        x = x * (1 - rate * decay) - rate * orthogonal_reference(update)
    return x


def orthogonal_reference(update):
    """Their function `zeropower_via_newtonschulz5` and its scale, in the matrix's precision."""
    turned = update.size(0) > update.size(1)
    y = update.T if turned else update
    y = y / (y.norm() + 1e-7)
    for _ in range(5):
        a = y @ y.T
        y = 3.4445 * y + (-4.7750 * a + 2.0315 * a @ a) @ y
    y = y.T if turned else y
    return torch.mul(y, max(1, update.size(0) / update.size(1)) ** 0.5)


@pytest.mark.parametrize("shape", [(32, 32), (32, 40), (96, 32), (32, 128), (128, 32), (1, 9)])
@pytest.mark.parametrize("smallest", [1.0, 1e-3, 1e-6, 0.0])
def test_matrices_of_all_shapes_are_orthogonalised_as_published(shape, smallest):
    """Also almost singular ones, of which fp32 loses the small singular values."""
    draws = torch.Generator().manual_seed(1)
    left, values, right = torch.linalg.svd(
        torch.randn(shape, generator=draws, dtype=torch.float64), full_matrices=False
    )
    matrix = left @ torch.diag(torch.linspace(1, smallest, len(values)).double()) @ right
    expected = orthogonal_reference(matrix)
    torch.testing.assert_close(orthogonal(matrix[None])[0], expected, rtol=0, atol=1e-9)
    torch.testing.assert_close(orthogonal(matrix.float()[None])[0].double(), expected, rtol=0, atol=5e-4)


class RoundedFactors(TorchDispatchMode):
    """Compute products of fp32 with the factors' 10 bits after the point of TF32, as a GPU does."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function.name() in ("aten::bmm", "aten::baddbmm"):
            args = (*args[:-2], *map(self.rounded, args[-2:]))
        return function(*args, **(kwargs or {}))

    @staticmethod
    def rounded(x):
        bits = x.contiguous().view(torch.int32)
        return ((bits + (1 << 12)) & ~((1 << 13) - 1)).view(torch.float32)


@pytest.fixture
def as_on_a_gpu():
    torch.set_float32_matmul_precision("high")
    yield
    torch.set_float32_matmul_precision("highest")


def of_falling_values(shape, decay):
    """A matrix whose singular values fall from 1 to 10^-decay."""
    torch.manual_seed(0)
    small = min(shape)
    left, right = (torch.linalg.qr(torch.randn(size, small))[0] for size in shape)
    return left * torch.logspace(0, -decay, small) @ right.T


@pytest.mark.usefixtures("as_on_a_gpu")
@pytest.mark.parametrize("shape", [(64, 192), (192, 64), (64, 64)])
@pytest.mark.parametrize("decay", [1.0, 3.0, 5.0])
def test_updates_are_orthogonal_in_the_precision_of_a_gpu(shape, decay):
    matrix = of_falling_values(shape, decay)
    exact = torch.linalg.svdvals(orthogonal(matrix.double()[None])[0])
    with RoundedFactors():
        found = torch.linalg.svdvals(orthogonal(matrix[None])[0])
    torch.testing.assert_close(found.max().double(), exact.max(), rtol=0.02, atol=0)


@pytest.mark.parametrize("shape", [(64, 192), (192, 64), (64, 64), (256, 768)])
@pytest.mark.parametrize("decay", [0.5, 1.0, 3.0])
def test_bf16_costs_an_update_less_than_as_published(shape, decay):
    matrix = of_falling_values(shape, decay)
    wanted, found = orthogonal(matrix.double()[None])[0], orthogonal(matrix[None], bf16=True)[0]
    published = orthogonal_reference(matrix.bfloat16())
    assert found.dtype == matrix.dtype
    assert (found - wanted).norm() < (published - wanted).norm() < 0.15 * wanted.norm()
    values = [torch.linalg.svdvals(each).max() for each in (found.double(), wanted)]
    torch.testing.assert_close(*values, rtol=0.02, atol=0)


def test_muon_is_the_published_algorithm_and_adamw_for_the_rest():
    draws = torch.Generator().manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 4))
    module = nn.ModuleDict({"words": nn.Embedding(9, 4), "layers": layers, "dense": nn.Linear(4, 4)})
    config = OptimizerConfig(name="muon", learning_rate=0.1, weight_decay=0.05, adam_share=0.5, epsilon=1e-10)
    other = copy.deepcopy(module)
    weights = {name: p.detach().clone() for name, p in module.named_parameters()}
    gradients = [{n: torch.randn(w.shape, generator=draws) for n, w in weights.items()}] * 4
    for one, chosen in (
        (module, config),
        (other, OptimizerConfig(name="adamw", learning_rate=0.05, weight_decay=0.05, epsilon=1e-10)),
    ):
        learn(one, chosen, [[gradient.clone() for gradient in step.values()] for step in gradients])
    by_adam = dict(other.named_parameters())
    for name, parameter in module.named_parameters():
        if name in ("layers.0.weight", "layers.1.weight"):
            steps = [step[name] for step in gradients]
            right = muon_reference(weights[name], steps, rate=0.1, decay=0.05)
            torch.testing.assert_close(parameter.double(), right, rtol=1e-4, atol=1e-5)
        else:
            torch.testing.assert_close(parameter, by_adam[name], rtol=1e-5, atol=1e-6)


def test_an_average_of_weights_is_the_mean_of_its_states():
    """The weights of an exponential mean, which sum to one from the first state on."""
    module, decay, states = nn.Linear(3, 2), 0.7, []
    optimizer = build_optimizer(module, OptimizerConfig(name="adamw", learning_rate=0.1))
    keep_average(optimizer, decay)
    draws = torch.Generator().manual_seed(0)
    for _ in range(4):
        for parameter in module.parameters():
            parameter.grad = torch.randn(parameter.shape, generator=draws)
        optimizer.step()
        states.append(module.weight.detach().double())
        shares = torch.tensor([decay**age for age in reversed(range(len(states)))])
        mean = sum(s * w for s, w in zip(shares / shares.sum(), states, strict=True))
        found = optimizer.state[module.weight]["average"]
        torch.testing.assert_close(found.double(), mean, rtol=1e-5, atol=1e-7)


# Gradients in flat buffers: what DeepSpeed's hook of each parameter does, in fewer calls.


@pytest.fixture(scope="module", params=[1, 2])
def runs(request):
    (found,) = printed(forked.module("tests.model.workers.flat_against_hooks", ranks=request.param))
    return found


@pytest.mark.slow
def test_weights_are_those_of_deepspeeds_hooks_to_the_bit(runs):
    assert len(runs) == 3
    for name, run in runs.items():
        ours, theirs = run["norms"]
        assert ours == theirs, name
        assert ours[1] == float("inf"), name
        assert run["equal"], name


@pytest.mark.slow
def test_a_backward_pass_calls_a_fraction_of_the_functions(runs):
    for name, run in runs.items():
        ours, theirs = run["calls"]
        assert ours < theirs / 4, name


def test_buckets_are_ranges_of_whole_parameters():
    group = [torch.empty(size) for size in (4, 3, 9, 1, 1, 5)]
    found = buckets(0, group, most=7)
    assert [(b.first, b.start, b.size) for b in found] == [(0, 0, 7), (2, 7, 9), (3, 16, 7)]
    assert [len(b.parameters) for b in found] == [2, 1, 3]


def test_a_bucket_that_is_full_at_the_end_holds_up_no_other():
    model = [torch.empty(size) for size in (4, 1, 3, 2, 5, 1)]
    places = {parameter: place for place, parameter in enumerate(model)}
    every = [*buckets(0, [model[1], model[3], model[5]], 9), *buckets(1, model[::2], 4)]
    found = in_backward_order(every, places)
    assert [[places[p] for p in one.parameters] for one in found] == [[4], [2], [1, 3, 5], [0]]


def test_partitions_have_all_pieces_of_parameters_once():
    group = [torch.empty(size) for size in (4, 3, 9, 0, 1)]
    assert flat_shards(group, 6, 6) == [ParamShard(1, 0, 1, 2), ParamShard(2, 1, 5, 0)]
    assert [sizes(group, start, 6) for start in (0, 6, 12, 18)] == [[4, 2], [1, 5], [4, 1, 1], [6]]
