"""The steps of collectives on contiguous tensors in host memory: which MPI functions they call.

Each function is a generator of steps (`works.Steps`). `comm` is the communicator on which the steps start their
requests: the group's `_data_comm` for those with one set of requests, `_serial_comm` for those with several.

MPI has no arithmetic for float16 and bfloat16. Their sums send each rank its part of all tensors, add the parts in
float32 by a kernel, round once, and gather the results: (n - 1) / n of the tensor travels twice, as in MPI's own
algorithm for large tensors, and each element is rounded once instead of n - 1 times.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from ..autograd.grad_mode import no_grad
from ..runtime.tensor import Tensor
from .buffers import empty_like_on_host, is_half, mark_written, mpi_buffer
from .errors import CollectiveMismatch
from .local_reductions import average, combine
from .reduce_ops import ReduceOp, mpi_operation

if TYPE_CHECKING:
    from .works import Steps

__all__ = [
    "all_gather_steps", "all_reduce_steps", "all_to_all_steps", "broadcast_steps", "checked_all_to_all_steps",
    "gather_steps", "reduce_scatter_steps", "reduce_steps", "scatter_steps", "start_all_reduce",
]  # fmt: skip


def broadcast_steps(mpi: Any, comm: Any, tensor: Tensor, root: int) -> Steps:
    """Copy the root's tensor to all ranks."""
    yield [comm.Ibcast(mpi_buffer(mpi, tensor), root)]
    mark_written(tensor)


def start_all_reduce(mpi: Any, tensor: Tensor, op: ReduceOp, comm: Any) -> Any:
    """Start to combine the ranks' tensors in place, and return the request. Not for half precision, nor for `AVG`."""
    return comm.Iallreduce(mpi.IN_PLACE, mpi_buffer(mpi, tensor), mpi_operation(mpi, op, tensor.meta.dtype))


