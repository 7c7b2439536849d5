"""Messages between two ranks.

A message is a header of 64 bytes with number, dtype and shape, and then the data. The receiver compares the header
with its tensor before it takes the data, so a message of another size or dtype is an error. Header and data travel on
two communicators: the data's tag is the message's number, so messages that overtake each other cannot be mixed up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .buffers import check_tensor, mark_written, mpi_buffer
from .errors import CollectiveMismatch
from .headers import HEADER_BYTES, describe, pack, read_message
from .process_group import ProcessGroup, find_group
from .progress import leave_in_background
from .staging import HostCopy, with_host_copies
from .works import Steps, Work

__all__ = ["P2POp", "batch_isend_irecv", "irecv", "isend", "recv", "send"]

_MAX_TAG = 0x7FFF


def send(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> None:
    """Send a tensor to another rank, and wait until it can be written again.

    Args:
        tensor: The tensor.
        dst: Global rank of the receiver; or `group_dst`.
        group: The group; default: all ranks.
        tag: A number that the receiver names, too: 0 to 32767.
        group_dst: Rank of the receiver in the group.

    Raises:
        RankFailure: The receiver has failed.
        CollectiveTimeout: The receiver has not received it in time.

    Example:
        >>> wg.distributed.send(wg.ones(3), dst=1)  # on rank 0  # doctest: +SKIP
    """
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def recv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> int:
    """Receive a tensor from another rank.

    Args:
        tensor: Tensor of the message's shape and dtype, to be written.
        src: Global rank of the sender; None, without `group_src`: any.
        group: The group; default: all ranks.
        tag: The sender's tag.
        group_src: Rank of the sender in the group.

    Returns:
        int: the sender's global rank; -1 if this process is not in the group.

    Raises:
        CollectiveMismatch: The message has another shape or dtype.
        RankFailure: The sender has failed.
        CollectiveTimeout: No message has arrived in time.

    Example:
        >>> wg.distributed.recv(wg.empty(3), src=0)  # on rank 1  # doctest: +SKIP
        0
    """
    work = irecv(tensor, src, group, tag, group_src)
    if work is None:
        return -1
    work.wait()
    return work.source_rank()


def isend(
    tensor: Tensor,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_dst: int | None = None,
) -> Work | None:
    """Start to send a tensor. See `send`.

    Args:
        tensor: The tensor; it must not be written before the work is complete.
        dst: Global rank of the receiver.
        group: The group.
        tag: The tag.
        group_dst: Rank of the receiver in the group.

    Returns:
        `Work`; None if this process is not in the group.

    Example:
        >>> wg.distributed.isend(wg.ones(3), dst=1).wait()  # on rank 0  # doctest: +SKIP
        True
    """
    target = find_group(group)
    if target is None:
        return None
    layout = check_tensor("isend", tensor).meta
    peer = _peer(target, "isend", dst, group_dst)
    if peer is None:
        raise ArgumentError("isend: pass dst or group_dst")
    _check_tag("isend", tag)
    number = target._message_count
    target._message_count += 1
    header = pack(number, "send", layout.dtype, layout.shape, root=peer, tag=tag)
    copy = HostCopy(tensor, reads=True, writes=False)
    mpi = target._world.mpi

    def steps() -> Steps:
        yield [
            target._header_comm.Isend(header, peer, tag),
            target._data_comm.Isend(mpi_buffer(mpi, copy.host), peer, number & _MAX_TAG),
        ]

    return _start(target, header, with_host_copies([copy], steps), (target._members[peer],), [tensor])


def irecv(
    tensor: Tensor,
    src: int | None = None,
    group: ProcessGroup | None = None,
    tag: int = 0,
    group_src: int | None = None,
) -> Work | None:
    """Start to receive a tensor. See `recv`.

    Args:
        tensor: Tensor of the message's shape and dtype; it must not be used before the work is complete.
        src: Global rank of the sender; None, without `group_src`: any.
        group: The group.
        tag: The sender's tag.
        group_src: Rank of the sender in the group.

    Returns:
        `Work`; None if this process is not in the group.

    Example:
        >>> wg.distributed.irecv(wg.empty(3), src=0).wait()  # on rank 1  # doctest: +SKIP
        True
    """
    target = find_group(group)
    if target is None:
        return None
    layout = check_tensor("irecv", tensor).meta
    peer = _peer(target, "irecv", src, group_src)
    _check_tag("irecv", tag)
    mpi = target._world.mpi
    header = pack(target._message_count, "recv", layout.dtype, layout.shape, root=-1 if peer is None else peer, tag=tag)
    copy = HostCopy(tensor, reads=False, writes=True)
    source = [-1 if peer is None else peer]

    def steps() -> Steps:
        arrived = bytearray(HEADER_BYTES)
        status = mpi.Status()
        request = target._header_comm.Irecv(arrived, mpi.ANY_SOURCE if peer is None else peer, tag)
        yield [_WithStatus(request, status)]
        source[0] = sender = status.Get_source()
        number, dtype, shape = read_message(bytes(arrived))
        _, expected_dtype, expected_shape = read_message(header)
        if dtype is not expected_dtype or shape != expected_shape:
            raise CollectiveMismatch(
                f"{describe(header)}: the message of rank {target._members[sender]} is {describe(bytes(arrived))}"
            )
        yield [target._data_comm.Irecv(mpi_buffer(mpi, copy.host), sender, number & _MAX_TAG)]
        mark_written(copy.host)

    members = tuple(m for m in target._members if m != target._world.rank) if peer is None else (target._members[peer],)
    work = _start(target, header, with_host_copies([copy], steps), members, [tensor])
    work._find_source = lambda: target._members[source[0]]
    work.accepts_any_source = peer is None
    return work


class P2POp:
    """One message of `batch_isend_irecv`.

    Args:
        op: `isend` or `irecv`.
        tensor: The tensor.
        peer: Global rank of the other side; or `group_peer`.
        group: The group; default: all ranks.
        tag: The tag.
        group_peer: Rank of the other side in the group.

    Example:
        >>> op = wg.distributed.P2POp(wg.distributed.isend, wg.ones(2), 1)
        >>> op.peer
        1
    """

    def __init__(
        self,
        op: Callable[..., Work | None],
        tensor: Tensor,
        peer: int | None = None,
        group: ProcessGroup | None = None,
        tag: int = 0,
        group_peer: int | None = None,
    ):
        if op not in (isend, irecv):
            raise ArgumentError("P2POp: op must be isend or irecv")
        if peer is None and group_peer is None:
            raise ArgumentError("P2POp: pass peer or group_peer")
        self.op, self.tensor, self.peer = op, tensor, peer
        self.group, self.tag, self.group_peer = group, tag, group_peer


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Start several messages.

    Args:
        p2p_op_list: The messages, in any order.

    Returns:
        A list with a `Work` for each.

    Raises:
        ArgumentError: The list is empty.

    Example:
        >>> ops = [wg.distributed.P2POp(wg.distributed.isend, wg.ones(2), 1)]
        >>> wg.distributed.batch_isend_irecv(ops)[0].wait()  # on rank 0  # doctest: +SKIP
        True
    """
    if not p2p_op_list or not all(isinstance(op, P2POp) for op in p2p_op_list):
        raise ArgumentError("batch_isend_irecv: expects a list of P2POp")
    works = [op.op(op.tensor, op.peer, op.group, op.tag, op.group_peer) for op in p2p_op_list]
    return [work for work in works if work is not None]


