"""Collectives that divide a tensor among the ranks: `scatter`, `reduce_scatter`, `reduce_scatter_tensor`."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from .. import host_collectives, nccl
from ..buffers import check_tensor
from ..process_group import ProcessGroup, find_group
from ..reduce_ops import ReduceOp, check_reduction
from ..staging import HostCopy
from ..works import Work
from .arguments import check_list, check_sizes, root_rank
from .packing import pack
from .starting import start_collective

__all__ = ["reduce_scatter", "reduce_scatter_tensor", "scatter"]

_SUM = ReduceOp.SUM


def scatter(
    tensor: Tensor,
    scatter_list: Sequence[Tensor] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Send each rank one tensor of a list that one rank has.

    Args:
        tensor: Tensor for what arrives.
        scatter_list: On the source a tensor for each rank; None elsewhere.
        src: Global rank of the source, default 0; or `group_src`.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.
        group_src: Rank of the source in the group.

    Returns:
        `Work` if `async_op`, else None.

    Example:
        >>> wg.distributed.scatter(wg.empty(2), src=0)  # on rank 1  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    check_tensor("scatter", tensor)
    root = root_rank(target, "scatter", src, group_src, default=0)
    is_source = root == target.rank()
    if is_source != bool(scatter_list):
        raise ArgumentError("scatter: the source passes scatter_list, other ranks pass none")
    buffer = None
    if is_source:
        check_list("scatter", scatter_list or (), tensor, target.size())
        buffer = pack(scatter_list or (), tensor)
    output = HostCopy(tensor, reads=False, writes=True)
    return start_collective(
        target, "scatter", [output],
        lambda mpi, comm: host_collectives.scatter_steps(mpi, comm, output.host, buffer, root),
        tensor, root=root, outputs=[tensor], async_op=async_op,
    )  # fmt: skip


def reduce_scatter_tensor(
    output: Tensor,
    input: Tensor,
    op: ReduceOp = _SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the ranks' tensors elementwise, and give each rank its part of the result.

    Args:
        output: Tensor with as many elements as `input` has for one rank. It may be this rank's part of the input.
        input: Tensor of the same shape and dtype on every rank: the parts for all ranks, concatenated or stacked.
        op: The reduction.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Raises:
        ShapeError: The input has another number of elements.
        DTypeError: The dtypes differ, or `op` is not defined for them.

    Example:
        >>> part = wg.empty(2)
        >>> wg.distributed.reduce_scatter_tensor(part, wg.ones(4))  # with 2 ranks  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    name = "reduce_scatter_tensor"
    check_sizes(name, input, output, target.size(), "input")
    op = ReduceOp(op)
    check_reduction(name, op, input.meta.dtype)
    if nccl.takes(target, input, op):
        return nccl.start(target, name, input, output, output.meta.numel, op=op, async_op=async_op)
    source = HostCopy(input, reads=True, writes=False)
    part = HostCopy(output, reads=False, writes=True)
    return start_collective(
        target, name, [source, part],
        lambda mpi, comm: host_collectives.reduce_scatter_steps(mpi, comm, part.host, source.host, op),
        input, op=op, outputs=[output], async_op=async_op,
    )  # fmt: skip


def reduce_scatter(
    output: Tensor,
    input_list: Sequence[Tensor],
    op: ReduceOp = _SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Combine the ranks' lists of tensors elementwise, and give each rank its entry of the result.

    Args:
        output: Tensor for the result.
        input_list: A tensor for each rank, of the shape and dtype of `output`.
        op: The reduction.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Example:
        >>> part = wg.empty(2)
        >>> wg.distributed.reduce_scatter(part, [wg.ones(2), wg.zeros(2)])  # with 2 ranks  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    check_tensor("reduce_scatter", output)
    check_list("reduce_scatter", input_list, output, target.size())
    op = ReduceOp(op)
    check_reduction("reduce_scatter", op, output.meta.dtype)
    buffer = pack(input_list, output)
    part = HostCopy(output, reads=False, writes=True)
    return start_collective(
        target, "reduce_scatter", [part],
        lambda mpi, comm: host_collectives.reduce_scatter_steps(mpi, comm, part.host, buffer, op),
        output, op=op, outputs=[output], async_op=async_op,
    )  # fmt: skip
