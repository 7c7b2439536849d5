"""Differentiable exchanges between tensor parallel layers: each is the other's gradient, or its own.

| function | forward | backward |
| --- | --- | --- |
| `replicate_input` | identity | all-reduce |
| `reduce_output` | all-reduce | identity |
| `gather_parts` | all-gather | this rank's part |
| `split_whole` | this rank's part | all-gather |
| `gather_sequence` | all-gather | reduce-scatter |
| `reduce_to_sequence` | reduce-scatter | all-gather |

The last two are those of sequence parallelism (Korthikanti et al. 2022, arXiv 2205.05198, section 4.2).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .... import distributed as dist
from ....autograd import Function
from ....autograd.function import once_differentiable
from ....creation.factories import empty
from ....runtime.errors import ShapeError
from ....runtime.tensor import Tensor

if TYPE_CHECKING:
    from ....autograd.function import FunctionCtx

    class _Context(FunctionCtx):
        """What backward needs."""

        dim: int
        group: Any


__all__ = ["gather_parts", "gather_sequence", "reduce_output", "reduce_to_sequence", "replicate_input", "split_whole"]


def _sum_over_ranks(tensor: Tensor, group: Any) -> Tensor:
    """Return the sum of the ranks' tensors on every rank."""
    total = tensor.detach().clone()
    dist.all_reduce(total, group=group)
    return total


def _concatenate_parts(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Return the ranks' tensors, concatenated along `dim` in the order of the ranks."""
    world_size = dist.get_world_size(group)
    front = tensor.detach().movedim(dim, 0).contiguous()
    whole = empty(world_size * front.shape[0], *front.shape[1:], dtype=front.dtype, device=front.device)
    dist.all_gather_into_tensor(whole, front, group=group)
    return whole.movedim(0, dim).contiguous()


def _own_part(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Return this rank's part of a whole tensor along `dim`."""
    world_size, rank = dist.get_world_size(group), dist.get_rank(group)
    size = _part_size(tensor, dim, world_size)
    return tensor.detach().narrow(dim, rank * size, size).contiguous()


def _part_size(tensor: Tensor, dim: int, world_size: int) -> int:
    """Return the size of each rank's part along `dim`. Raise `ShapeError` if the ranks do not divide the dimension."""
    size, rest = divmod(tensor.shape[dim], world_size)
    if rest:
        raise ShapeError(
            f"tensor parallel: dimension {dim} of shape {list(tensor.shape)} is not a multiple of {world_size} ranks"
        )
    return size


def _own_part_of_sum(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Return this rank's part along `dim` of the sum over the ranks."""
    size = _part_size(tensor, dim, dist.get_world_size(group))
    front = tensor.detach().movedim(dim, 0).contiguous()
    part = empty(size, *front.shape[1:], dtype=front.dtype, device=front.device)
    dist.reduce_scatter_tensor(part, front, group=group)
    return part.movedim(0, dim).contiguous()


class _ReplicateInput(Function):
    @staticmethod
    def forward(ctx: _Context, tensor: Tensor, group: Any) -> Tensor:
        ctx.group = group
        return tensor.view_as(tensor)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _sum_over_ranks(grad, ctx.group), None


class _ReduceOutput(Function):
    @staticmethod
    def forward(ctx: _Context, tensor: Tensor, group: Any) -> Tensor:
        return _sum_over_ranks(tensor, group)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad, None


class _GatherParts(Function):
    @staticmethod
    def forward(ctx: _Context, tensor: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _concatenate_parts(tensor, dim, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _own_part(grad, ctx.dim, ctx.group), None, None


class _SplitWhole(Function):
    @staticmethod
    def forward(ctx: _Context, tensor: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _own_part(tensor, dim, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _concatenate_parts(grad, ctx.dim, ctx.group), None, None


class _GatherSequence(Function):
    @staticmethod
    def forward(ctx: _Context, tensor: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _concatenate_parts(tensor, dim, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _own_part_of_sum(grad, ctx.dim, ctx.group), None, None


class _ReduceToSequence(Function):
    @staticmethod
    def forward(ctx: _Context, tensor: Tensor, dim: int, group: Any) -> Tensor:
        ctx.dim, ctx.group = dim, group
        return _own_part_of_sum(tensor, dim, group)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _concatenate_parts(grad, ctx.dim, ctx.group), None, None


def replicate_input(tensor: Tensor, group: Any) -> Tensor:
    """Return a tensor that all ranks have; its gradient is the sum over the ranks, which use different weights."""
    return _ReplicateInput.apply(tensor, group)


def reduce_output(tensor: Tensor, group: Any) -> Tensor:
    """Return the sum over the ranks; its gradient, equal on all ranks, is that of each summand."""
    return _ReduceOutput.apply(tensor, group)


def gather_parts(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Concatenate the ranks' parts along `dim`. All ranks must compute the same from the result."""
    return _GatherParts.apply(tensor, dim, group)


def split_whole(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Return this rank's part along `dim` of a tensor that all ranks have."""
    return _SplitWhole.apply(tensor, dim, group)


def gather_sequence(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Concatenate the ranks' parts along `dim`. Each rank uses the result with weights of its own."""
    return _GatherSequence.apply(tensor, dim, group)


def reduce_to_sequence(tensor: Tensor, dim: int, group: Any) -> Tensor:
    """Return this rank's part along `dim` of the sum over the ranks."""
    return _ReduceToSequence.apply(tensor, dim, group)
