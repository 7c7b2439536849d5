"""Process groups: ranks that communicate, each group with communicators of its own."""

from __future__ import annotations

import hashlib
import os
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from typing import Any

from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .errors import DistBackendError
from .headers import HEADER_BYTES, describe, pack
from .launchers import read_environment
from .nccl import find_library
from .reduce_ops import ReduceOp
from .works import Steps, Work, leave_in_background
from .world import World, start_world

__all__ = [
    "GroupMember", "ProcessGroup", "destroy_process_group", "find_group", "get_backend", "get_global_rank",
    "get_group_rank", "get_node_local_rank", "get_process_group_ranks", "get_rank", "get_world_size", "group",
    "init_process_group", "is_available", "is_gloo_available", "is_initialized", "is_mpi_available",
    "is_nccl_available", "is_torchelastic_launched", "new_group", "new_subgroups",
]  # fmt: skip

_BACKENDS = {"mpi": "mpi", "gloo": "mpi", "nccl": "nccl"}
_DEFAULT_TIMEOUT = timedelta(minutes=30)


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
            steps: What is to be done; None if gathering the headers is all.
            dtype: The tensor's dtype, shape, the reduction, and the root's rank in the group, which must agree.
            shape: See `dtype`.
            op: See `dtype`.
            root: See `dtype`.
            route: Index into `headers.ROUTES`.
            is_serial: The steps start MPI requests after others have completed, on `_serial_comm`: the group's works
                of this kind run one after the other, so that all ranks start their requests in the same order.
            outputs: The tensors that are written.
            async_op: Whether to return the work instead of waiting.
            timeout: Seconds; default: the group's.
            request: In place of steps: starts one request on the communicator that it is called with.
            inputs: Tensors that must stay alive until the work is waited for.
        """
        world = self._world
        header = pack(self._call_count, kind, dtype, shape, op, root, route)
        self._call_count += 1
        if world.failure is not None:
            world.raise_failure(describe(header))
        header_request = gathered = None
        with world.lock:
            if self._size > 1:
                gathered = bytearray(HEADER_BYTES * self._size)
                header_request = self._header_comm.Iallgather(header, gathered)
            work = Work(
                world, self._members, self._timeout if timeout is None else timeout, header, header_request, gathered,
                steps, self._queue if is_serial else None, outputs,
                None if request is None else [request(self._data_comm)],
            )  # fmt: skip
        work._inputs = inputs
        world.last_work = work
        if async_op:
            leave_in_background(work)
            return work
        work.wait()
        return None


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
_group_count = 0


def is_available() -> bool:
    """Return whether mpi4py is installed, on which `weftgrad.distributed` is built.

    Returns:
        bool.

    Example:
        >>> wg.distributed.is_available() in (True, False)
        True
    """
    return find_spec("mpi4py") is not None


def is_mpi_available() -> bool:
    """Return whether the backend `mpi` can be used, as `is_available` does.

    Example:
        >>> wg.distributed.is_mpi_available() == wg.distributed.is_available()
        True
    """
    return is_available()


def is_gloo_available() -> bool:
    """Return whether programs can name the backend `gloo`, which means `mpi` here.

    Example:
        >>> wg.distributed.is_gloo_available() == wg.distributed.is_available()
        True
    """
    return is_available()


def is_nccl_available() -> bool:
    """Return whether NCCL's library is installed.

    Example:
        >>> wg.distributed.is_nccl_available() in (True, False)
        True
    """
    return find_library() is not None


def is_torchelastic_launched() -> bool:
    """Return whether `torchrun` or `weftgrad launch`, which sets its variables, has started the process.

    Example:
        >>> wg.distributed.is_torchelastic_launched() in (True, False)
        True
    """
    return "TORCHELASTIC_RUN_ID" in os.environ


def is_initialized() -> bool:
    """Return whether `init_process_group` has created the group of all ranks.

    Returns:
        bool.

    Example:
        >>> wg.distributed.is_initialized()
        False
    """
    return _default_group is not None


def init_process_group(
    backend: str | None = None,
    init_method: str | None = None,
    timeout: timedelta | None = None,
    world_size: int = -1,
    rank: int = -1,
    store: object = None,
    group_name: str = "",
    pg_options: object = None,
    device_id: object = None,
) -> None:
    """Join all processes of the job, and create the group of all ranks. Every process calls it once.

    The launcher starts the processes: `mpiexec -n 4 python train.py`, `weftgrad launch -n 4 train.py` or Slurm's
    `srun`. Without a launcher there is one rank.

    Args:
        backend: `mpi`, or `nccl` for CUDA tensors by NCCL (other tensors go by MPI). PyTorch's `gloo` means `mpi`. The
            default, and pairs such as `cpu:gloo,cuda:nccl`, use NCCL for CUDA tensors if it is installed.
        init_method: `env://` or None: the ranks come from the launcher.
        timeout: How long a collective may take before it raises `CollectiveTimeout`; default 30 minutes.
        world_size: The expected number of ranks; -1: any.
        rank: The expected rank; -1: any.
        store: Must be None.
        group_name: Ignored, as in PyTorch.
        pg_options: Ignored.
        device_id: Ignored.

    Raises:
        DistBackendError: It was called before, MPI is missing, or the launcher's ranks are not MPI's.
        ArgumentError: The backend or the method is unknown, or rank or world size is not the launcher's.

    Example:
        >>> wg.distributed.init_process_group()  # doctest: +SKIP
        >>> wg.distributed.get_world_size()  # doctest: +SKIP
        4
    """
    global _default_group
    if _default_group is not None:
        raise DistBackendError("init_process_group: the group exists; call destroy_process_group first")
    engine = _read_backend(backend)
    if init_method not in (None, "env://") or store is not None:
        raise ArgumentError(
            f"init_process_group: init_method={init_method!r}: ranks come from the launcher; pass 'env://' and no store"
        )
    seconds = (_DEFAULT_TIMEOUT if timeout is None else timeout).total_seconds()
    world = start_world(seconds)
    if rank not in (-1, world.rank) or world_size not in (-1, world.size):
        raise ArgumentError(
            f"init_process_group: rank={rank}, world_size={world_size}: MPI says rank {world.rank} of {world.size}"
        )
    world.describe_activity = lambda: _describe_activity(world)
    members = tuple(range(world.size))
    with world.guard("init_process_group", seconds):
        comms = [world.comm.Dup() for _ in range(3)]
    _default_group = ProcessGroup(world, members, comms, "default", engine, seconds)


def _describe_activity(world: World) -> str:
    work: Work | None = world.last_work
    if work is None:
        return "has not called a collective yet"
    call = describe(work._header)
    return f"has completed {call} and called none since" if work._done else f"waits in {call}"


def _read_backend(backend: str | None) -> str:
    if backend is None:
        return "mpi"
    names = {part.rpartition(":")[2] for part in backend.lower().split(",")}
    if unknown := names - _BACKENDS.keys():
        raise ArgumentError(f"init_process_group: unknown backend {sorted(unknown)[0]!r}; use 'mpi' or 'nccl'")
    return "nccl" if "nccl" in names else "mpi"


def find_group(group: object) -> ProcessGroup | None:
    """Return the group that a collective's argument means; None if this process is not in it.

    Raises:
        DistBackendError: There is no group yet.
        TypeError: It is no group.
    """
    if group is None or group is GroupMember or group is _Group:
        if _default_group is None:
            raise DistBackendError("there is no process group; call init_process_group first")
        return _default_group
    if group is GroupMember.NON_GROUP_MEMBER:
        warnings.warn("a collective of a group that this process is not in does nothing", stacklevel=3)
        return None
    if not isinstance(group, ProcessGroup):
        raise TypeError(f"group: expects a ProcessGroup, not {type(group).__name__}")
    return group


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Give up a group; without an argument, the group of all ranks. MPI itself ends with the program.

    Args:
        group: The group.

    Example:
        >>> wg.distributed.destroy_process_group()  # doctest: +SKIP
    """
    global _default_group
    target = find_group(group)
    if target is None:
        return
    while target._queue and target._world.failure is None:
        target._queue[0].wait()
    if target is _default_group:
        _default_group = None


