"""Muon: momentum whose matrices are orthogonalised, over all ranks together."""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.optim.adamw import adamw

from model.optim.partitioned_adam import Group, PartitionedAdam, Step
from model.optim.zero_layout import Layout, TensorList, chunk_by_numel, pieces_of

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of a quintic that is steep at zero
ITERATIONS = 5
AT_ONCE = 2**26  # elements of matrices that ranks exchange, or a GPU iterates, at a time
IN_CACHE = 2**19  # that a CPU iterates at a time
MOMENTUM = "momentum"


class Muon(PartitionedAdam):
    """Muon for groups with the one moment `momentum`, AdamW for the others.

    Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", with their
    coefficients and scale: Nesterov momentum, five Newton-Schulz iterations, and a factor of
    sqrt(rows / columns) where above one. Only matrices of hidden layers are updated so; embeddings,
    heads and vectors by AdamW, whose learning rate is `rate_share` of Muon's. With `bf16`, matrices
    are iterated in that precision, as published; all that is kept stays in fp32.
    """

    def __init__(self, groups: list[Group], lr: float, betas: tuple[float, float], eps: float, bf16: bool):
        super().__init__(groups, lr, betas, eps)
        self.bf16 = bf16

    def _step_group(self, step: Step) -> None:
        """Update the parameters of a group by Muon or AdamW."""
        parameters, gradients, states, group = step
        if group["moments"] == (MOMENTUM,):
            super()._step_group(step)
            return
        beta1, beta2 = group["betas"]
        # A fused step on a GPU would wait for the numbers of the steps, in host memory.
        fused = parameters[0].device.type == "cpu"
        adamw(
            parameters,
            gradients,
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],  # no greatest second moments
            [state["step"] for state in states],
            fused=fused,
            foreach=not fused,
            amsgrad=False,
            maximize=False,
            lr=group["lr"] * group["rate_share"],
            beta1=beta1,
            beta2=beta2,
            eps=group["eps"],
            weight_decay=group["weight_decay"],
        )

    def _updates(self, step: Step) -> TensorList:
        """Update the momentum of matrices; return Nesterov's."""
        for state in step.states:
            state["step"] += 1
        momenta, rate = [state[MOMENTUM] for state in step.states], step.group["momentum"]
        torch._foreach_lerp_(momenta, step.gradients, 1 - rate)
        return list(torch._foreach_lerp(step.gradients, momenta, rate))

    def _scale(self, step: Step, updates: TensorList) -> None:
        """Orthogonalise the updates of whole matrices and add the decay, in place."""
        if self.partitions:
            for parameter, update in zip(step.parameters, updates, strict=True):
                orthogonalise_pieces(update, self.partitions[parameter], self.bf16)
        else:
            orthogonalise_whole(updates, self.bf16)
        torch._foreach_add_(updates, step.parameters, alpha=step.group["weight_decay"])


def orthogonalise(matrices: TensorList, bf16: bool, device: torch.device) -> None:
    """Orthogonalise matrices in place, on a device: those of one shape together, or a GPU waits for the host."""
    shapes: dict[torch.Size, TensorList] = {}
    for matrix in matrices:
        shapes.setdefault(matrix.shape, []).append(matrix)
    most = AT_ONCE if device.type == "cuda" else IN_CACHE
    for same in shapes.values():
        for first, last in chunk_by_numel([matrix.numel() for matrix in same], most):
            batch = orthogonal(torch.stack(same[first:last]).to(device), bf16)
            torch._foreach_copy_(same[first:last], list(batch.unbind()))


def orthogonal(matrices: Tensor, bf16: bool = False) -> Tensor:
    """Return about U V^T for each matrix U S V^T of `(N, R, C)`, times sqrt(R / C) where R > C.

    With `bf16` they are iterated in that precision.
    """
    rows, columns = matrices.shape[1:]
    x: Tensor = matrices.mT if rows > columns else matrices
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    fewer = max(rows, columns) > 1.5 * min(rows, columns)  # operations with the Gram matrix alone
    if bf16:
        x = iterated(x.bfloat16()).to(matrices.dtype)
    else:
        exact = torch.get_float32_matmul_precision() == "highest"  # else factors lose bits: TF32, on a GPU
        x = iterated_gram(x) if fewer and exact else iterated(x)
    x *= max(1.0, rows / columns) ** 0.5
    return x.mT if rows > columns else x


