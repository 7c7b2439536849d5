"""Process groups: ranks that communicate, each group with communicators of its own."""

from __future__ import annotations

import warnings
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .errors import DistBackendError
from .exchanges import MAX_DIRECT_RANKS, DirectMessages, Exchange, GatheredHeaders
from .headers import describe, pack
from .launchers import read_environment
from .progress import leave_in_background
from .reduce_ops import ReduceOp
from .value_layouts import ValueLayout
from .works import Steps, Work
from .world import World

__all__ = [
    "GroupMember", "ProcessGroup", "find_group", "get_backend", "get_global_rank", "get_group_rank",
    "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group", "is_initialized",
    "set_default_group",
]  # fmt: skip

_TESTS_AT_ONCE = 5000  # tests of a request in a tight loop, some 0.5 ms, before a `Work` waits for it


class ProcessGroup:
    """Ranks that take part in a collective. `init_process_group` and `new_group` create groups.

    Args:
        world: The world.
        members: The global ranks, in the order of the group's ranks.
        comms: Three duplicates of the group's MPI communicator.
        name: A name, for messages.
        backend: `mpi` or `nccl`.
        timeout: Seconds that a collective may take.
    """

    def __init__(
        self, world: World, members: tuple[int, ...], comms: Sequence[Any], name: str, backend: str, timeout: float
    ):
        self._world = world
        self._members = members
        self._comms = comms
        self._header_comm, self._data_comm, self._serial_comm = comms
        self._name = name
        self._backend = backend
        self._timeout = timeout
        self._rank = members.index(world.rank)
        self._size = len(members)
        self._call_count = 0
        self._message_count = 0
        self._queue: deque[Work] = deque()
        self._nccl: Any = None
        self._is_destroyed = False
        self._messages: DirectMessages | None = None
        if 1 < self._size <= MAX_DIRECT_RANKS:
            self._messages = DirectMessages(world.mpi, self._serial_comm, members)
            world.end_hooks.append(self._messages.close)

    def rank(self) -> int:
        """Return this process's rank in the group."""
        return self._rank

    def size(self) -> int:
        """Return the number of ranks in the group."""
        return self._size

    def name(self) -> str:
        """Return the backend's name, as PyTorch does."""
        return self._backend

    @property
    def group_name(self) -> str:
        """The name that messages call the group by."""
        return self._name

    def __repr__(self) -> str:
        return f"ProcessGroup({self._name}, rank {self._rank} of {self._size}, {self._backend})"

    def _destroy(self) -> None:
        """Wait for works that run one after the other, and free the communicators. Works in flight still complete."""
        while self._queue and self._world.failure is None:
            self._queue[0].wait()
        self._is_destroyed = True
        if self._world.failure is not None:
            return  # MPI may still use them for calls that have failed
        if self._nccl is not None:
            self._nccl.close()
        with self._world.lock:
            if self._messages is not None:
                self._messages.close()
                self._world.end_hooks.remove(self._messages.close)
            for comm in self._comms:
                comm.Free()

    def _start(
        self,
        kind: str,
        steps: Steps | None,
        *,
        dtype: DType | None = None,
        shape: Sequence[int] = (),
        op: ReduceOp | None = None,
        root: int = -1,
        route: int = 0,
        is_serial: bool = False,
        outputs: list[Tensor] | None = None,
        async_op: bool = False,
        timeout: float | None = None,
        request: Callable[[Any], Any] | None = None,
        inputs: list[Tensor] | None = None,
    ) -> Work | None:
        """Start a collective, and wait for it unless `async_op`.

        Args:
            kind: One of `headers.KINDS`.
            steps: The steps of the collective; None if it consists of exchanging headers, or of `request`.
            dtype: The tensor's dtype, or None. It must agree on all ranks, and so must `shape`, `op` and `root`.
            shape: The tensor's shape.
            op: The reduction, or None.
            root: The root's rank in the group; -1: the collective has none.
            route: Index into `headers.ROUTES`.
            is_serial: The steps start MPI requests after others have completed, on `_serial_comm`: the group's works
                of this kind run one after the other, so that all ranks start their requests in the same order.
            outputs: The tensors that are written.
            async_op: Whether to return the work instead of waiting.
            timeout: Seconds; default: the group's.
            request: In place of steps: starts one request on the communicator that it is called with.
            inputs: Tensors that must stay alive until the work is waited for.

        Returns:
            The work if `async_op`, otherwise None.
        """
        world = self._world
        header = pack(self._call_count, kind, dtype, shape, op, root, route)
        self._call_count += 1
        if world.failure is not None:
            world.raise_failure(describe(header))
        with world.lock:
            exchange = self._start_exchange(header)
            requests = None if request is None else [request(self._data_comm)]
            error: BaseException | None = None
            if not (async_op or steps is not None or route) and isinstance(exchange, Exchange):
                world.last_call = exchange
                try:
                    if (not requests or _is_complete_at_once(requests[0])) and _is_complete_at_once(exchange):
                        return None
                except BaseException as raised:
                    error = raised
            work = Work(
                world, self._members, self._timeout if timeout is None else timeout, header, exchange, steps,
                self._queue if is_serial else None, outputs, requests,
            )  # fmt: skip
            if error is not None:
                work._end(error)
                raise error
        work._inputs = inputs
        return self._leave_or_wait(work, header, async_op)

    def _start_exchange(self, header: bytes) -> Exchange | GatheredHeaders | None:
        """Start to send the header of a call to the other ranks."""
        if self._size == 1:
            return None
        if self._messages is None:
            return GatheredHeaders(self._header_comm, header, self._members)
        exchange = Exchange(self._messages, header)
        self._messages.post(exchange)
        return exchange

    def _reduce(self, messages: DirectMessages, layout: ValueLayout, tensor: Tensor, async_op: bool) -> Work | None:
        """Start an `all_reduce` whose values travel as `layout` says; see `_start`.

        Unless `async_op`, it runs without a `Work`, unless it has to wait for long, or fails.
        """
        world = self._world
        number = self._call_count
        self._call_count = number + 1
        if world.failure is not None:
            world.raise_failure(describe(layout.header(number)))
        requests: list[Any] | None = None
        exchange: Exchange | None = None
        error: BaseException | None = None
        with world.lock:
            try:
                if layout.is_behind_header and not async_op:
                    world.last_call = messages
                    exchange = messages.reduce(layout, tensor, number)
                    if exchange is None:
                        return None
                elif async_op:
                    exchange = messages.post_values(layout, tensor, number)
                    if not layout.is_behind_header:
                        requests = [layout.start_beside(tensor, self._data_comm)]
                else:
                    world.last_call = messages
                    requests = [layout.start_beside(tensor, self._data_comm)]
                    exchange = messages.reduce_beside(layout, tensor, number, requests)
                    if exchange is None:
                        return None
            except BaseException as raised:
                error = raised
            header = layout.header(number)
            work = Work(world, self._members, self._timeout, header, exchange, None, None, [tensor], requests)
            if error is not None:
                work._end(error)
                raise error
        return self._leave_or_wait(work, header, async_op)

    def _leave_or_wait(self, work: Work, header: bytes, async_op: bool) -> Work | None:
        """Return the work, to be completed in the background, if `async_op`. Otherwise wait for it and return None."""
        self._world.set_last_work(work, header)
        if async_op:
            leave_in_background(work)
            return work
        work.wait()
        return None