def all_reduce_steps(mpi: Any, comm: Any, tensor: Tensor, op: ReduceOp) -> Steps:
    """Combine the ranks' tensors in place. Half precision needs the serial communicator."""
    dtype = tensor.meta.dtype
    size = comm.size
    if not is_half(dtype):
        yield [start_all_reduce(mpi, tensor, op, comm)]
        mark_written(tensor)
        average(tensor, op, size)
        return
    numel = tensor.meta.numel
    part_numel = -(-numel // size)
    with no_grad():
        flat = tensor.detach().view(-1)
        padded = flat
        if part_numel * size != numel:
            padded = empty_like_on_host(tensor, (part_numel * size,))
            padded[:numel] = flat
            padded[numel:] = 0
        parts = empty_like_on_host(tensor, (size, part_numel))
    yield [comm.Ialltoall(mpi_buffer(mpi, padded), mpi_buffer(mpi, parts))]
    mark_written(parts)
    result = combine(parts, op)
    yield [comm.Iallgather(mpi_buffer(mpi, result), mpi_buffer(mpi, padded))]
    mark_written(padded)
    if padded is not flat:
        with no_grad():
            flat.copy_(padded[:numel])


def reduce_steps(mpi: Any, comm: Any, tensor: Tensor, op: ReduceOp, root: int) -> Steps:
    """Combine the ranks' tensors into the root's; those of other ranks stay as they are."""
    dtype = tensor.meta.dtype
    if is_half(dtype):
        scratch = tensor.detach().clone()
        yield from all_reduce_steps(mpi, comm, scratch, op)
        if comm.rank == root:
            with no_grad():
                tensor.detach().copy_(scratch)
        return
    buffer, operation = mpi_buffer(mpi, tensor), mpi_operation(mpi, op, dtype)
    if comm.rank != root:
        yield [comm.Ireduce(buffer, None, operation, root)]
        return
    yield [comm.Ireduce(mpi.IN_PLACE, buffer, operation, root)]
    mark_written(tensor)
    average(tensor, op, comm.size)


def all_gather_steps(mpi: Any, comm: Any, output: Tensor, input: Tensor) -> Steps:
    """Fill `output` with the ranks' inputs, one after the other. `input` may be this rank's part of `output`."""
    if input.start == output.start + comm.rank * _nbytes(input) and input.storage is output.storage:
        yield [comm.Iallgather(mpi.IN_PLACE, mpi_buffer(mpi, output))]
    else:
        if input.storage is output.storage:
            input = input.detach().clone()
        yield [comm.Iallgather(mpi_buffer(mpi, input), mpi_buffer(mpi, output))]
    mark_written(output)


def reduce_scatter_steps(mpi: Any, comm: Any, output: Tensor, input: Tensor, op: ReduceOp) -> Steps:
    """Combine the ranks' inputs, and put this rank's part into `output`, which may be a part of `input`."""
    dtype = input.meta.dtype
    if is_half(dtype):
        parts = empty_like_on_host(input, (comm.size, output.meta.numel))
        yield [comm.Ialltoall(mpi_buffer(mpi, input), mpi_buffer(mpi, parts))]
        mark_written(parts)
        with no_grad():
            output.detach().view(-1).copy_(combine(parts, op))
        return
    target = empty_like_on_host(output) if input.storage is output.storage else output
    yield [
        comm.Ireduce_scatter_block(mpi_buffer(mpi, input), mpi_buffer(mpi, target), mpi_operation(mpi, op, dtype)),
    ]
    mark_written(target)
    average(target, op, comm.size)
    if target is not output:
        with no_grad():
            output.detach().copy_(target)


def all_to_all_steps(
    mpi: Any,
    comm: Any,
    output: Tensor,
    input: Tensor,
    output_counts: Sequence[int] | None = None,
    input_counts: Sequence[int] | None = None,
) -> Steps:
    """Send each rank its part of `input`, and fill `output` with what the ranks send to this one.

    Args:
        mpi: The module `mpi4py.MPI`.
        comm: The communicator.
        output: Where the parts go that arrive.
        input: The parts to send.
        output_counts: Elements that each rank sends; None: as many from each.
        input_counts: Elements for each rank.
    """
    if output_counts is None or input_counts is None:
        yield [comm.Ialltoall(mpi_buffer(mpi, input), mpi_buffer(mpi, output))]
    else:
        source, datatype = mpi_buffer(mpi, input)
        target, _ = mpi_buffer(mpi, output)
        yield [
            comm.Ialltoallv([source, list(input_counts), datatype], [target, list(output_counts), datatype]),
        ]
    mark_written(output)


def checked_all_to_all_steps(
    mpi: Any, comm: Any, output: Tensor, input: Tensor, output_counts: Sequence[int], input_counts: Sequence[int]
) -> Steps:
    """Do as `all_to_all_steps`, after each rank has told the others how many elements it will send them.

    Raises:
        CollectiveMismatch: A rank sends another number of elements than this one expects.
    """
    sent, announced = np.array(input_counts, np.int64), np.empty(comm.size, np.int64)
    yield [comm.Ialltoall(sent, announced)]
    for rank, (count, expected) in enumerate(zip(announced.tolist(), output_counts, strict=True)):
        if count != expected:
            raise CollectiveMismatch(
                f"all_to_all: rank {rank} of the group sends {count} elements to rank {comm.rank}, which expects "
                f"{expected}"
            )
    yield from all_to_all_steps(mpi, comm, output, input, output_counts, input_counts)


def gather_steps(mpi: Any, comm: Any, output: Tensor | None, input: Tensor, root: int) -> Steps:
    """Fill the root's `output` with the ranks' inputs."""
    yield [comm.Igather(mpi_buffer(mpi, input), None if output is None else mpi_buffer(mpi, output), root)]
    if output is not None:
        mark_written(output)


def scatter_steps(mpi: Any, comm: Any, output: Tensor, input: Tensor | None, root: int) -> Steps:
    """Send each rank its part of the root's `input`."""
    yield [comm.Iscatter(None if input is None else mpi_buffer(mpi, input), mpi_buffer(mpi, output), root)]
    mark_written(output)


def _nbytes(tensor: Tensor) -> int:
    return tensor.meta.numel * tensor.meta.dtype.itemsize
