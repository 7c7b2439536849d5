"""Indices out of range on devices that work on while the host does: nothing waits, and the error comes all the same."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import weftgrad as wg
from weftgrad.nn import functional as F
from weftgrad.runtime import deferred, errors


@pytest.fixture
def place() -> Any:
    return wg.testing.synthetic_device(913, "style=gpu,lanes=4,optimize=0")


def selected(x: Any) -> None:
    """Calls with indices that are right: each looks whether it is known by now that one before was wrong."""
    for _ in range(10000):
        x.index_select(0, wg.tensor([0], device=x.device))


def test_the_error_comes_when_the_host_waits(place: Any) -> None:
    x = wg.zeros(5, 3, device=place)
    for wrong, call in (
        (7, lambda: F.embedding(wg.tensor([1, 7, 0], device=place), x)),
        (-1, lambda: x.gather(0, wg.tensor([[4, -1, 0]], device=place))),
        (-6, lambda: x[wg.tensor([0, -6], device=place)]),
        (5, lambda: x.index_add_(0, wg.tensor([5], device=place), x[:1].clone())),
        (9, lambda: F.cross_entropy(x.T.contiguous(), wg.tensor([1, 9, -100], device=place))),
    ):
        for look in (
            lambda: wg.synchronize(place), lambda: x.sum().item(), lambda: x.tolist(), lambda: x.cpu(),
            wg.current_stream(place).synchronize, lambda: wg.current_stream(place).record_event().synchronize(),
        ):  # fmt: skip
            call()
            assert deferred.pending(place) == 1
            with pytest.raises(errors.IndexOutOfRange, match=f" {wrong} .* (size 5|5 classes)"):
                look()
            assert not deferred.pending(place)
        call()
        with pytest.raises(errors.IndexOutOfRange, match=f" {wrong} "):
            selected(x)
        wg.synchronize(place)
    assert not x.any().item(), "a place outside of the tensor was written"


def test_indices_in_range_leave_nothing_behind(place: Any) -> None:
    x = wg.ones(5, 3, device=place)
    assert x[wg.tensor([-5, 4], device=place)].sum().item() == 6
    target = wg.tensor([1, -100, 0, 2, 1], device=place)
    assert F.cross_entropy(x, target).item() == pytest.approx(1.0986123)
    wg.synchronize(place)
    assert not deferred.pending(place)


def test_the_error_comes_at_the_end_at_the_latest() -> None:
    text = "import weftgrad as wg; wg.ones(3, device='opencl:0').take(wg.tensor([3], device='opencl:0'))"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert "index 3 is out of range for a dimension of size 3" in done.stderr