def _is_complete_at_once(request: Any) -> bool:
    """Test a request for a short time, in a tight loop; return whether it is complete."""
    return any(request.Test() for _ in range(_TESTS_AT_ONCE))


class _Group:
    """PyTorch's `torch.distributed.group`: `group.WORLD` is the group of all ranks, None before its creation."""

    @property
    def WORLD(self) -> ProcessGroup | None:  # noqa: N802
        return _default_group


class _GroupMember(_Group):
    """PyTorch's `GroupMember`. `new_group` returns `NON_GROUP_MEMBER` to ranks outside of the new group."""

    NON_GROUP_MEMBER = object()


group = _Group()
GroupMember = _GroupMember()

_default_group: ProcessGroup | None = None


def set_default_group(group: ProcessGroup | None) -> None:
    """Let collectives without a group use this one; None: there is no group."""
    global _default_group
    _default_group = group


def is_initialized() -> bool:
    """Return whether `init_process_group` has created the group of all ranks.

    Returns:
        bool.

    Example:
        >>> wg.distributed.is_initialized()
        False
    """
    return _default_group is not None


def find_group(group: object) -> ProcessGroup | None:
    """Return the group that a collective's argument means; None if this process is not in it.

    Raises:
        DistBackendError: There is no group yet, or the group has been destroyed.
        TypeError: It is no group.
    """
    if group is None or group is GroupMember:  # also the class-like object itself
        if _default_group is None:
            raise DistBackendError("there is no process group; call init_process_group first")
        return _default_group
    if group is GroupMember.NON_GROUP_MEMBER:
        warnings.warn("a collective of a group that this process is not in does nothing", stacklevel=3)
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group: expects a ProcessGroup, not {type(group).__name__}")
    if group._is_destroyed:
        raise DistBackendError(f"{group!r} has been destroyed; create a group by new_group")
    return group


