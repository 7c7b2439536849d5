"""Check gradients of in-place ops that overwrite what their own backward reads: they save a copy, as in PyTorch."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.autograd import gradcheck, gradgradcheck
from weftgrad.runtime.errors import ShapeError, VersionError
from weftgrad.runtime.layout import are_disjoint

Write = Callable[[Any, Any], Any]

WRITES: dict[str, Write] = {
    "y.sin_()": lambda y, x: y.sin_(),
    "y.mul_(x)": lambda y, x: y.mul_(x),
    "y.mul_(y)": lambda y, x: y.mul_(y),
    "row of y, times a row of x": lambda y, x: y[1].mul_(x[0]),
    "column of y": lambda y, x: y[:, 1].sin_(),
    "twice": lambda y, x: y.sin_().mul_(x).sin_(),
}


@pytest.mark.parametrize("name", WRITES)
def test_overwritten_inputs_are_saved_for_backward(name: str) -> None:
    """Compare first and second derivatives with central differences."""

    def program(x: Any) -> Any:
        y = x * 2.0
        WRITES[name](y, x)
        return y * y

    x = wg.tensor(np.random.default_rng(0).uniform(0.6, 1.4, (3, 4)), requires_grad=True)
    assert gradcheck(program, [x])
    assert gradgradcheck(program, [x])


def test_a_multiplied_constant_is_saved_for_backward() -> None:
    x, y = wg.tensor([1.0, 2.0], requires_grad=True), wg.tensor([3.0, 5.0])
    y.mul_(x)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 5.0]
    assert y.tolist() == [3.0, 10.0]


def test_nothing_is_copied_that_backward_does_not_read() -> None:
    """Backward of y.mul_(2) reads the number, of y.exp_() the result, and no_grad() saves nothing: no copies."""
    x = wg.ones(1000, requires_grad=True)
    y = x * 2.0
    launches_before = y.device.driver.launches
    y.mul_(2.0)
    y.exp_()
    with wg.no_grad():
        y.sin_()
    assert y.device.driver.launches - launches_before == 3


def test_a_later_write_is_still_noticed() -> None:
    """The copy serves the in-place call only: overwriting what another op saved is still an error."""
    x = wg.ones(3, requires_grad=True)
    y = x * 2.0
    z = y.sin()
    y.cos_()
    with pytest.raises(VersionError, match="sin"):
        z.sum().backward()


def test_interleaved_parts_do_not_overlap() -> None:
    """Boxes keep corners and sizes in pairs of columns of one tensor, and are updated in place."""
    expected = np.arange(24.0).reshape(6, 4)
    boxes = wg.tensor(expected, device="cpu")
    boxes[:, 2:] += boxes[:, :2]
    expected[:, 2:] += expected[:, :2]
    boxes[:, 0::2] += boxes[:, 1::2]
    expected[:, 0::2] += expected[:, 1::2]
    np.testing.assert_array_equal(boxes.numpy(), expected)
    with pytest.raises(ShapeError, match="share memory"):
        boxes[:, 1:] += boxes[:, :3]


def test_the_same_memory_in_elements_of_another_size_is_an_overlap() -> None:
    x = wg.arange(6.0, dtype=wg.float64, device="cpu")
    with pytest.raises(ShapeError, match="share memory"):
        x.copy_(x.view(wg.float32)[:6])
    with pytest.raises(ShapeError, match="share memory"):
        x[:3].view(wg.float32).mul_(x)
    x.copy_(x.view(wg.int64))  # elements of one size: each is read before it is written
    np.testing.assert_array_equal(x.numpy(), np.arange(6.0).view(np.int64).astype(np.float64))


def test_are_disjoint_finds_overlapping_views() -> None:
    rng = np.random.default_rng(0)
    base = np.arange(5 * 6 * 12).reshape(5, 6, 12)

    def random_view() -> Any:
        transposed = np.transpose(base, rng.permutation(3) if rng.random() < 0.4 else None)
        slices = []
        for size in transposed.shape:
            low, high = sorted(rng.integers(0, size + 1, 2))
            slices.append(slice(low, max(high, low + 1), rng.integers(1, 3)) if low < size else slice(None))
        return transposed[tuple(slices)]

    counts = {True: 0, False: 0}
    for _ in range(400):
        a, b = random_view(), random_view()
        base_offset = min(a.flat[0], b.flat[0])
        views = [(v.shape, tuple(s // 8 for s in v.strides), int(v.flat[0] - base_offset)) for v in (a, b)]
        disjoint = are_disjoint(*views)
        assert not (disjoint and np.intersect1d(a, b).size), views
        counts[disjoint] += 1
    assert min(counts.values()) > 50, counts


# Writes that select nothing -------------------------------------------------------------------------------------------

NOTHING = wg.tensor([], dtype=wg.int64, device="cpu")
NO_ROWS = wg.zeros(4, dtype=wg.bool, device="cpu")
EMPTY_WRITES: dict[str, Write] = {
    "mask": lambda target, row: target.__setitem__(NO_ROWS, row),
    "mask of a dimension": lambda target, row: target.__setitem__((slice(None), NO_ROWS[:3]), row.sum()),
    "list": lambda target, row: target.__setitem__([], row),
    "slice": lambda target, row: target.__setitem__(slice(4, None), row.to(wg.float32)),
    "index_put_": lambda target, row: target.index_put_((NOTHING,), row),
    "index_put_ adds": lambda target, row: target.index_put_((NOTHING,), row, accumulate=True),
    "index_add_": lambda target, row: target.index_add_(0, NOTHING, row[None][:0]),
    "index_copy_": lambda target, row: target.index_copy_(0, NOTHING, row[None][:0]),
    "index_fill_": lambda target, row: target.index_fill_(0, NOTHING, row.sum()),
    "index_reduce_": lambda target, row: target.index_reduce_(0, NOTHING, row[None][:0], "amax"),
    "scatter_": lambda target, row: target.scatter_(0, NOTHING.view(0, 3), row[None][:0]),
    "scatter_add_": lambda target, row: target.scatter_add_(0, NOTHING.view(0, 3), row[None]),
    "scatter_reduce_": lambda target, row: target.scatter_reduce_(0, NOTHING.view(0, 3), row[None], "sum"),
    "masked_scatter_": lambda target, row: target.masked_scatter_(NO_ROWS[:, None], row),
    "put_": lambda target, row: target.put_(NOTHING, row[:0]),
    "copy_": lambda target, row: target[4:].copy_(row),
    "scatter_add": lambda target, row: target.copy_(wg.scatter_add(target, 0, NOTHING.view(0, 3), row[None])),
    "index_put": lambda target, row: target.copy_(wg.index_put(target, (NOTHING,), row)),
}


@pytest.mark.parametrize("name", EMPTY_WRITES)
def test_the_gradient_of_a_write_that_selects_nothing_is_zero(name: str) -> None:
    """An expert of a mixture that gets no tokens of a batch stays in the graph, as in PyTorch; it had no gradient."""
    for target in (wg.zeros(4, 3, device="cpu"), wg.ones(4, 3, device="cpu", requires_grad=True) * 2):
        before = target.detach().clone()
        row = wg.tensor([1.0, 2.0, 3.0], device="cpu", requires_grad=True)
        EMPTY_WRITES[name](target, row)
        assert target.requires_grad
        assert wg.equal(target.detach(), before)
        target.sum().backward()
        assert row.grad is not None
        assert row.grad.tolist() == [0.0, 0.0, 0.0]
        with wg.no_grad():
            EMPTY_WRITES[name](before, row)
        assert not before.requires_grad
