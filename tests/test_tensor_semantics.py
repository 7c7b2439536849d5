"""Check tensor semantics beyond single ops: writes through views, threads, memory lifetime and streams."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from leaf_tensors import leaf

import weftgrad as wg
from weftgrad.runtime.errors import AnomalyError
from weftgrad.runtime.modes import Mode

RNG = np.random.default_rng(0)


# Writes through views: each function is followed by its functional equivalent


def _row_scaled(x: Any) -> Any:
    y = x * 1
    y[1].mul_(3)
    return y * y


def _row_scaled_functional(x: Any) -> Any:
    factors = wg.tensor([[1.0], [3.0], [1.0], [1.0]], dtype=wg.float64, device="cpu")
    return (x * factors) * (x * factors)


def _base_then_view(x: Any) -> Any:
    y = x * 2
    part = y[:, 1:3]
    y.add_(x)  # writes the base, which the view shares
    y.mul_(2)
    return part.sin()


def _base_then_view_functional(x: Any) -> Any:
    return (6 * x)[:, 1:3].sin()


def _view_of_a_view(x: Any) -> Any:
    y = x * 1
    part = y.T[1:]
    part[:, 2].add_(part[:, 0])
    return y.exp()


def _view_of_a_view_functional(x: Any) -> Any:
    mask = np.zeros((4, 5))
    mask[2, 1:] = 1
    return (x + wg.tensor(mask, device="cpu") * x[0:1]).exp()


def _overwritten(x: Any) -> Any:
    y = x * x
    y[0] = 7.0
    y[:, 4].copy_(x[:, 0])
    return y * x


def _overwritten_functional(x: Any) -> Any:
    keep_mask = np.ones((4, 5))
    keep_mask[0] = 0
    keep_mask[:, 4] = 0
    first_row = np.zeros((4, 5))
    first_row[0, :4] = 7
    last_column = np.zeros((1, 5))
    last_column[0, 4] = 1
    tensors = [wg.tensor(a, device="cpu") for a in (keep_mask, first_row, last_column)]
    return (x * x * tensors[0] + tensors[1] + x[:, 0:1] * tensors[2]) * x


def _self_operand(x: Any) -> Any:
    y = x.sin()
    y.add_(y)
    y += x
    return y


def _self_operand_functional(x: Any) -> Any:
    return 2 * x.sin() + x


def _detached_then_written(x: Any) -> Any:
    y = x * 2
    y.view(20)[::3].zero_()
    return y.reshape(2, 10) * 3


def _detached_then_written_functional(x: Any) -> Any:
    mask = np.ones(20)
    mask[::3] = 0
    return (x * 2 * wg.tensor(mask.reshape(4, 5), device="cpu")).reshape(2, 10) * 3


@pytest.mark.parametrize(
    ("written", "functional"),
    [
        (_row_scaled, _row_scaled_functional), (_base_then_view, _base_then_view_functional),
        (_view_of_a_view, _view_of_a_view_functional),
        (_overwritten, _overwritten_functional), (_self_operand, _self_operand_functional),
        (_detached_then_written, _detached_then_written_functional),
    ],
)  # fmt: skip
def test_writes_through_views_have_the_gradients_of_their_equivalents(
    written: Callable[[Any], Any], functional: Callable[[Any], Any]
) -> None:
    first, second = leaf(), leaf()
    a, b = written(first), functional(second)
    wg.testing.assert_close(a, b)
    weights = wg.tensor(RNG.standard_normal(a.shape), device="cpu")
    (a * weights).sum().backward()
    (b * weights).sum().backward()
    wg.testing.assert_close(first.grad, second.grad)
    assert wg.autograd.gradcheck(written, (leaf(),))
    assert wg.autograd.gradgradcheck(written, (leaf(),))


def test_a_view_knows_the_history_of_its_base() -> None:
    x = leaf()
    y = x * 1
    view = y[0]
    assert view._base is y
    y.detach().zero_()  # not recorded, but the memory is shared
    assert view.tolist() == [0] * 5
    assert view._version == 1
    target = wg.zeros(3, device="cpu")
    target[1:].copy_(leaf([1.0, 2.0]).float())
    assert target.requires_grad
    assert target.grad_fn is not None


# Threads


def test_threads_share_a_stream() -> None:
    """8 threads run 200 calls each, and backward, on the default stream; each must get its own results."""
    count, calls = 8, 200
    wrong: list[str] = []
    start = threading.Barrier(count)

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        try:
            start.wait()
            for step in range(calls // 5):
                values = rng.standard_normal(7 + number * 100).astype(np.float32)
                x = wg.tensor(values, device="cpu", requires_grad=True)
                y = ((x * (number + 1)).sin() + x).sum()  # five calls and their gradients
                y.backward()
                expected = np.cos(values.astype(np.float64) * (number + 1)) * (number + 1) + 1
                if not np.allclose(x.grad.numpy(), expected, atol=1e-4):
                    wrong.append(f"thread {number}, step {step}: {np.abs(x.grad.numpy() - expected).max()}")
        except BaseException as error:
            wrong.append(f"thread {number}: {error!r}")

    threads = [threading.Thread(target=work, args=(i,)) for i in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []


def test_gradient_mode_belongs_to_a_thread() -> None:
    requires_grad_values: list[bool] = []
    with wg.no_grad():
        thread = threading.Thread(target=lambda: requires_grad_values.append((leaf() * 2).requires_grad))
        thread.start()
        thread.join()
        assert not (leaf() * 2).requires_grad
    assert requires_grad_values == [True]


# Memory


@pytest.fixture
def device() -> Any:
    synthetic = wg.testing.synthetic_device(908, "")
    # Allocate what a device needs once, such as its first seed.
    wg.ones(1, device=synthetic, requires_grad=True).sum().backward()
    return synthetic


def test_memory_is_freed_with_the_last_reference(device: Any) -> None:
    gc.collect()
    gc.disable()  # reference counting alone must free the memory
    try:
        allocated = wg.memory_allocated(device)
        x = wg.ones(1 << 16, device=device, requires_grad=True)
        y = (x.sin() * x).exp()
        assert wg.memory_allocated(device) > allocated + 3 * (4 << 16) - 1
        y.sum().backward()
        del y
        assert wg.memory_allocated(device) == allocated + 2 * (4 << 16)  # x and its gradient
        view = x.detach()[3:]
        del x
        assert wg.memory_allocated(device) == allocated + (4 << 16)
        del view
        assert wg.memory_allocated(device) == allocated
    finally:
        gc.enable()


def test_a_steady_loop_allocates_nothing_from_the_driver(device: Any) -> None:
    weight = wg.ones(64, 1000, device=device, requires_grad=True)

    def step() -> float:
        loss = ((weight * 2).tanh() - 0.5).square().mean()
        loss.backward()
        with wg.no_grad():
            weight.sub_(weight.grad * 0.1)
        weight.grad = None
        return float(loss.item())

    first = step()
    wg.reset_peak_memory_stats(device)
    allocations = wg.memory_stats(device)["driver_allocations"]
    losses = [step() for _ in range(20)]
    assert losses[-1] < first
    assert wg.memory_stats(device)["driver_allocations"] == allocations
    assert wg.max_memory_reserved(device) <= 1.3 * max(wg.max_memory_allocated(device), 20 << 20)


def test_a_deep_graph_neither_recurses_nor_leaks(device: Any) -> None:
    allocated = wg.memory_allocated(device)
    x = wg.ones(1, device=device, requires_grad=True)
    y = x
    for _ in range(20_000):
        y = y + 1
    y.sum().backward()
    assert x.grad.item() == 1
    for _ in range(20_000):
        y = y * 1
    del y, x  # freed without a backward pass
    assert wg.memory_allocated(device) == allocated


# Streams


def test_streams_and_events(device: Any) -> None:
    first, second = wg.Stream(device), wg.Stream(device)
    assert first != second
    x = wg.ones(1 << 18, device=device)
    wg.synchronize(device)
    with wg.stream(first):
        assert wg.current_stream(device) == first
        y = x * 2
        for _ in range(20):
            y = y + 1
        done = first.record_event()
    assert wg.current_stream(device) == wg.default_stream(device)
    second.wait_event(done)
    with wg.stream(second):
        z = y * 3
    second.synchronize()
    assert done.query()
    assert z.cpu().numpy()[[0, -1]].tolist() == [66, 66]
    start, end = wg.Event(enable_timing=True), wg.Event(enable_timing=True)
    timed = wg.Stream(device)
    with wg.stream(timed):
        start.record(timed)
        for _ in range(5):
            x = x + 1
        end.record(timed)
    timed.synchronize()
    assert 0 < start.elapsed_time(end) < 10_000


def test_modes_nest_and_intercept_every_call() -> None:
    """The innermost mode intercepts a call first, in-place calls too. Calls outside of modes are not intercepted."""

    class Names(Mode):
        def __init__(self, calls: list[str], mark: str) -> None:
            self.calls, self.mark = calls, mark

        def call(self, record: Any, operands: Any, statics: Any, outs: Any, in_place: bool) -> Any:
            self.calls.append(f"{self.mark}{record.name}{'_' if in_place else ''}")
            return self.proceed(record, operands, statics, outs, in_place)

    calls: list[str] = []
    x = wg.ones(3)
    with Names(calls, "outer "), Names(calls, "inner "):
        x.add_(1)
        y = x * 2
    y + 1
    assert calls == ["inner add_", "outer add_", "inner mul", "outer mul"]
    assert y.tolist() == [4.0] * 3


def test_anomaly_mode_names_the_call_that_made_nan() -> None:
    x = wg.tensor([0.0, 1.0], requires_grad=True)
    with wg.autograd.detect_anomaly():
        y = (x - x).sqrt()  # the derivative of sqrt at 0 is infinite
        with pytest.raises(AnomalyError, match=r"(?s)sqrt.*test_anomaly_mode_names_the_call"):
            (y * 0).sum().backward()
    (y * 0).sum().backward()  # outside, NaN passes
