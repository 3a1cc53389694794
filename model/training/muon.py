"""Muon: momentum whose matrices are orthogonalised, each as a whole.

Jordan et al. 2024, "Muon: an optimizer for hidden layers in neural networks", with their
coefficients and scale: Nesterov momentum, five Newton-Schulz iterations, and a factor of
sqrt(rows / columns) where above one. Only matrices of hidden layers are updated so; embeddings,
heads and vectors by AdamW with a learning rate of its own.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from model.training.partitioned import Layout, PartitionedAdam, pieces_of

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # of a quintic that is steep at zero
ITERATIONS = 5
AT_ONCE = 2**26  # elements of matrices that ranks exchange at a time
MOMENTUM = "momentum"


class Muon(PartitionedAdam):
    """Muon for groups with the one moment `momentum`, AdamW for the others.

    `rate_share` of an AdamW group is its learning rate's share of Muon's.
    """

    def _updates(self, parameters: list[Tensor], group: dict[str, Any]) -> list[Tensor]:
        """Update the moments; return Nesterov's momentum, or Adam's updates with decay."""
        if group["moments"] != (MOMENTUM,):
            return super()._updates(parameters, group)
        gradients = [p.grad.to(p.dtype) for p in parameters if p.grad is not None]
        states = [self._state(p) for p in parameters]
        for state in states:
            state["step"] += 1
        momenta = [state[MOMENTUM] for state in states]
        torch._foreach_lerp_(momenta, gradients, 1 - group["momentum"])
        return list(torch._foreach_lerp(gradients, momenta, group["momentum"]))

    def _state(self, parameter: Tensor) -> dict[str, Any]:
        state: dict[str, Any] = self.state[parameter]
        if not state:
            (group,) = (g for g in self.param_groups if any(p is parameter for p in g["params"]))
            state["step"] = torch.zeros(())
            state |= {key: torch.zeros_like(parameter) for key in group["moments"]}
        return state

    def _scale(
        self, parameters: list[Tensor], updates: list[Tensor], group: dict[str, Any]
    ) -> None:
        """Orthogonalise the updates of whole matrices and add the decay, in place."""
        if group["moments"] != (MOMENTUM,):
            torch._foreach_mul_(updates, group["rate_share"])
            return
        for parameter, update in zip(parameters, updates, strict=True):
            if self.partitions:
                orthogonalise_pieces(update, self.partitions[parameter])
            else:
                update.copy_(orthogonal(update))
        torch._foreach_add_(updates, parameters, alpha=group["weight_decay"])


def orthogonal(matrix: Tensor) -> Tensor:
    """Return about U V^T for a matrix U S V^T `(R, C)`, times sqrt(R / C) where R > C."""
    rows, columns = matrix.shape
    a, b, c = COEFFICIENTS
    x: Tensor = matrix.T if rows > columns else matrix
    x = x / (x.norm() + 1e-7)
    for _ in range(ITERATIONS):
        square = x @ x.T
        x = a * x + (b * square + c * square @ square) @ x
    x *= max(1.0, rows / columns) ** 0.5
    return x.T if rows > columns else x


def orthogonalise_pieces(flat: Tensor, layout: Layout) -> None:
    """Orthogonalise the matrices of which a flat partition has pieces, in place.

    The ranks put whole matrices together, each computes some of them, and takes its pieces back.
    Every rank of the layout's group must call it, even with no pieces.
    """
    rank, world = dist.get_rank(layout.group), dist.get_world_size(layout.group)
    for first, last in portions([shape.numel() for shape in layout.shapes]):
        sizes = [shape.numel() for shape in layout.shapes[first:last]]
        buffer = torch.zeros(sum(sizes), device=layout.device)
        wholes = torch.split(buffer, sizes)
        mine = [
            (part, wholes[piece.parameter - first][piece.offset : piece.offset + piece.size])
            for piece, part in zip(layout.pieces, pieces_of(flat, layout), strict=True)
            if first <= piece.parameter < last
        ]
        for part, place in mine:
            place.copy_(part)
        dist.all_reduce(buffer, group=layout.group)
        for number, whole in enumerate(wholes):
            if number % world == rank:
                matrix = whole.view(layout.shapes[first + number])
                matrix.copy_(orthogonal(matrix))
            else:
                whole.zero_()
        dist.all_reduce(buffer, group=layout.group)
        for part, place in mine:
            part.copy_(place)


def portions(sizes: list[int]) -> list[tuple[int, int]]:
    """Return ranges of matrices that together have at most AT_ONCE elements, or are one."""
    found, first, total = [], 0, 0
    for number, size in enumerate(sizes):
        if number > first and total + size > AT_ONCE:
            found.append((first, number))
            first, total = number, 0
        total += size
    return [*found, (first, len(sizes))]