def iterated(x: Tensor) -> Tensor:
    """Return matrices `(N, S, L)` after the Newton-Schulz iterations, in 5 (2 S^2 L + S^3) each."""
    a, b, c = COEFFICIENTS
    for _ in range(ITERATIONS):
        square = x @ x.mT
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        x = torch.baddbmm(x, polynomial, x, beta=a)
    return x


def iterated_gram(x: Tensor) -> Tensor:
    """Return the same in 2 S^2 L + 17 S^3, less where L > 1.5 S: only x x^T is iterated.

    Each iteration multiplies x by a polynomial P of x x^T. These commute, so the next x x^T is
    P x x^T P, and x itself is multiplied once, by the product of all. Sensitive to rounding: with
    factors of 10 bits after the point, as in TF32, the singular values of a matrix of 64 x 192 may
    be 1.4 times too large, with the 7 bits of bf16 several times; `iterated` keeps them in both.
    """
    a, b, c = COEFFICIENTS
    square = x @ x.mT
    product: Tensor | None = None
    for left in reversed(range(ITERATIONS)):
        polynomial = torch.baddbmm(square, square, square, beta=b, alpha=c)
        polynomial.diagonal(dim1=1, dim2=2).add_(a)
        product = polynomial if product is None else polynomial @ product
        if left:
            square = polynomial @ square @ polynomial
    assert product is not None
    return product @ x


def orthogonalise_pieces(flat: Tensor, layout: Layout, bf16: bool) -> None:
    """Orthogonalise the matrices of which a flat partition has pieces, in place.

    A rank computes those that it has whole. The others the ranks put together; each computes some
    of them, and takes its pieces back. Every rank of the layout's group must call it, even with no
    pieces.
    """
    parts = list(zip(layout.pieces, pieces_of(flat, layout), strict=True))
    local = [part.view(layout.shapes[piece.parameter]) for piece, part in parts if piece.parameter not in layout.split]
    orthogonalise(local, bf16, layout.device)
    split = sorted(layout.split)
    for first, last in chunk_by_numel([layout.shapes[number].numel() for number in split], AT_ONCE):
        shapes = [layout.shapes[number] for number in split[first:last]]
        buffer = torch.zeros(sum(shape.numel() for shape in shapes), device=layout.device)
        places = torch.split(buffer, [shape.numel() for shape in shapes])
        wholes = dict(zip(split[first:last], places, strict=True))
        pairs = [
            (part, wholes[piece.parameter][piece.offset : piece.offset + piece.size])
            for piece, part in parts
            if piece.parameter in wholes
        ]
        for part, place in pairs:
            place.copy_(part)
        dist.all_reduce(buffer, group=layout.group)
        orthogonalise_distributed(buffer, shapes, layout.group, bf16)
        for part, place in pairs:
            part.copy_(place)


def orthogonalise_whole(matrices: TensorList, bf16: bool) -> None:
    """Orthogonalise the same matrices on every rank, in place: each rank computes some of them."""
    if not dist.is_initialized() or dist.get_world_size() == 1:
        orthogonalise(matrices, bf16, matrices[0].device)
        return
    for first, last in chunk_by_numel([matrix.numel() for matrix in matrices], AT_ONCE):
        portion = matrices[first:last]
        buffer = torch.cat([matrix.flatten() for matrix in portion])
        orthogonalise_distributed(buffer, [matrix.shape for matrix in portion], None, bf16)
        wholes = torch.split(buffer, [matrix.numel() for matrix in portion])
        for matrix, whole in zip(portion, wholes, strict=True):
            matrix.copy_(whole.view_as(matrix))


def orthogonalise_distributed(buffer: Tensor, shapes: list[torch.Size], group: Any, bf16: bool) -> None:
    """Orthogonalise the matrices of a buffer that every rank has, each rank some, in place."""
    rank, world = dist.get_rank(group), dist.get_world_size(group)
    wholes = torch.split(buffer, [shape.numel() for shape in shapes])
    local = [whole.view(shape) for whole, shape in zip(wholes, shapes, strict=True)][rank::world]
    orthogonalise(local, bf16, buffer.device)
    for number, whole in enumerate(wholes):
        if number % world != rank:
            whole.zero_()
    dist.all_reduce(buffer, group=group)
