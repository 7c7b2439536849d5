"""The incomplete gamma functions under PyTorch's names: values, dtypes, gradients, in-place forms and errors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from math_points import INCOMPLETE_GAMMA

import weftgrad as wg
from weftgrad.runtime.errors import ArgumentError, DTypeError, GradientError

SHAPES, POINTS, LOWER, UPPER = np.array(INCOMPLETE_GAMMA).T


def column(values: Any, dtype: Any = None, requires_grad: bool = False) -> Any:
    return wg.tensor(values, dtype=dtype or wg.float64, device="cpu", requires_grad=requires_grad)


def assert_close(actual: Any, expected: Any, rtol: float) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=rtol, atol=0)


@pytest.mark.parametrize("dtype", [wg.float64, wg.float32], ids=str)
def test_values_under_every_name(dtype: Any) -> None:
    rtol = 2e-14 if dtype is wg.float64 else 6e-8
    a, x = column(SHAPES, dtype), column(POINTS, dtype)
    assert wg.igamma(a, x).dtype is dtype
    for result in (wg.igamma(a, x), wg.special.gammainc(a, x), a.igamma(x), a.clone().igamma_(x)):
        assert_close(result, LOWER, rtol)
    for result in (wg.igammac(a, x), wg.special.gammaincc(a, x), a.igammac(x), a.clone().igammac_(x)):
        assert_close(result, UPPER, rtol)


def test_out_and_views() -> None:
    a, x = column([[1.0, 2.0], [3.0, 4.0]]).T, column([0.5, 3.0])
    expected = 1 - np.exp(-0.5), 1 - np.exp(-3.0) * (1 + 3 + 4.5)
    out = column(np.zeros((2, 2)))
    assert wg.igamma(a, x, out=out) is out
    np.testing.assert_allclose([out[0, 0].item(), out[0, 1].item()], expected, rtol=1e-15)
    a[:, 1].igammac_(x)
    np.testing.assert_allclose(a[0, 1].item(), np.exp(-0.5) * (1 + 0.5 + 0.125), rtol=1e-15)
    assert wg.igamma(column([]), column([])).shape == (0,)


def test_half_dtypes_and_promotion() -> None:
    a, x = column([1.0, 2.0]), column([1.0, 2.0], wg.float16)
    assert wg.igamma(a.half(), x).dtype is wg.float16
    assert wg.igamma(a, x).dtype is wg.float64
    assert wg.igamma(wg.tensor([1, 2], device="cpu"), a.float()).dtype is wg.float32
    np.testing.assert_allclose(wg.igamma(a.half(), x).numpy(), [0.63212056, 0.59399415], rtol=1e-3)


@pytest.mark.parametrize(("function", "sign"), [(wg.igamma, 1), (wg.igammac, -1)])
def test_gradient_is_the_density(function: Callable[..., Any], sign: int) -> None:
    """For a = 2 the density is x exp(-x); PyTorch's formula is NaN at a = 1 and x = 0."""
    x = column([0.25, 2.0, 700.0], requires_grad=True)
    (slope,) = wg.autograd.grad(function(column([2.0]), x).sum(), x, create_graph=True)
    values = np.array([0.25, 2.0, 700.0])
    assert_close(slope, sign * values * np.exp(-values), 1e-15)
    (curvature,) = wg.autograd.grad(slope.sum(), x)
    assert_close(curvature, sign * (1 - values) * np.exp(-values), 1e-14)
    at_zero = column([0.0, 0.0, 0.0], requires_grad=True)
    function(column([0.5, 1.0, 2.0]), at_zero).sum().backward()
    assert at_zero.grad is not None
    assert_close(at_zero.grad, sign * np.array([np.inf, 1.0, 0.0]), 0)


@pytest.mark.parametrize("function", [wg.igamma, wg.igammac])
def test_gradients_match_differences(function: Callable[..., Any]) -> None:
    a = column([0.3, 2.5, 11.0, 12.0, 40.0])
    x = column([0.5, 7.0, 9.0, 14.0, 90.0], requires_grad=True)
    assert wg.autograd.gradcheck(lambda t: function(a, t), [x], rtol=1e-5)
    assert wg.autograd.gradgradcheck(lambda t: function(a, t), [x], rtol=1e-5)


def test_shapes_have_no_gradient() -> None:
    a, x = column([1.0], requires_grad=True), column([1.0])
    for function, name in ((wg.igamma, "igamma"), (wg.igammac, "igammac"), (wg.special.gammainc, "igamma")):
        with pytest.raises(GradientError, match=rf"{name}: there is no gradient with respect to input"):
            function(a, x)
    with wg.no_grad():
        assert_close(a.igammac_(x), np.exp(-1), 1e-15)


def test_operands_are_tensors() -> None:
    for function in (wg.igamma, wg.igammac):
        for operands in ((1.0, column([1.0])), (column([1.0]), 1.0)):
            with pytest.raises((ArgumentError, TypeError)):
                function(*operands)
    with pytest.raises(DTypeError):
        wg.tensor([1, 2], device="cpu").igamma_(column([1.0, 2.0]))
