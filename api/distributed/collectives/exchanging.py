"""Collectives in which each rank sends each other rank a part: `all_to_all`, `all_to_all_single`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...autograd.grad_mode import no_grad
from ...runtime.errors import ArgumentError, DTypeError, ShapeError
from ...runtime.tensor import Tensor
from .. import host_collectives
from ..buffers import check_tensor
from ..process_group import ProcessGroup, find_group
from ..staging import HostCopy
from ..works import Steps, Work
from .arguments import row_counts
from .packing import copy_parts, host_vector, output_copies
from .starting import start_collective

__all__ = ["all_to_all", "all_to_all_single"]


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
    output_rows = row_counts(name, "output_split_sizes", output, output_split_sizes, size)
    input_rows = row_counts(name, "input_split_sizes", input, input_split_sizes, size)
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
    return start_collective(
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
    outputs = output_copies(output_tensor_list)

    def steps(mpi: Any, comm: Any) -> Steps:
        with no_grad():
            source = host_vector(dtype, sum(input_counts))
            copy_parts(source, [copy.host for copy in inputs], is_pack=True)
        received = host_vector(dtype, sum(output_counts))
        yield from host_collectives.checked_all_to_all_steps(mpi, comm, received, source, output_counts, input_counts)
        copy_parts(received, [copy.host for copy in outputs], is_pack=False)

    return start_collective(
        target, name, [*inputs, *outputs], steps, input_tensor_list[0], shape=(), chains_requests=True,
        outputs=list(output_tensor_list), async_op=async_op,
    )  # fmt: skip
