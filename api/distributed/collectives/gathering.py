"""Collectives that concatenate the ranks' tensors: `all_gather`, `all_gather_into_tensor`, `gather`."""

from __future__ import annotations

from collections.abc import Sequence

from ...runtime.errors import ArgumentError
from ...runtime.tensor import Tensor
from .. import host_collectives, nccl
from ..buffers import check_tensor
from ..process_group import ProcessGroup, find_group
from ..staging import HostCopy
from ..works import Work
from .arguments import check_list, check_sizes, root_rank
from .packing import host_buffer, output_copies, unpack
from .starting import start_collective

__all__ = ["all_gather", "all_gather_into_tensor", "gather"]


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
    check_sizes(name, output_tensor, input_tensor, target.size(), "output")
    if nccl.takes(target, input_tensor):
        return nccl.start(target, name, input_tensor, output_tensor, input_tensor.meta.numel, async_op=async_op)
    source = HostCopy(input_tensor, reads=True, writes=False)
    output = HostCopy(output_tensor, reads=False, writes=True)
    return start_collective(
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
    check_list("all_gather", tensor_list, tensor, target.size())
    outputs = output_copies(tensor_list)
    source = HostCopy(tensor, reads=True, writes=False)
    buffer = host_buffer(tensor, target.size())
    return start_collective(
        target, "all_gather", [source],
        lambda mpi, comm: unpack(host_collectives.all_gather_steps(mpi, comm, buffer, source.host), outputs, buffer),
        tensor, outputs=list(tensor_list), async_op=async_op,
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
        check_list("gather", gather_list or (), tensor, target.size())
    outputs = output_copies(gather_list or ())
    source = HostCopy(tensor, reads=True, writes=False)
    buffer = host_buffer(tensor, target.size()) if is_destination else None
    return start_collective(
        target, "gather", [source],
        lambda mpi, comm: unpack(
            host_collectives.gather_steps(mpi, comm, buffer, source.host, root), outputs, buffer
        ),
        tensor, root=root, outputs=list(gather_list or ()), async_op=async_op,
    )  # fmt: skip
