"""The beginning and the end of process groups: `init_process_group`, `new_group`, `destroy_process_group`."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from ..runtime.errors import ArgumentError
from .errors import DistBackendError
from .launchers import read_environment
from .process_group import (
    GroupMember,
    ProcessGroup,
    find_group,
    get_rank,
    get_world_size,
    is_initialized,
    set_default_group,
)
from .process_manager import has_launcher
from .world import start_world

__all__ = ["destroy_process_group", "init_process_group", "new_group", "new_subgroups"]

_BACKENDS = {"mpi": "mpi", "gloo": "mpi", "nccl": "nccl"}
_DEFAULT_TIMEOUT = timedelta(minutes=30)

_groups: list[ProcessGroup] = []
"""The groups of this process that have not been destroyed; the first is that of all ranks."""


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
    `srun`. A program may also start them by itself, with `multiprocessing.spawn`, and pass `rank` and `world_size`; MPI
    has to be MPICH then, or a library that comes from it. Without any of that there is one rank.

    Args:
        backend: `mpi`, or `nccl` for CUDA tensors by NCCL (other tensors go by MPI). PyTorch's `gloo` means `mpi`. The
            default, and pairs such as `cpu:gloo,cuda:nccl`, use NCCL for CUDA tensors if it is installed.
        init_method: `env://` or None: the ranks meet at `MASTER_ADDR` and `MASTER_PORT`, if no launcher of MPI has
            started them. `tcp://node1:29500`: they meet there.
        timeout: How long a collective may take before it raises `CollectiveTimeout`; default 30 minutes.
        world_size: The number of ranks, which must be the launcher's if there is one; -1: that of the launcher.
        rank: This process's rank, likewise.
        store: Must be None.
        group_name: Ignored, as in PyTorch.
        pg_options: Ignored.
        device_id: Ignored.

    Raises:
        DistBackendError: It was called before, MPI is missing, or the launcher's ranks are not MPI's.
        DistNetworkError: The ranks that no launcher of MPI has started do not meet.
        ArgumentError: The backend or the method is unknown, or rank or world size is not the launcher's.

    Example:
        >>> wg.distributed.init_process_group()  # doctest: +SKIP
        >>> wg.distributed.get_world_size()  # doctest: +SKIP
        4
    """
    if is_initialized():
        raise DistBackendError("init_process_group: the group exists; call destroy_process_group first")
    engine = _read_backend(backend)
    if store is not None:
        raise ArgumentError("init_process_group: store: ranks meet without a store; pass None")
    variables = _meeting_variables(init_method, rank, world_size)
    seconds = _seconds("init_process_group", _DEFAULT_TIMEOUT if timeout is None else timeout)
    with _in_environment(variables):
        world = start_world(seconds)
    if rank not in (-1, world.rank) or world_size not in (-1, world.size):
        raise ArgumentError(
            f"init_process_group: rank={rank}, world_size={world_size}: MPI says rank {world.rank} of {world.size}"
        )
    members = tuple(range(world.size))
    with world.guard("init_process_group", seconds):
        comms = [world.comm.Dup() for _ in range(3)]
    group = ProcessGroup(world, members, comms, "default", engine, seconds)
    _groups.append(group)
    set_default_group(group)


def _meeting_variables(init_method: str | None, rank: int, world_size: int) -> dict[str, str]:
    """Return torchrun's variables that arguments of `init_process_group` stand for; none under a launcher of MPI."""
    variables = {}
    if init_method not in (None, "env://"):
        try:
            parts = urlsplit(str(init_method))
            port = parts.port
        except ValueError:
            port = None
        if port is None or parts.scheme != "tcp" or not parts.hostname or parts.query or parts.path.strip("/"):
            raise ArgumentError(
                f"init_process_group: init_method={init_method!r}: pass 'env://', or an address and a port where the "
                "ranks meet, as in 'tcp://node1:29500'"
            )
        variables = {"MASTER_ADDR": parts.hostname, "MASTER_PORT": str(port)}
    if has_launcher():
        return {}
    if rank >= 0 and world_size > 0 and ("MASTER_ADDR" in os.environ or variables):
        if rank >= world_size:
            raise ArgumentError(f"init_process_group: rank={rank}: ranks of world_size={world_size} begin at 0")
        variables |= {"RANK": str(rank), "WORLD_SIZE": str(world_size)}
    elif variables and not (read_environment().launcher == "torchrun" and rank == world_size == -1):
        raise ArgumentError(
            f"init_process_group: init_method={init_method!r}: no launcher has started this process; pass its rank and "
            "the world_size"
        )
    return variables


@contextmanager
def _in_environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables for the time of the context."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _seconds(name: str, timeout: timedelta) -> float:
    """Return the seconds of a `timedelta`. Raise `TypeError` for anything else."""
    if not isinstance(timeout, timedelta):
        raise TypeError(f"{name}: timeout must be a datetime.timedelta, not {type(timeout).__name__}")
    return timeout.total_seconds()


def _read_backend(backend: str | None) -> str:
    if backend is None:
        return "mpi"
    names = {part.rpartition(":")[2] for part in backend.lower().split(",")}
    if unknown := names - _BACKENDS.keys():
        raise ArgumentError(f"init_process_group: unknown backend {sorted(unknown)[0]!r}; use 'mpi' or 'nccl'")
    return "nccl" if "nccl" in names else "mpi"


def destroy_process_group(group: ProcessGroup | None = None) -> None:
    """Free a group's communicators. All of its ranks call it. MPI itself ends with the program.

    Args:
        group: The group. Default: the group of all ranks, and with it all others.

    Raises:
        DistBackendError: There is no group, or it has been destroyed.

    Example:
        >>> wg.distributed.destroy_process_group()  # doctest: +SKIP
        >>> wg.distributed.is_initialized()
        False
    """
    target = find_group(group)
    if target is None:
        return
    is_default = target is _groups[0]
    for member in list(_groups) if is_default else [target]:
        member._destroy()
        _groups.remove(member)
    if is_default:
        set_default_group(None)


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
    seconds = default._timeout if timeout is None else _seconds("new_group", timeout)
    with world.guard(f"new_group ({name})", default._timeout):
        mpi_group = world.comm.Get_group().Incl(members)
        first = world.comm.Create_group(mpi_group, fingerprint & 0x7FFF)
        comms = [first, first.Dup(), first.Dup()]
    engine = default._backend if backend is None else _read_backend(backend)
    group = ProcessGroup(world, members, comms, name, engine, seconds)
    _groups.append(group)
    return group


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