def get_rank(group: ProcessGroup | None = None) -> int:
    """Return this process's rank in a group; -1 if it is not in it.

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

    Example:
        >>> wg.distributed.get_process_group_ranks()  # doctest: +SKIP
        [0, 1]
    """
    target = find_group(group)
    return [] if target is None else list(target._members)


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """Return the rank in a group of the process with a global rank.

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


def new_group(
    ranks: Sequence[int] | None = None,
    timeout: timedelta | None = None,
    backend: str | None = None,
    pg_options: object = None,
    use_local_synchronization: bool = False,
    group_desc: str | None = None,
    device_id: object = None,
) -> Any:
    """Create a group of some ranks. Every rank of the job calls it, in the same order, also those outside of the group.

    Args:
        ranks: The global ranks; None: all.
        timeout: How long the group's collectives may take; default: as in the group of all ranks.
        backend: As in `init_process_group`; default: that of the group of all ranks.
        pg_options: Ignored.
        use_local_synchronization: Only the members call.
        group_desc: A name for messages.
        device_id: Ignored.

    Returns:
        `ProcessGroup`, or `GroupMember.NON_GROUP_MEMBER` in processes outside of the group.

    Raises:
        ArgumentError: A rank is missing in the job or is named twice.
        CollectiveMismatch: The ranks name different members.

    Example:
        >>> pair = wg.distributed.new_group([0, 1])  # on every rank  # doctest: +SKIP
    """
    global _group_count
    default = find_group(None)
    assert default is not None
    world = default._world
    members = tuple(range(world.size)) if ranks is None else tuple(sorted(int(rank) for rank in ranks))
    if len(set(members)) != len(members) or (members and not 0 <= members[0] <= members[-1] < world.size):
        raise ArgumentError(f"new_group: ranks {list(members)} are not different ranks below {world.size}")
    digest = hashlib.sha256(repr(members).encode()).digest()
    fingerprint = int.from_bytes(digest[:6], "little")
    if not use_local_synchronization:
        default._start("new_group", None, shape=(fingerprint,))
    if world.rank not in members:
        return GroupMember.NON_GROUP_MEMBER
    name = group_desc or f"group of ranks {', '.join(map(str, members))}"
    seconds = default._timeout if timeout is None else timeout.total_seconds()
    with world.guard(f"new_group ({name})", default._timeout):
        mpi_group = world.comm.Get_group().Incl(members)
        first = world.comm.Create_group(mpi_group, fingerprint & 0x7FFF)
        comms = [first, first.Dup(), first.Dup()]
    _group_count += 1
    engine = default._backend if backend is None else _read_backend(backend)
    return ProcessGroup(world, members, comms, name, engine, seconds)


def new_subgroups(
    group_size: int | None = None, group: ProcessGroup | None = None, timeout: timedelta | None = None
) -> tuple[Any, list[Any]]:
    """Divide the ranks into groups of neighbours. Every rank calls it.

    Args:
        group_size: Ranks in each group; default: the ranks on a machine, by the launcher's variables.
        group: Must be None.
        timeout: As in `new_group`.

    Returns:
        The group of this process, and the list of all groups.

    Raises:
        ArgumentError: The number of ranks is not a multiple of `group_size`.

    Example:
        >>> mine, groups = wg.distributed.new_subgroups(2)  # doctest: +SKIP
    """
    size = get_world_size()
    local_size = read_environment().local_size
    width = group_size or (local_size if local_size > 0 else size)
    if size % width:
        raise ArgumentError(f"new_subgroups: {size} ranks are not a multiple of group_size {width}")
    groups = [new_group(range(start, start + width), timeout) for start in range(0, size, width)]
    return groups[get_rank() // width], groups
