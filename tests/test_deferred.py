"""Check indices out of range on asynchronous devices: the call does not wait, and the error is raised later."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import weftgrad as wg
from weftgrad.nn import functional as F
from weftgrad.runtime import deferred, errors


@pytest.fixture
def device() -> Any:
    return wg.testing.synthetic_device(913, "style=gpu,lanes=4,optimize=0")


def issue_valid_calls(x: Any) -> None:
    """Issue calls with valid indices: each of them checks whether the failure of an earlier call is known."""
    for _ in range(10000):
        x.index_select(0, wg.tensor([0], device=x.device))


def test_the_error_comes_when_the_host_waits(device: Any) -> None:
    x = wg.zeros(5, 3, device=device)
    for bad_index, call in (
        (7, lambda: F.embedding(wg.tensor([1, 7, 0], device=device), x)),
        (-1, lambda: x.gather(0, wg.tensor([[4, -1, 0]], device=device))),
        (-6, lambda: x[wg.tensor([0, -6], device=device)]),
        (5, lambda: x.index_add_(0, wg.tensor([5], device=device), x[:1].clone())),
        (9, lambda: F.cross_entropy(x.T.contiguous(), wg.tensor([1, 9, -100], device=device))),
    ):
        for synchronizing_call in (
            lambda: wg.synchronize(device), lambda: x.sum().item(), lambda: x.tolist(), lambda: x.cpu(),
            wg.current_stream(device).synchronize, lambda: wg.current_stream(device).record_event().synchronize(),
        ):  # fmt: skip
            call()
            assert deferred.pending_count(device) == 1
            with pytest.raises(errors.IndexOutOfRange, match=f" {bad_index} .* (size 5|5 classes)"):
                synchronizing_call()
            assert not deferred.pending_count(device)
        call()
        with pytest.raises(errors.IndexOutOfRange, match=f" {bad_index} "):
            issue_valid_calls(x)
        wg.synchronize(device)
    assert not x.any().item(), "an element outside of the tensor was written"


def test_valid_indices_leave_no_pending_checks(device: Any) -> None:
    x = wg.ones(5, 3, device=device)
    assert x[wg.tensor([-5, 4], device=device)].sum().item() == 6
    target = wg.tensor([1, -100, 0, 2, 1], device=device)
    assert F.cross_entropy(x, target).item() == pytest.approx(1.0986123)
    wg.synchronize(device)
    assert not deferred.pending_count(device)


def test_the_error_is_printed_at_exit() -> None:
    text = "import weftgrad as wg; wg.ones(3, device='opencl:0').take(wg.tensor([3], device='opencl:0'))"
    process = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True)
    assert "index 3 is out of range for a dimension of size 3" in process.stderr


def test_the_call_does_not_wait(device: Any) -> None:
    """A check copies two numbers to the host; neither the call nor the garbage collector waits for the copies."""
    x, index = wg.ones(5, 3, device=device), wg.tensor([1], device=device)
    slow = wg.ones(1 << 22, device=device)
    x.index_select(0, index), slow.exp()  # compiled before
    wg.synchronize(device)
    for _ in range(10):
        slow.exp()
    last_exp = wg.current_stream(device).record_event()
    x.index_select(0, index)
    assert not last_exp.query()
    assert deferred.pending_count(device) == 1
    wg.synchronize(device)
    assert not deferred.pending_count(device)
