"""What Muon's step costs for the matrices of an encoder, next to PyTorch's and the published loop.

    python -m benchmarks.model.muon --size mini

One thread, a step on random gradients; processor time of each process, the least of some rounds in
turn. `torch.optim.Muon` iterates in bf16, which a CPU without such instructions emulates; the
published loop is Jordan's in fp32. Both compute all matrices in every process. At ZeRO stage 0 ours
shares them among the processes.
"""

import argparse
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.distributed as dist
from torch import Tensor, nn

from benchmarks.model.train_worker import model_config
from benchmarks.shared import heading, timed
from model.encoders.architectures import build_model
from model.optim.muon import COEFFICIENTS, ITERATIONS, orthogonalise_whole

ROUNDS = 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", default="mini", help="a name of conf/model")
    parser.add_argument("--processes", type=int, default=2, help="of the last line")
    options = parser.parse_args()
    torch.set_num_threads(1)
    gradients = matrices_of(options.size)
    steps = {"torch.optim.Muon": peer(gradients), "published loop, fp32": lambda: loop(gradients)}
    steps["ours"] = lambda: ours(gradients)
    steps["ours, bf16"] = lambda: ours(gradients, bf16=True)
    seconds = {name: float("inf") for name in steps}
    for _ in range(ROUNDS):
        for name, step in steps.items():
            seconds[name] = min(seconds[name], processor_time(step))
    name = f"ours, each of {options.processes} processes"
    seconds[name] = shared(options.size, options.processes)
    print(heading(" | ms of processor time | times ours"))
    for name, value in seconds.items():
        print(f"| {name} | {1e3 * value:.0f} | {value / seconds['ours']:.2f} |")


def matrices_of(size: str) -> list[Tensor]:
    """Return a random gradient of each matrix of the layers."""
    draws = torch.Generator().manual_seed(0)
    options = argparse.Namespace(size=size, length=128, dropout=0.0, attention="auto")
    layers = build_model(model_config(options)).encoder.layers
    return [torch.randn(p.shape, generator=draws) for p in layers.parameters() if p.dim() == 2]


def peer(gradients: list[Tensor]) -> Callable[[], object]:
    """Return a step of PyTorch's optimizer."""
    parameters = [nn.Parameter(torch.zeros_like(gradient)) for gradient in gradients]
    for parameter, gradient in zip(parameters, gradients, strict=True):
        parameter.grad = gradient
    return torch.optim.Muon(parameters).step


def loop(gradients: list[Tensor]) -> None:
    """Orthogonalise each matrix as published, in fp32."""
    a, b, c = COEFFICIENTS
    for gradient in gradients:
        x = gradient.T if gradient.size(0) > gradient.size(1) else gradient
        x = x / (x.norm() + 1e-7)
        for _ in range(ITERATIONS):
            square = x @ x.T
            x = torch.addmm(x, torch.addmm(square, square, square, beta=b, alpha=c), x, beta=a)


def ours(gradients: list[Tensor], bf16: bool = False) -> None:
    """Orthogonalise copies of the matrices, together with the other processes if there are any."""
    orthogonalise_whole([gradient.clone() for gradient in gradients], bf16)


def shared(size: str, processes: int) -> float:
    """Return the processor time of the busiest of some processes that share the matrices."""
    context = multiprocessing.get_context("spawn")
    with TemporaryDirectory() as folder, context.Pool(processes) as pool:
        jobs = [(size, Path(folder) / "store", rank, processes) for rank in range(processes)]
        return max(pool.starmap(one_of, jobs, chunksize=1))


def one_of(size: str, store: Path, rank: int, world: int) -> float:
    """Return the processor time of one of the processes."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
    gradients = matrices_of(size)
    seconds = min(processor_time(lambda: ours(gradients)) for _ in range(ROUNDS))
    dist.destroy_process_group()
    return seconds


def processor_time(step: Callable[[], object]) -> float:
    """Return the seconds that a step takes after one that warms up."""
    step()
    return timed(step)[1]


if __name__ == "__main__":
    main()