class _WithStatus:
    """A request whose test fills a status."""

    def __init__(self, request: Any, status: Any):
        self._request, self._status = request, status

    def Test(self) -> bool:  # noqa: N802  # mpi4py's name
        return bool(self._request.Test(self._status))


def _start(group: ProcessGroup, header: bytes, steps: Steps, members: tuple[int, ...], outputs: list[Tensor]) -> Work:
    world = group._world
    if world.failure is not None:
        world.raise_failure(describe(header))
    with world.lock:
        work = Work(world, members, group._timeout, header, None, steps, None, outputs)
    world.set_last_work(work, header)
    leave_in_background(work)
    return work


def _peer(group: ProcessGroup, name: str, rank: int | None, group_rank: int | None) -> int | None:
    """Return the other side's rank in the group; None for any."""
    if group_rank is None and rank is None:
        return None
    if group_rank is None:
        if rank not in group._members:
            raise ArgumentError(f"{name}: global rank {rank} is not in {group!r}")
        group_rank = group._members.index(rank)
    if not 0 <= group_rank < group.size():
        raise ArgumentError(f"{name}: {group!r} has no rank {group_rank}")
    if group_rank == group.rank():
        raise ArgumentError(f"{name}: rank {group._world.rank} cannot exchange a message with itself")
    return group_rank


def _check_tag(name: str, tag: int) -> None:
    if not isinstance(tag, int):
        raise TypeError(f"{name}: tag must be an integer, not {type(tag).__name__}")
    if not 0 <= tag <= _MAX_TAG:
        raise ArgumentError(f"{name}: tag {tag} is not between 0 and {_MAX_TAG}")
