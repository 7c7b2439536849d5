"""`torch.cuda.nvtx`: ranges for a profiler, which are recorded by `weftgrad.profiler`.

NVIDIA's tools do not see them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from ...profiler import record_function

__all__ = ["mark", "range", "range_end", "range_pop", "range_push", "range_start"]


class _OpenRanges(threading.local):
    """The ranges of a thread that have begun and not ended."""

    def __init__(self) -> None:
        self.stack: list[record_function] = []
        self.by_id: dict[int, record_function] = {}
        self.last_id = 0


_open = _OpenRanges()


def range_push(msg: str) -> int:
    """Begin a range within the current one; return its depth, 0 for the outermost."""
    _open.stack.append(record_function(msg))
    _open.stack[-1].__enter__()
    return len(_open.stack) - 1


def range_pop() -> int:
    """End the range that began last; return its depth, or -1 if there is none."""
    if not _open.stack:
        return -1
    _open.stack.pop().__exit__(None, None, None)
    return len(_open.stack)


def range_start(msg: str) -> int:
    """Begin a range that may end after ranges that began before it; return its number for `range_end`."""
    _open.last_id += 1
    _open.by_id[_open.last_id] = record_function(msg)
    _open.by_id[_open.last_id].__enter__()
    return _open.last_id


def range_end(range_id: int) -> None:
    """End the range that `range_start` returned this number for."""
    _open.by_id.pop(range_id).__exit__(None, None, None)


def mark(msg: str) -> None:
    """Record a range without length."""
    with record_function(msg):
        pass


@contextmanager
def range(msg: str, *args: object, **kwargs: object) -> Iterator[None]:
    """Record what runs within as a range. `msg` may have fields for the other arguments, as in `str.format`."""
    with record_function(msg.format(*args, **kwargs)):
        yield
