"""Barriers: calls that return when all ranks of a group have called them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

from .process_group import ProcessGroup, find_group
from .works import Work

__all__ = ["barrier", "monitored_barrier"]


def barrier(
    group: ProcessGroup | None = None,
    async_op: bool = False,
    device_ids: Sequence[int] | None = None,
    timeout: timedelta | None = None,
) -> Work | None:
    """Wait until all ranks of the group have called it.

    Args:
        group: The group; default: all ranks.
        async_op: Return a `Work` at once.
        device_ids: Ignored.
        timeout: How long to wait; default: the group's timeout.

    Returns:
        `Work` if `async_op`, else None.

    Example:
        >>> wg.distributed.barrier()  # doctest: +SKIP
    """
    target = find_group(group)
    if target is None:
        return None
    seconds = None if timeout is None else timeout.total_seconds()
    return target._start("barrier", None, async_op=async_op, timeout=seconds)


def monitored_barrier(
    group: ProcessGroup | None = None, timeout: timedelta | None = None, wait_all_ranks: bool = False
) -> None:
    """Wait until all ranks of the group have called it; the error says which have not.

    Args:
        group: The group; default: all ranks.
        timeout: How long to wait; default: the group's timeout.
        wait_all_ranks: Ignored: the error always names all ranks that are missing.

    Raises:
        CollectiveTimeout: Ranks are missing.

    Example:
        >>> from datetime import timedelta
        >>> wg.distributed.monitored_barrier(timeout=timedelta(seconds=30))  # doctest: +SKIP
    """
    target = find_group(group)
    if target is not None:
        seconds = None if timeout is None else timeout.total_seconds()
        target._start("monitored_barrier", None, timeout=seconds)
