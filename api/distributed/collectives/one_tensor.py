"""Collectives of one tensor of the same shape on every rank: `broadcast`, `all_reduce`, `reduce`."""

from __future__ import annotations

from functools import partial

from ...runtime.tensor import Tensor
from .. import host_collectives, nccl
from ..buffers import check_tensor, check_writable, is_direct, is_half, mark_written
from ..direct_all_reduce import direct_all_reduce_steps, is_large
from ..process_group import ProcessGroup, find_group
from ..reduce_ops import ReduceOp, check_reduction
from ..staging import HostCopy, is_pipelined
from ..works import Work
from .arguments import root_rank
from .starting import start_collective, start_pipelined

__all__ = ["all_reduce", "broadcast", "reduce"]

_SUM = ReduceOp.SUM


def broadcast(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_src: int | None = None,
) -> Work | None:
    """Copy a tensor of one rank to all ranks of the group.

    Args:
        tensor: Tensor of any shape: the data on the source, written on other ranks.
        src: Global rank of the source; or `group_src`.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.
        group_src: Rank of the source in the group.

    Returns:
        `Work` if `async_op`, else None.

    Raises:
        CollectiveMismatch: The ranks' shapes, dtypes or sources differ.

    Example:
        >>> x = wg.arange(3)
        >>> wg.distributed.broadcast(x, src=0)  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    check_tensor("broadcast", tensor)
    root = root_rank(target, "broadcast", src, group_src)
    is_source = root == target.rank()
    if nccl.takes(target, tensor):
        return nccl.start(target, "broadcast", tensor, tensor, tensor.meta.numel, root=root, async_op=async_op)
    if is_pipelined(tensor):
        return start_pipelined(
            target, "broadcast", tensor, is_source, not is_source,
            lambda comm, chunk: host_collectives.broadcast_steps(target._world.mpi, comm, chunk, root),
            root=root, async_op=async_op,
        )  # fmt: skip
    copy = HostCopy(tensor, reads=is_source, writes=not is_source)
    return start_collective(
        target, "broadcast", [copy], lambda mpi, comm: host_collectives.broadcast_steps(mpi, comm, copy.host, root),
        tensor, root=root, outputs=[tensor], async_op=async_op,
    )  # fmt: skip


def all_reduce(
    tensor: Tensor, op: ReduceOp = _SUM, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Combine the ranks' tensors elementwise, in place, with the same result on every rank.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        op: The reduction.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Raises:
        DTypeError: `op` is not defined for the dtype.
        CollectiveMismatch: The ranks' shapes, dtypes or reductions differ.

    Example:
        >>> x = wg.ones(3)
        >>> wg.distributed.all_reduce(x)  # doctest: +SKIP
        >>> x  # with 2 ranks  # doctest: +SKIP
        tensor([2., 2., 2.])
    """
    target = find_group(group)
    if target is None:
        return None
    messages = target._messages
    if messages is not None and isinstance(tensor, Tensor) and type(op) is ReduceOp:
        layout = messages.layouts[op].get(tensor.meta)
        if layout is not None:  # there was such a call before: it has passed all checks
            return target._reduce(messages, layout, tensor, async_op)
    dtype = check_tensor("all_reduce", tensor).meta.dtype
    op = ReduceOp(op)
    check_reduction("all_reduce", op, dtype)
    check_writable(tensor)
    if nccl.takes(target, tensor, op):
        return nccl.start(target, "all_reduce", tensor, tensor, tensor.meta.numel, op=op, async_op=async_op)
    is_simple = is_direct(tensor) and not is_half(dtype)
    if messages is not None and is_simple and is_large(tensor):
        return target._start(
            "all_reduce", direct_all_reduce_steps(target._world.mpi, target._serial_comm, tensor, op), dtype=dtype,
            shape=tensor.meta.shape, op=op, is_serial=True, outputs=[tensor], async_op=async_op,
        )  # fmt: skip
    is_simple = is_simple and op is not ReduceOp.AVG  # one request, without steps
    if messages is not None and (is_simple or messages.has_room(tensor.meta)):
        return target._reduce(messages, messages.add_layout(tensor.meta, op), tensor, async_op)
    if is_simple:
        mark_written(tensor)
        return target._start(
            "all_reduce", None, dtype=dtype, shape=tensor.meta.shape, op=op, outputs=[tensor], async_op=async_op,
            request=partial(host_collectives.start_all_reduce, target._world.mpi, tensor, op),
        )  # fmt: skip
    if is_pipelined(tensor):
        return start_pipelined(
            target, "all_reduce", tensor, True, True,
            lambda comm, chunk: host_collectives.all_reduce_steps(target._world.mpi, comm, chunk, op),
            op=op, async_op=async_op,
        )  # fmt: skip
    copy = HostCopy(tensor, reads=True, writes=True)
    return start_collective(
        target, "all_reduce", [copy], lambda mpi, comm: host_collectives.all_reduce_steps(mpi, comm, copy.host, op),
        tensor, op=op, chains_requests=is_half(dtype), outputs=[tensor], async_op=async_op,
    )  # fmt: skip


def reduce(
    tensor: Tensor,
    dst: int | None = None,
    op: ReduceOp = _SUM,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Combine the ranks' tensors elementwise into that of one rank. The others' tensors stay as they are.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        dst: Global rank that gets the result; or `group_dst`.
        op: The reduction.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.
        group_dst: Rank in the group that gets the result.

    Returns:
        `Work` if `async_op`, else None.

    Example:
        >>> wg.distributed.reduce(wg.ones(3), dst=0)  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    dtype = check_tensor("reduce", tensor).meta.dtype
    op = ReduceOp(op)
    check_reduction("reduce", op, dtype)
    root = root_rank(target, "reduce", dst, group_dst)
    if nccl.takes(target, tensor, op):
        return nccl.start(target, "reduce", tensor, tensor, tensor.meta.numel, op=op, root=root, async_op=async_op)
    copy = HostCopy(tensor, reads=True, writes=root == target.rank())
    return start_collective(
        target, "reduce", [copy], lambda mpi, comm: host_collectives.reduce_steps(mpi, comm, copy.host, op, root),
        tensor, op=op, root=root, chains_requests=is_half(dtype), outputs=[tensor], async_op=async_op,
    )  # fmt: skip