def get_rank(group: ProcessGroup | None = None) -> int:
    """Return this process's rank in a group; -1 if it is not in it.

    Args:
        group: The group; None: that of all ranks.

    Raises:
        DistBackendError: `init_process_group` has not been called.

    Example:
        >>> wg.distributed.get_rank()  # on the second of 2 ranks  # doctest: +SKIP
        1
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    target = find_group(group)
    return -1 if target is None else target.rank()


def get_world_size(group: ProcessGroup | None = None) -> int:
    """Return the number of ranks in a group; -1 if this process is not in it.

    Args:
        group: The group; None: that of all ranks.

    Raises:
        DistBackendError: `init_process_group` has not been called.

    Example:
        >>> wg.distributed.get_world_size()  # doctest: +SKIP
        2
    """
    if group is GroupMember.NON_GROUP_MEMBER:
        return -1
    target = find_group(group)
    return -1 if target is None else target.size()


def get_backend(group: ProcessGroup | None = None) -> str:
    """Return a group's backend: `mpi` or `nccl`.

    Args:
        group: The group; None: that of all ranks.

    Raises:
        DistBackendError: `init_process_group` has not been called.
        ArgumentError: This process is not in the group.

    Example:
        >>> wg.distributed.get_backend()  # doctest: +SKIP
        'mpi'
    """
    target = find_group(group)
    if target is None:
        raise ArgumentError("get_backend: this process is not in the group")
    return target.name()


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """Return this process's number on its machine, from the launcher's variables.

    Args:
        fallback_rank: Returned if the launcher does not say it.

    Raises:
        DistBackendError: The launcher does not say it, and there is no fallback.

    Example:
        >>> wg.distributed.get_node_local_rank(fallback_rank=0) >= 0
        True
    """
    local_rank = read_environment().local_rank
    if local_rank >= 0:
        return local_rank
    if fallback_rank is None:
        raise DistBackendError("get_node_local_rank: no variable of the launcher says it; pass fallback_rank")
    return fallback_rank


def get_process_group_ranks(group: ProcessGroup | None = None) -> list[int]:
    """Return the global ranks of a group's members, in the group's order.

    Args:
        group: The group; None: that of all ranks.

    Raises:
        DistBackendError: `init_process_group` has not been called.

    Example:
        >>> wg.distributed.get_process_group_ranks()  # doctest: +SKIP
        [0, 1]
    """
    target = find_group(group)
    return [] if target is None else list(target._members)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the rank in a group of the process with a global rank.

    Args:
        group: The group.
        global_rank: The process's rank among all processes.

    Raises:
        ArgumentError: The process is not in the group.

    Example:
        >>> pair = wg.distributed.new_group([1, 2])  # doctest: +SKIP
        >>> wg.distributed.get_group_rank(pair, 2)  # doctest: +SKIP
        1
    """
    target = find_group(group)
    if target is None or global_rank not in target._members:
        raise ArgumentError(f"get_group_rank: global rank {global_rank} is not in {target!r}")
    return target._members.index(global_rank)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """Return the global rank of a group's member.

    Args:
        group: The group.
        group_rank: The member's rank in the group.

    Raises:
        ArgumentError: The group has no such rank.

    Example:
        >>> pair = wg.distributed.new_group([1, 2])  # doctest: +SKIP
        >>> wg.distributed.get_global_rank(pair, 1)  # doctest: +SKIP
        2
    """
    target = find_group(group)
    if target is None or not 0 <= group_rank < target.size():
        raise ArgumentError(f"get_global_rank: {target!r} has no rank {group_rank}")
    return target._members[group_rank]
