"""Gradients of calls that write over what their own backward needs: as PyTorch, they keep a copy of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.autograd import gradcheck, gradgradcheck
from weftgrad.runtime.errors import ShapeError, VersionError
from weftgrad.runtime.layout import disjoint

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
def test_what_is_written_over_is_kept_for_backward(name: str) -> None:
    """First and second derivatives, by differences."""

    def program(x: Any) -> Any:
        y = x * 2.0
        WRITES[name](y, x)
        return y * y

    x = wg.tensor(np.random.default_rng(0).uniform(0.6, 1.4, (3, 4)), requires_grad=True)
    assert gradcheck(program, [x])
    assert gradgradcheck(program, [x])


def test_a_constant_that_is_multiplied_is_kept() -> None:
    x, y = wg.tensor([1.0, 2.0], requires_grad=True), wg.tensor([3.0, 5.0])
    y.mul_(x)
    y.sum().backward()
    assert x.grad.tolist() == [3.0, 5.0]
    assert y.tolist() == [3.0, 10.0]


def test_nothing_is_copied_that_backward_does_not_read() -> None:
    """y.mul_(2) needs its number, y.exp_() its result, and without recording nothing is needed."""
    x = wg.ones(1000, requires_grad=True)
    y = x * 2.0
    before = y.device.driver.launches
    y.mul_(2.0)
    y.exp_()
    with wg.no_grad():
        y.sin_()
    assert y.device.driver.launches - before == 3


def test_a_later_write_is_still_noticed() -> None:
    """The copy is of what the call read; what another call saved, and is then written, is an error as before."""
    x = wg.ones(3, requires_grad=True)
    y = x * 2.0
    z = y.sin()
    y.cos_()
    with pytest.raises(VersionError, match="sin"):
        z.sum().backward()


def test_parts_that_lie_between_each_other_are_no_overlap() -> None:
    """As boxes are written: corners plus sizes, each two columns of one tensor."""
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
    x.copy_(x.view(wg.int64))  # of one size: each is read before it is written
    np.testing.assert_array_equal(x.numpy(), np.arange(6.0).view(np.int64).astype(np.float64))


def test_disjoint_views_are_told_from_those_that_meet() -> None:
    rng = np.random.default_rng(0)
    whole = np.arange(5 * 6 * 12).reshape(5, 6, 12)

    def part() -> Any:
        turned = np.transpose(whole, rng.permutation(3) if rng.random() < 0.4 else None)
        where = []
        for size in turned.shape:
            low, high = sorted(rng.integers(0, size + 1, 2))
            where.append(slice(low, max(high, low + 1), rng.integers(1, 3)) if low < size else slice(None))
        return turned[tuple(where)]

    found = {True: 0, False: 0}
    for _ in range(400):
        a, b = part(), part()
        low = min(a.flat[0], b.flat[0])
        views = [(v.shape, tuple(s // 8 for s in v.strides), int(v.flat[0] - low)) for v in (a, b)]
        apart = disjoint(*views)
        assert not (apart and np.intersect1d(a, b).size), views
        found[apart] += 1
    assert min(found.values()) > 50, found
