"""Collectives that backward goes through, under `torch.distributed.nn.functional`'s names.

The gradient of a collective is another collective, so every rank must call backward. The loss is the sum of the ranks'
losses: the gradient of `all_reduce` with `SUM` is the `all_reduce` of the gradients.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.function import Function
from ...creation.factories import empty, zeros_like
from ...runtime.errors import NotSupported
from ...runtime.tensor import Tensor
from ...shape.joining import cat, stack
from .. import collectives
from ..process_group import ProcessGroup, find_group
from ..reduce_ops import ReduceOp

__all__ = ["all_gather", "all_reduce", "all_to_all", "all_to_all_single", "broadcast", "gather", "reduce",
    "reduce_scatter", "scatter",
]  # fmt: skip


def broadcast(tensor: Tensor, src: int, group: ProcessGroup | None = None) -> Tensor:
    """Return the tensor of rank `src` on every rank. Its gradient is the sum of the ranks' gradients.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        src: Global rank of the source.
        group: The group; default: all ranks.

    Returns:
        Tensor of the same shape.

    Example:
        >>> x = wg.ones(3, requires_grad=True)
        >>> y = wg.distributed.nn.functional.broadcast(x, 0)  # doctest: +SKIP
    """
    return _Broadcast.apply(tensor, src, group)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """Return the elementwise reduction of the ranks' tensors.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        op: `SUM` or `AVG`; other reductions have no gradient here.
        group: The group; default: all ranks.

    Returns:
        Tensor of the same shape.

    Raises:
        NotSupported: Another reduction and a tensor that requires grad.

    Example:
        >>> x = wg.ones(3, requires_grad=True)
        >>> y = wg.distributed.nn.functional.all_reduce(x)  # doctest: +SKIP
    """
    _check_linear("all_reduce", op, tensor)
    return _AllReduce.apply(tensor, op, group)


def reduce(tensor: Tensor, dst: int, op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None) -> Tensor:
    """Return the reduction on rank `dst`; other ranks get their tensor back, without a gradient.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        dst: Global rank that gets the result.
        op: `SUM` or `AVG`; other reductions have no gradient here.
        group: The group; default: all ranks.

    Returns:
        Tensor of the same shape.

    Raises:
        NotSupported: Another reduction and a tensor that requires grad.

    Example:
        >>> y = wg.distributed.nn.functional.reduce(wg.ones(3), 0)  # doctest: +SKIP
    """
    _check_linear("reduce", op, tensor)
    return _Reduce.apply(tensor, dst, op, group)


def all_gather(tensor: Tensor, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """Return the ranks' tensors, on every rank.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        group: The group; default: all ranks.

    Returns:
        A tuple with a tensor for each rank.

    Example:
        >>> parts = wg.distributed.nn.functional.all_gather(wg.ones(3))  # doctest: +SKIP
    """
    return _AllGather.apply(tensor, group).unbind(0)


def gather(tensor: Tensor, dst: int = 0, group: ProcessGroup | None = None) -> tuple[Tensor, ...]:
    """Return the ranks' tensors on rank `dst`; zeros on other ranks.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        dst: Global rank of the destination.
        group: The group; default: all ranks.

    Returns:
        A tuple with a tensor for each rank.

    Example:
        >>> parts = wg.distributed.nn.functional.gather(wg.ones(3), 0)  # doctest: +SKIP
    """
    return _Gather.apply(tensor, dst, group).unbind(0)


def scatter(tensors: Sequence[Tensor], src: int = 0, group: ProcessGroup | None = None) -> Tensor:
    """Return this rank's entry of the list that rank `src` has.

    Args:
        tensors: A tensor for each rank, of the same shapes on every rank; only those of the source are sent.
        src: Global rank of the source.
        group: The group; default: all ranks.

    Returns:
        Tensor.

    Example:
        >>> x = wg.distributed.nn.functional.scatter([wg.ones(3), wg.zeros(3)], 0)  # with 2 ranks  # doctest: +SKIP
    """
    return _Scatter.apply(stack(list(tensors)), src, group)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: ProcessGroup | None = None
) -> Tensor:
    """Return this rank's entry of the elementwise reduction of the ranks' lists.

    Args:
        output: Gives the shape; it is not written.
        input_list: A tensor for each rank, of the shape of `output`.
        op: `SUM` or `AVG`; other reductions have no gradient here.
        group: The group; default: all ranks.

    Returns:
        Tensor of the shape of `output`.

    Raises:
        NotSupported: Another reduction and a tensor that requires grad.

    Example:
        >>> x = wg.distributed.nn.functional.reduce_scatter(wg.empty(3), [wg.ones(3)] * 2)  # doctest: +SKIP
    """
    _check_linear("reduce_scatter", op, *input_list)
    return _ReduceScatter.apply(stack(list(input_list)), op, group)


def all_to_all(
    output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: ProcessGroup | None = None
) -> tuple[Tensor, ...]:
    """Return what each rank sends to this one.

    Args:
        output_tensor_list: Tensors that give the shapes of the results; they are not written.
        input_tensor_list: A tensor for each rank.
        group: The group; default: all ranks.

    Returns:
        A tuple with a tensor for each rank.

    Example:
        >>> parts = wg.distributed.nn.functional.all_to_all([wg.empty(3)] * 2, [wg.ones(3)] * 2)  # doctest: +SKIP
    """
    shapes = [tensor.shape for tensor in output_tensor_list]
    output_counts = [tensor.numel() for tensor in output_tensor_list]
    flat = cat([tensor.reshape(-1) for tensor in input_tensor_list])
    input_counts = [tensor.numel() for tensor in input_tensor_list]
    received = _AllToAll.apply(flat, output_counts, input_counts, group)
    return tuple(part.reshape(shape) for part, shape in zip(received.split(output_counts), shapes, strict=True))


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
) -> Tensor:
    """Split a tensor along dimension 0, send each rank its part, and return the concatenated parts that arrive.

    Args:
        output: Gives the number of rows of the result; it is not written.
        input: Tensor with the parts to send.
        output_split_sizes: Rows that each rank sends; None: as many from each.
        input_split_sizes: Rows for each rank; None: as many for each.
        group: The group; default: all ranks.

    Returns:
        Tensor of the shape of `output`.

    Example:
        >>> y = wg.distributed.nn.functional.all_to_all_single(wg.empty(4), wg.ones(4))  # doctest: +SKIP
    """
    if output_split_sizes is None and input_split_sizes is None:
        return _AllToAll.apply(input, None, None, group)
    size = _size(group)
    return _AllToAll.apply(
        input,
        list(output_split_sizes or [output.shape[0] // size] * size),
        list(input_split_sizes or [input.shape[0] // size] * size),
        group,
    )


def _size(group: ProcessGroup | None) -> int:
    target = find_group(group)
    return 1 if target is None else target.size()


def _check_linear(name: str, op: ReduceOp, *tensors: Tensor) -> None:
    if op not in (ReduceOp.SUM, ReduceOp.AVG) and any(tensor.requires_grad for tensor in tensors):
        raise NotSupported(f"nn.functional.{name}: ReduceOp.{op.name} has no gradient here; use SUM or AVG")


class _Broadcast(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, src: int, group: ProcessGroup | None) -> Tensor:
        ctx.src, ctx.group = src, group
        output = tensor.clone()
        collectives.broadcast(output, src, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        total = _Reduce.apply(grad, ctx.src, ReduceOp.SUM, ctx.group)
        target = find_group(ctx.group)
        is_source = target is None or target._world.rank == ctx.src
        return (total if is_source else zeros_like(grad)), None, None


class _AllReduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, op: ReduceOp, group: ProcessGroup | None) -> Tensor:
        ctx.op, ctx.group = op, group
        output = tensor.clone()
        collectives.all_reduce(output, op, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _AllReduce.apply(grad, ctx.op, ctx.group), None, None


class _Reduce(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dst: int, op: ReduceOp, group: ProcessGroup | None) -> Tensor:
        ctx.dst, ctx.op, ctx.group = dst, op, group
        output = tensor.clone()
        collectives.reduce(output, dst, op, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        result = _Broadcast.apply(grad, ctx.dst, ctx.group)
        if ctx.op is ReduceOp.AVG:
            result = result / _size(ctx.group)
        return result, None, None, None


class _AllGather(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, group: ProcessGroup | None) -> Tensor:
        ctx.group = group
        output = empty((_size(group), *tensor.shape), dtype=tensor.dtype, device=tensor.device)
        collectives.all_gather_into_tensor(output, tensor, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return _ReduceScatter.apply(grad, ReduceOp.SUM, ctx.group), None


class _ReduceScatter(Function):
    @staticmethod
    def forward(ctx: Any, stacked: Tensor, op: ReduceOp, group: ProcessGroup | None) -> Tensor:
        ctx.op, ctx.group = op, group
        output = empty(stacked.shape[1:], dtype=stacked.dtype, device=stacked.device)
        collectives.reduce_scatter_tensor(output, stacked, op, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        result = _AllGather.apply(grad, ctx.group)
        if ctx.op is ReduceOp.AVG:
            result = result / _size(ctx.group)
        return result, None, None


class _Gather(Function):
    @staticmethod
    def forward(ctx: Any, tensor: Tensor, dst: int, group: ProcessGroup | None) -> Tensor:
        ctx.dst, ctx.group = dst, group
        target = find_group(group)
        stacked = zeros_like(tensor).expand(_size(group), *tensor.shape).clone()
        is_destination = target is not None and target._world.rank == dst
        collectives.gather(tensor, list(stacked.unbind(0)) if is_destination else None, dst, group)
        return stacked

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Scatter.apply(grad, ctx.dst, ctx.group), None, None


class _Scatter(Function):
    @staticmethod
    def forward(ctx: Any, stacked: Tensor, src: int, group: ProcessGroup | None) -> Tensor:
        ctx.src, ctx.group = src, group
        target = find_group(group)
        output = empty(stacked.shape[1:], dtype=stacked.dtype, device=stacked.device)
        is_source = target is not None and target._world.rank == src
        collectives.scatter(output, list(stacked.unbind(0)) if is_source else None, src, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Gather.apply(grad, ctx.src, ctx.group), None, None


class _AllToAll(Function):
    @staticmethod
    def forward(
        ctx: Any,
        input: Tensor,
        output_rows: Sequence[int] | None,
        input_rows: Sequence[int] | None,
        group: ProcessGroup | None,
    ) -> Tensor:
        ctx.output_rows, ctx.input_rows, ctx.group = output_rows, input_rows, group
        rows = input.shape[0] if output_rows is None else sum(output_rows)
        output = empty((rows, *input.shape[1:]), dtype=input.dtype, device=input.device)
        collectives.all_to_all_single(output, input, output_rows, input_rows, group)
        return output

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        return _AllToAll.apply(grad, ctx.input_rows, ctx.output_rows, ctx.group), None, None, None
