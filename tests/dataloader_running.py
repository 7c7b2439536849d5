"""Checks that data loaders leave no processes or shared segments behind, and seeded generators, for their tests."""

from __future__ import annotations

import gc
import os
import sys
import time
import types
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import weftgrad as wg
import weftgrad.multiprocessing as mp

__all__ = ["replace_main", "seeded"]


def open_segments() -> int:
    """Return how many shared segments this process holds. They are memory files, so /dev/shm does not list them."""
    folder = Path("/proc/self/fd")
    targets = [_target(fd) for fd in folder.iterdir()] if folder.is_dir() else []
    return sum("memfd:weftgrad" in target for target in targets)


def _target(fd: Path) -> str:
    try:
        return os.readlink(fd)
    except OSError:
        return ""


def seeded(number: int = 0) -> wg.Generator:
    """Return a generator with this seed."""
    return wg.Generator().manual_seed(number)


@contextmanager
def replace_main(monkeypatch: pytest.MonkeyPatch) -> Iterator[types.ModuleType]:
    """Replace `__main__` by a module without a file, so that workers do not import pytest; check for leftovers."""
    module = types.ModuleType("__main__")
    monkeypatch.setitem(sys.modules, "__main__", module)
    count_before = open_segments()
    yield module
    gc.collect()
    assert not [p for p in mp.active_children() if p.name.startswith("DataLoader")]
    end = time.monotonic() + 60  # a segment is closed shortly after its last user has answered
    while open_segments() > count_before and time.monotonic() < end:
        time.sleep(0.01)
    assert open_segments() <= count_before
