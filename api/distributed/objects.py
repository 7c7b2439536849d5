"""Collectives of Python objects, which travel pickled. Unpickle only what ranks of your own job have sent."""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np

from ..runtime.errors import ArgumentError
from .collectives import root_rank
from .process_group import ProcessGroup, find_group
from .works import Steps

__all__ = ["all_gather_object", "broadcast_object_list", "gather_object", "scatter_object_list"]


def all_gather_object(object_list: list[Any], obj: Any, group: ProcessGroup | None = None) -> None:
    """Fill a list with the ranks' objects, on every rank.

    Args:
        object_list: List with an entry for each rank, to be overwritten.
        obj: This rank's object; it must be picklable.
        group: The group; default: all ranks.

    Raises:
        ArgumentError: The list has another length.

    Example:
        >>> names = [None, None]
        >>> wg.distributed.all_gather_object(names, "a")  # with 2 ranks  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return
    if len(object_list) != target.size():
        raise ArgumentError(f"all_gather_object: a list of {len(object_list)} entries for {target.size()} ranks")
    _run(target, "all_gather_object", lambda comm: _gather(comm, pickle.dumps(obj), object_list, None))


def gather_object(
    obj: Any,
    object_gather_list: list[Any] | None = None,
    dst: int | None = None,
    group: ProcessGroup | None = None,
    group_dst: int | None = None,
) -> None:
    """Fill a list with the ranks' objects, on one rank.

    Args:
        obj: This rank's object; it must be picklable.
        object_gather_list: On the destination a list with an entry for each rank; None elsewhere.
        dst: Global rank of the destination, default 0; or `group_dst`.
        group: The group; default: all ranks.
        group_dst: Rank of the destination in the group.

    Raises:
        ArgumentError: The destination's list has another length.

    Example:
        >>> wg.distributed.gather_object("a", dst=0)  # on rank 1  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return
    root = root_rank(target, "gather_object", dst, group_dst, default=0)
    objects = object_gather_list
    if target.rank() == root and (objects is None or len(objects) != target.size()):
        raise ArgumentError(f"gather_object: the destination passes a list with an entry for each of {target.size()}")
    _run(
        target,
        "gather_object",
        lambda comm: _gather(comm, pickle.dumps(obj), objects if comm.rank == root else None, root),
        root,
    )


def broadcast_object_list(
    object_list: list[Any],
    src: int | None = None,
    group: ProcessGroup | None = None,
    device: object = None,
    group_src: int | None = None,
) -> None:
    """Copy a list of objects from one rank to all.

    Args:
        object_list: List of the same length on every rank; overwritten on other ranks than the source.
        src: Global rank of the source, default 0; or `group_src`.
        group: The group; default: all ranks.
        device: Ignored.
        group_src: Rank of the source in the group.

    Example:
        >>> settings = [{"lr": 0.1}]
        >>> wg.distributed.broadcast_object_list(settings, src=0)  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return
    root = root_rank(target, "broadcast_object_list", src, group_src, default=0)

    def steps(comm: Any) -> Steps:
        content = pickle.dumps(object_list) if comm.rank == root else b""
        size = np.array([len(content)], np.int64)
        yield [comm.Ibcast(size, root)]
        buffer = np.frombuffer(bytearray(content), np.uint8) if comm.rank == root else np.empty(size[0], np.uint8)
        yield [comm.Ibcast(buffer, root)]
        if comm.rank != root:
            object_list[:] = pickle.loads(buffer.tobytes())

    _run(target, "broadcast_object_list", steps, root, len(object_list))


def scatter_object_list(
    scatter_object_output_list: list[Any],
    scatter_object_input_list: list[Any] | None = None,
    src: int | None = None,
    group: ProcessGroup | None = None,
    group_src: int | None = None,
) -> None:
    """Send each rank one object of a list that one rank has.

    Args:
        scatter_object_output_list: List whose first entry is overwritten with the object that arrives.
        scatter_object_input_list: On the source a list with an object for each rank; None elsewhere.
        src: Global rank of the source, default 0; or `group_src`.
        group: The group; default: all ranks.
        group_src: Rank of the source in the group.

    Raises:
        ArgumentError: The output list is empty, or the source's list has another length.

    Example:
        >>> received = [None]
        >>> wg.distributed.scatter_object_list(received, None, src=0)  # on rank 1  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return
    if not scatter_object_output_list:
        raise ArgumentError("scatter_object_list: the output list needs an entry")
    root = root_rank(target, "scatter_object_list", src, group_src, default=0)
    inputs = scatter_object_input_list
    if target.rank() == root and (inputs is None or len(inputs) != target.size()):
        raise ArgumentError(f"scatter_object_list: the source passes a list with an object for each of {target.size()}")

    def steps(comm: Any) -> Steps:
        is_source = comm.rank == root
        contents = [pickle.dumps(item) for item in inputs or ()] if is_source else []
        sizes = np.array([len(c) for c in contents], np.int64) if is_source else None
        size = np.empty(1, np.int64)
        yield [comm.Iscatter(sizes, size, root)]
        received = np.empty(size[0], np.uint8)
        sent = [np.frombuffer(b"".join(contents), np.uint8), sizes] if is_source else None
        yield [comm.Iscatterv(sent, received, root)]
        scatter_object_output_list[0] = pickle.loads(received.tobytes())

    _run(target, "scatter_object_list", steps, root)


def _gather(comm: Any, content: bytes, objects: list[Any] | None, root: int | None) -> Steps:
    """Gather pickled objects of different sizes, on one rank or on all, and unpickle them into `objects`."""
    sizes = np.empty(comm.size, np.int64)
    yield [comm.Iallgather(np.array([len(content)], np.int64), sizes)]
    sent = np.frombuffer(content, np.uint8)
    received = np.empty(sizes.sum() if objects is not None else 0, np.uint8)
    if root is None:
        yield [comm.Iallgatherv(sent, [received, sizes])]
    else:
        yield [comm.Igatherv(sent, [received, sizes] if comm.rank == root else None, root)]
    if objects is not None:
        stream = io.BytesIO(received.tobytes())
        start = 0
        for position, size in enumerate(sizes.tolist()):
            stream.seek(start)
            objects[position] = pickle.load(stream)
            start += size


def _run(group: ProcessGroup, kind: str, steps: Callable[[Any], Steps], root: int = -1, length: int = 0) -> None:
    """Run a collective of objects. `length` must be the same on all ranks."""
    group._start(kind, steps(group._serial_comm), shape=(length,) if length else (), root=root, is_serial=True)
