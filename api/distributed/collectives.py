"""Collectives of tensors under `torch.distributed`'s names.

All ranks of a group call the same collectives in the same order. With `async_op=True` a call returns a `Work`; the
tensors belong to it until `wait` has returned. A process outside of the group gets None.

`group_src` and `group_dst` are ranks in the group, `src` and `dst` global ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..autograd.grad_mode import no_grad
from ..runtime.device import device, meta
from ..runtime.dispatch import empty
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError, DTypeError, ShapeError
from ..runtime.tensor import Tensor
from ..runtime.views import reshape
from . import host_collectives, nccl
from .buffers import check_tensor, is_direct, is_half, mark_written
from .groups import ProcessGroup, find_group
from .headers import ROUTES
from .reduce_ops import ReduceOp, check_reduction
from .staging import HostCopy, is_pipelined, is_staged, pipelined_steps, with_host_copies
from .works import Steps, Work

__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all", "all_to_all_single", "broadcast",
    "gather", "reduce", "reduce_scatter", "reduce_scatter_tensor", "root_rank", "scatter",
]  # fmt: skip

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
        return _start_pipelined(
            target, "broadcast", tensor, is_source, not is_source,
            lambda comm, chunk: host_collectives.broadcast_steps(target._world.mpi, comm, chunk, root),
            root=root, async_op=async_op,
        )  # fmt: skip
    copy = HostCopy(tensor, reads=is_source, writes=not is_source)
    return _start(
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
    dtype = check_tensor("all_reduce", tensor).meta.dtype
    op = ReduceOp(op)
    check_reduction("all_reduce", op, dtype)
    if nccl.takes(target, tensor, op):
        return nccl.start(target, "all_reduce", tensor, tensor, tensor.meta.numel, op=op, async_op=async_op)
    if is_direct(tensor) and not is_half(dtype) and op is not ReduceOp.AVG:  # one request, without steps
        mark_written(tensor)
        return target._start(
            "all_reduce",
            None,
            dtype=dtype,
            shape=tensor.meta.shape,
            op=op,
            outputs=[tensor],
            async_op=async_op,
            request=partial(host_collectives.start_all_reduce, target._world.mpi, tensor, op),
        )
    if is_pipelined(tensor):
        return _start_pipelined(
            target, "all_reduce", tensor, True, True,
            lambda comm, chunk: host_collectives.all_reduce_steps(target._world.mpi, comm, chunk, op),
            op=op, async_op=async_op,
        )  # fmt: skip
    copy = HostCopy(tensor, reads=True, writes=True)
    return _start(
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
    return _start(
        target, "reduce", [copy], lambda mpi, comm: host_collectives.reduce_steps(mpi, comm, copy.host, op, root),
        tensor, op=op, root=root, chains_requests=is_half(dtype), outputs=[tensor], async_op=async_op,
    )  # fmt: skip


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Write the ranks' tensors one after the other into one tensor, on every rank.

    Args:
        output_tensor: Tensor with as many elements as all inputs, which are concatenated along dimension 0, or stacked.
        input_tensor: Tensor of the same shape and dtype on every rank. It may be this rank's part of the output.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Raises:
        ShapeError: The output has another number of elements.
        DTypeError: The dtypes differ.

    Example:
        >>> whole = wg.empty(4)
        >>> wg.distributed.all_gather_into_tensor(whole, wg.ones(2))  # with 2 ranks  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    name = "all_gather_into_tensor"
    _check_sizes(name, output_tensor, input_tensor, target.size(), "output")
    if nccl.takes(target, input_tensor):
        return nccl.start(target, name, input_tensor, output_tensor, input_tensor.meta.numel, async_op=async_op)
    source = HostCopy(input_tensor, reads=True, writes=False)
    output = HostCopy(output_tensor, reads=False, writes=True)
    return _start(
        target, name, [source, output],
        lambda mpi, comm: host_collectives.all_gather_steps(mpi, comm, output.host, source.host),
        input_tensor, outputs=[output_tensor], async_op=async_op,
    )  # fmt: skip


def all_gather(
    tensor_list: Sequence[Tensor], tensor: Tensor, group: ProcessGroup | None = None, async_op: bool = False
) -> Work | None:
    """Write the ranks' tensors into a list of tensors, on every rank.

    Args:
        tensor_list: A tensor for each rank, of the shape and dtype of `tensor`.
        tensor: Tensor of the same shape and dtype on every rank.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Example:
        >>> parts = [wg.empty(2), wg.empty(2)]
        >>> wg.distributed.all_gather(parts, wg.ones(2))  # with 2 ranks  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    check_tensor("all_gather", tensor)
    _check_list("all_gather", tensor_list, tensor, target.size())
    outputs = _output_copies(tensor_list)
    source = HostCopy(tensor, reads=True, writes=False)
    buffer = _host_buffer(tensor, target.size())
    return _start(
        target, "all_gather", [source],
        lambda mpi, comm: _unpack(host_collectives.all_gather_steps(mpi, comm, buffer, source.host), outputs, buffer),
        tensor, outputs=list(tensor_list), async_op=async_op,
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
    _check_sizes(name, input, output, target.size(), "input")
    op = ReduceOp(op)
    check_reduction(name, op, input.meta.dtype)
    if nccl.takes(target, input, op):
        return nccl.start(target, name, input, output, output.meta.numel, op=op, async_op=async_op)
    source = HostCopy(input, reads=True, writes=False)
    part = HostCopy(output, reads=False, writes=True)
    return _start(
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
    _check_list("reduce_scatter", input_list, output, target.size())
    op = ReduceOp(op)
    check_reduction("reduce_scatter", op, output.meta.dtype)
    buffer = _pack(input_list, output)
    part = HostCopy(output, reads=False, writes=True)
    return _start(
        target, "reduce_scatter", [part],
        lambda mpi, comm: host_collectives.reduce_scatter_steps(mpi, comm, part.host, buffer, op),
        output, op=op, outputs=[output], async_op=async_op,
    )  # fmt: skip


def all_to_all_single(
    output: Tensor,
    input: Tensor,
    output_split_sizes: Sequence[int] | None = None,
    input_split_sizes: Sequence[int] | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Split a tensor along dimension 0, send each rank its part, and concatenate the parts that arrive.

    Args:
        output: Tensor for the parts that arrive.
        input: Tensor with the parts to send.
        output_split_sizes: Rows that arrive from each rank; None: equally many.
        input_split_sizes: Rows that go to each rank; None: equally many.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Raises:
        ShapeError: Sizes do not add up to the tensor's rows.
        CollectiveMismatch: A rank sends another number of rows than the receiver expects.

    Example:
        >>> x = wg.arange(4)
        >>> wg.distributed.all_to_all_single(wg.empty_like(x), x)  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    name, size = "all_to_all_single", target.size()
    check_tensor(name, output)
    check_tensor(name, input)
    if output.meta.dtype is not input.meta.dtype:
        raise DTypeError(f"{name}: output is {output.meta.dtype.name}, input {input.meta.dtype.name}")
    output_rows = _row_counts(name, "output_split_sizes", output, output_split_sizes, size)
    input_rows = _row_counts(name, "input_split_sizes", input, input_split_sizes, size)
    row_shape = input.meta.shape[1:]
    if output.meta.shape[1:] != row_shape:
        raise ShapeError(f"{name}: rows of output have shape {list(output.meta.shape[1:])}, of input {list(row_shape)}")
    source = HostCopy(input, reads=True, writes=False)
    result = HostCopy(output, reads=False, writes=True)
    is_even = output_split_sizes is None and input_split_sizes is None
    if is_even and output.meta.numel != input.meta.numel:
        raise ShapeError(f"{name}: output has shape {list(output.meta.shape)}, input {list(input.meta.shape)}")
    row_numel = math.prod(row_shape)
    counts = [rows * row_numel for rows in output_rows], [rows * row_numel for rows in input_rows]

    def steps(mpi: Any, comm: Any) -> Steps:
        if is_even:
            return host_collectives.all_to_all_steps(mpi, comm, result.host, source.host)
        return host_collectives.checked_all_to_all_steps(mpi, comm, result.host, source.host, *counts)

    shape = input.meta.shape if is_even else row_shape
    return _start(
        target, name, [source, result], steps, input, shape=shape, chains_requests=not is_even, outputs=[output],
        async_op=async_op,
    )  # fmt: skip


def all_to_all(
    output_tensor_list: Sequence[Tensor],
    input_tensor_list: Sequence[Tensor],
    group: ProcessGroup | None = None,
    async_op: bool = False,
) -> Work | None:
    """Send each rank one tensor of a list, and fill a list with the tensors that arrive. Shapes may differ.

    Args:
        output_tensor_list: A tensor for what each rank sends.
        input_tensor_list: A tensor for each rank.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.

    Returns:
        `Work` if `async_op`, else None.

    Raises:
        CollectiveMismatch: A rank sends another number of elements than the receiver expects.

    Example:
        >>> inputs, outputs = [wg.ones(2), wg.ones(3)], [wg.empty(2), wg.empty(2)]
        >>> wg.distributed.all_to_all(outputs, inputs)  # rank 0 of 2  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    name, size = "all_to_all", target.size()
    if len(output_tensor_list) != size or len(input_tensor_list) != size:
        raise ArgumentError(
            f"{name}: lists of {len(output_tensor_list)} and {len(input_tensor_list)} tensors for {size} ranks"
        )
    dtype = check_tensor(name, input_tensor_list[0]).meta.dtype
    for tensor in (*output_tensor_list, *input_tensor_list):
        if check_tensor(name, tensor).meta.dtype is not dtype:
            raise DTypeError(f"{name}: tensors of {dtype.name} and {tensor.meta.dtype.name}")
    output_counts = [tensor.meta.numel for tensor in output_tensor_list]
    input_counts = [tensor.meta.numel for tensor in input_tensor_list]
    inputs = [HostCopy(tensor, reads=True, writes=False) for tensor in input_tensor_list]
    outputs = _output_copies(output_tensor_list)

    def steps(mpi: Any, comm: Any) -> Steps:
        with no_grad():
            source = _flat(dtype, sum(input_counts))
            _copy_parts(source, [copy.host for copy in inputs], is_pack=True)
        received = _flat(dtype, sum(output_counts))
        yield from host_collectives.checked_all_to_all_steps(mpi, comm, received, source, output_counts, input_counts)
        _copy_parts(received, [copy.host for copy in outputs], is_pack=False)

    return _start(
        target, name, [*inputs, *outputs], steps, input_tensor_list[0], shape=(), chains_requests=True,
        outputs=list(output_tensor_list), async_op=async_op,
    )  # fmt: skip


def gather(
    tensor: Tensor,
    gather_list: Sequence[Tensor] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    async_op: bool = False,
    group_dst: int | None = None,
) -> Work | None:
    """Write the ranks' tensors into a list of tensors on one rank.

    Args:
        tensor: Tensor of the same shape and dtype on every rank.
        gather_list: On the destination a tensor for each rank; None elsewhere.
        dst: Global rank of the destination, default 0; or `group_dst`.
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.
        group_dst: Rank of the destination in the group.

    Returns:
        `Work` if `async_op`, else None.

    Example:
        >>> wg.distributed.gather(wg.ones(2), dst=0)  # on rank 1  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    check_tensor("gather", tensor)
    root = root_rank(target, "gather", dst, group_dst, default=0)
    is_destination = root == target.rank()
    if is_destination != bool(gather_list):
        raise ArgumentError("gather: the destination passes gather_list, other ranks pass none")
    if is_destination:
        _check_list("gather", gather_list or (), tensor, target.size())
    outputs = _output_copies(gather_list or ())
    source = HostCopy(tensor, reads=True, writes=False)
    buffer = _host_buffer(tensor, target.size()) if is_destination else None
    return _start(
        target, "gather", [source],
        lambda mpi, comm: _unpack(
            host_collectives.gather_steps(mpi, comm, buffer, source.host, root), outputs, buffer
        ),
        tensor, root=root, outputs=list(gather_list or ()), async_op=async_op,
    )  # fmt: skip


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
        _check_list("scatter", scatter_list or (), tensor, target.size())
        buffer = _pack(scatter_list or (), tensor)
    output = HostCopy(tensor, reads=False, writes=True)
    return _start(
        target, "scatter", [output],
        lambda mpi, comm: host_collectives.scatter_steps(mpi, comm, output.host, buffer, root),
        tensor, root=root, outputs=[tensor], async_op=async_op,
    )  # fmt: skip


# --- Parts of the functions above -------------------------------------------------------------------------------------


def _start(
    group: ProcessGroup,
    kind: str,
    copies: list[HostCopy],
    steps: Callable[..., Steps],
    tensor: Tensor,
    *,
    shape: Sequence[int] | None = None,
    op: ReduceOp | None = None,
    root: int = -1,
    chains_requests: bool = False,
    outputs: list[Tensor],
    async_op: bool,
) -> Work | None:
    """Start a collective: load `copies` to the host, run `steps` on them, and store them back."""
    staged = is_staged(*(copy.tensor for copy in copies), *outputs)
    is_serial = staged or chains_requests
    comm = group._serial_comm if is_serial else group._data_comm
    return group._start(
        kind,
        with_host_copies(copies, lambda: steps(group._world.mpi, comm)),
        dtype=tensor.meta.dtype,
        shape=tensor.meta.shape if shape is None else shape,
        op=op,
        root=root,
        route=int(staged),
        is_serial=is_serial,
        outputs=outputs,
        async_op=async_op,
    )


def _start_pipelined(
    group: ProcessGroup,
    kind: str,
    tensor: Tensor,
    reads: bool,
    writes: bool,
    steps: Callable[[Any, Tensor], Steps],
    *,
    op: ReduceOp | None = None,
    root: int = -1,
    async_op: bool,
) -> Work | None:
    """Start an elementwise collective on a tensor of an OpenCL device, in chunks."""
    return group._start(
        kind,
        pipelined_steps(tensor, reads, writes, partial(steps, group._serial_comm)),
        dtype=tensor.meta.dtype,
        shape=tensor.meta.shape,
        op=op,
        root=root,
        route=ROUTES.index("in chunks"),
        is_serial=True,
        outputs=[tensor],
        async_op=async_op,
    )


def root_rank(
    group: ProcessGroup, name: str, rank: int | None, group_rank: int | None, default: int | None = None
) -> int:
    """Return the rank in the group that a global rank or a rank in the group means."""
    if rank is None and group_rank is None:
        if default is None:
            raise ArgumentError(f"{name}: pass src or dst, or the rank in the group as group_src or group_dst")
        return default
    if rank is not None and group_rank is not None:
        raise ArgumentError(f"{name}: a global rank and a rank in the group exclude each other")
    if group_rank is None:
        if rank not in group._members:
            raise ArgumentError(f"{name}: global rank {rank} is not in {group!r}")
        return group._members.index(rank)
    if not 0 <= group_rank < group.size():
        raise ArgumentError(f"{name}: {group!r} has no rank {group_rank}")
    return group_rank


def _check_sizes(name: str, whole: Tensor, part: Tensor, size: int, whole_name: str) -> None:
    check_tensor(name, whole)
    check_tensor(name, part)
    if whole.meta.dtype is not part.meta.dtype:
        raise DTypeError(f"{name}: tensors of {whole.meta.dtype.name} and {part.meta.dtype.name}")
    if whole.meta.numel != part.meta.numel * size:
        raise ShapeError(
            f"{name}: {whole_name} of shape {list(whole.meta.shape)} has {whole.meta.numel} elements, and {size} ranks "
            f"with shape {list(part.meta.shape)} have {part.meta.numel * size}"
        )


def _check_list(name: str, tensors: Sequence[Tensor], tensor: Tensor, size: int) -> None:
    """Check that a list has a tensor for each rank, of the shape and dtype of `tensor`."""
    layout = tensor.meta
    if len(tensors) != size:
        raise ArgumentError(f"{name}: a list of {len(tensors)} tensors for {size} ranks")
    for item in tensors:
        check_tensor(name, item)
        if item.meta.dtype is not layout.dtype or item.meta.shape != layout.shape:
            raise ShapeError(
                f"{name}: {item.meta.dtype.name} of shape {list(item.meta.shape)} in the list, and {layout.dtype.name} "
                f"of shape {list(layout.shape)}"
            )


def _output_copies(tensors: Sequence[Tensor]) -> list[HostCopy]:
    return [HostCopy(tensor, reads=False, writes=True) for tensor in tensors]


def _row_counts(name: str, argument: str, tensor: Tensor, rows: Sequence[int] | None, size: int) -> list[int]:
    if not tensor.meta.shape:
        raise ShapeError(f"{name}: a tensor without dimensions cannot be split")
    total = tensor.meta.shape[0]
    if rows is None:
        if total % size:
            raise ShapeError(f"{name}: {total} rows are not a multiple of {size} ranks; pass {argument}")
        return [total // size] * size
    if len(rows) != size or sum(rows) != total or min(rows) < 0:
        raise ShapeError(f"{name}: {argument} {list(rows)} do not divide {total} rows among {size} ranks")
    return list(rows)


def _flat(dtype: DType, numel: int) -> Tensor:
    return empty(meta(dtype, (numel,), None, device("cpu")))


def _host_buffer(tensor: Tensor, size: int) -> Tensor:
    """Return a new tensor on `cpu` for `size` tensors like `tensor`, one after the other."""
    return empty(meta(tensor.meta.dtype, (size, *tensor.meta.shape), None, device("cpu")))


def _pack(tensors: Sequence[Tensor], tensor: Tensor) -> Tensor:
    """Return a new tensor on `cpu` with the values of `tensors`, one after the other."""
    buffer = _host_buffer(tensor, len(tensors))
    with no_grad():
        for position, item in enumerate(tensors):
            buffer[position].copy_(item)
    return buffer


def _unpack(steps: Steps, outputs: Sequence[HostCopy], buffer: Tensor | None) -> Steps:
    """Run steps that fill `buffer`, and distribute its entries to `outputs`."""
    yield from steps
    if buffer is None:
        return
    with no_grad():
        for position, output in enumerate(outputs):
            if output.host is output.tensor:
                output.host.copy_(buffer[position])
            else:
                output.host = buffer[position]
                output.store()


def _copy_parts(flat: Tensor, parts: Sequence[Tensor], is_pack: bool) -> None:
    """Copy parts into a flat tensor one after the other, or from it."""
    start = 0
    with no_grad():
        for part in parts:
            end = start + part.meta.numel
            if is_pack:
                flat[start:end].copy_(reshape(part, (part.meta.numel,)))
            else:
                part.copy_(reshape(flat[start:end], part.meta.shape))
            start = end
