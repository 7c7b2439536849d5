"""Check gradients at the borders: NaN, infinities, zeros, limits of clamping.

The expected values are PyTorch's (2.13) where they follow from the formula.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

import weftgrad as wg
import weftgrad.nn.functional as F

DEVICES = ("cpu", "opencl:0")
inf, nan = math.inf, math.nan


def gradients(function: Callable[..., wg.Tensor], *operands: list[float]) -> list[list[float]]:
    """Return the gradients of the sum of `function(*operands)`."""
    tensors = [wg.tensor(operand, requires_grad=True) for operand in operands]
    return [g.tolist() for g in wg.autograd.grad(function(*tensors).sum(), tensors)]


def assert_equal(values: object, expected: object) -> None:
    """Compare nested lists of numbers; NaN equals NaN."""
    np.testing.assert_allclose(np.array(values), np.array(expected), rtol=1e-6)


# Gradients at NaN, infinity and zero ----------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
def test_products_with_a_zero_and_nan_or_infinity(device: str) -> None:
    """Without a zero, the gradient is the product over the element. Else it is the product of the other elements."""
    rows = [
        ([0.0, inf, 2.0], [inf, 0.0, nan]), ([0.0, nan, 2.0], [nan, 0.0, nan]), ([0.0, 3.0, 2.0], [6.0, 0.0, 0.0]),
        ([nan, 3.0, 2.0], [nan, nan, nan]), ([inf, 3.0, 2.0], [nan, inf, inf]), ([inf, -inf, 2.0], [nan, nan, -inf]),
        ([inf, -inf, 0.0], [nan, nan, -inf]), ([inf, nan, 0.0], [nan, nan, nan]), ([nan, nan, 0.0], [nan, nan, nan]),
        ([0.0, 0.0, inf], [nan, nan, 0.0]), ([nan, 0.0, 0.0], [0.0, nan, nan]), ([0.0, 0.0, 3.0], [0.0, 0.0, 0.0]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]), ([-inf, 2.0, -0.0], [-0.0, nan, -inf]),
    ]  # fmt: skip
    for row, expected in rows:
        x = wg.tensor(row, device=device, requires_grad=True)
        assert_equal(wg.autograd.grad(wg.prod(x), [x])[0].tolist(), expected)
    for dim in (0, 1):
        operand = np.array([row for row, _ in rows], np.float32)
        x = wg.tensor(operand if dim else operand.T, device=device, requires_grad=True)
        (grad,) = wg.autograd.grad(x.prod(dim).sum(), [x])
        expected_rows = np.array([expected for _, expected in rows])
        assert_equal(grad.tolist(), expected_rows if dim else expected_rows.T)
    x = wg.tensor([inf, 0.0, 0.0, nan], device=device, requires_grad=True)
    assert_equal(wg.autograd.grad(x.prod(), [x])[0].tolist(), [nan] * 4)


@pytest.mark.parametrize("device", DEVICES)
def test_gradients_of_extremes_are_nan_beside_nan(device: str) -> None:
    rows = [[nan, 1.0, nan, nan], [1.0, 1.0, 0.0, 0.0]]
    for reduce, expected in (
        (lambda x: wg.amax(x, 1), [0.5, 0.5, 0, 0]), (lambda x: wg.amin(x, 1), [0, 0, 0.5, 0.5]),
        (lambda x: sum(wg.aminmax(x, dim=1)), [0.5] * 4),
    ):  # fmt: skip
        x = wg.tensor(rows, device=device, requires_grad=True)
        assert_equal(wg.autograd.grad(reduce(x).sum(), [x])[0].tolist(), [[nan] * 4, expected])
        row = x[0].detach().requires_grad_()
        assert_equal(wg.autograd.grad(sum(wg.aminmax(row)), [row])[0].tolist(), [nan] * 4)


@pytest.mark.parametrize("device", DEVICES)
def test_nans_share_the_gradient_of_max_and_of_norms(device: str) -> None:
    for reduce in (wg.max, wg.min):
        for row, expected in (
            ([1.0, nan, 2.0], [0, 1, 0]), ([nan, 1.0, nan, 3.0], [0.5, 0, 0.5, 0]), ([2.0, 2.0], [0.5, 0.5]),
        ):  # fmt: skip
            x = wg.tensor(row, device=device, requires_grad=True)
            assert wg.autograd.grad(reduce(x), [x])[0].tolist() == expected
    for order in (inf, -inf):
        x = wg.tensor([[1.0, nan], [2.0, -2.0]], device=device, requires_grad=True)
        norms = wg.linalg.vector_norm(x, order, dim=1)
        assert wg.autograd.grad(norms.sum(), [x])[0].tolist() == [[0, 0], [0.5, -0.5]]


def test_losses_pass_nan_to_their_gradients() -> None:
    target = wg.tensor([1.0, 2.0, 3.0])
    for loss in (F.smooth_l1_loss, F.huber_loss, F.mse_loss):
        (grad,) = gradients(lambda x, loss=loss: loss(x, target, reduction="none"), [nan, 2.0, 3.5])
        assert math.isnan(grad[0])
        assert grad[1:] == ([0, 1] if loss is F.mse_loss else [0, 0.5])
    assert gradients(lambda x: F.smooth_l1_loss(x, target, reduction="sum"), [inf, -inf, 4.0]) == [[1, -1, 1]]
    assert gradients(lambda x: F.huber_loss(x, target, reduction="sum", delta=2.0), [inf, -inf, 5.0]) == [[2, -2, 2]]


def test_gradients_of_xlogy_beside_nan_and_zero() -> None:
    first, second = gradients(wg.xlogy, [0.0, 0.0, 2.0, 0.0], [nan, 0.0, 1.0, 3.0])
    assert_equal(first, [nan, 0, 0, math.log(3)])
    assert_equal(second, [nan, nan, 2, 0])


def test_gradients_that_agree_with_pytorch_at_signed_zeros_and_infinities() -> None:
    assert gradients(wg.copysign, [0.0, -0.0, 1.0, -2.0], [1.0, -1.0, -0.0, 0.0]) == [[0, 0, -1, -1], [0] * 4]
    assert_equal(gradients(wg.copysign, [inf, -inf, nan, 1.0], [1.0, 1.0, 1.0, inf])[0], [nan, nan, nan, 1])
    assert gradients(wg.nan_to_num, [1.0, nan, inf, -inf]) == [[1, 0, 0, 0]]
    assert gradients(lambda x: x.cumprod(0), [1.0, 0.0, 3.0, 4.0]) == [[1, 16, 0, 0]]
    assert gradients(lambda x: x.cumprod(0), [0.0, 0.0, 3.0]) == [[1, 0, 0]]
    base, exponent = wg.tensor([2.0, 3.0], dtype=wg.float64, requires_grad=True), wg.tensor([2.0, 0.5])
    (grad,) = wg.autograd.grad((base ** exponent.requires_grad_()).sum(), [base], retain_graph=True)
    assert grad.dtype is wg.float64
    assert_equal(grad.tolist(), [4, 0.5 / math.sqrt(3)])


def test_rounded_quotients_have_the_gradient_zero() -> None:
    x, y = wg.tensor([5.0, -5.0], requires_grad=True), wg.tensor([2.0, 3.0], requires_grad=True)
    for quotient in (
        wg.div(x, y, rounding_mode="floor"), wg.div(x, y, rounding_mode="trunc"), x // y, wg.floor_divide(x, y),
    ):  # fmt: skip
        assert quotient.requires_grad
        assert [g.tolist() for g in wg.autograd.grad(quotient.sum(), [x, y])] == [[0, 0], [0, 0]]
    assert wg.div(x, 2, rounding_mode="floor").tolist() == [2, -3]
    for rounding_mode in ("floor", "trunc"):
        zeros = [0.0, 0.0, -0.0, inf]
        quotient, divisor = gradients(
            lambda a, b, mode=rounding_mode: wg.div(a, b, rounding_mode=mode), [5.0, 0.0, -7.0, 2.0], zeros
        )
        assert quotient == divisor == [0, 0, 0, 0]


def test_standard_deviation_of_one_element_has_no_gradient() -> None:
    assert_equal(gradients(wg.std, [3.0]), [[nan]])
    assert gradients(wg.std, [3.0, 3.0]) == [[0, 0]]
    assert math.isnan(wg.std(wg.tensor([3.0])).item())


# Clamping -------------------------------------------------------------------------------------------------------------


def test_gradients_of_clamp_at_its_limits() -> None:
    """An element equal to a limit gets the gradient; NaN, which is equal to nothing, gets none."""
    x = [-1.0, 0.0, 0.5, 1.0, 2.0, nan]
    for call, expected in (
        (lambda x: x.clamp(0.0, 1.0), [0, 1, 1, 1, 0, 0]), (lambda x: x.clamp_min(0.0), [0, 1, 1, 1, 1, 0]),
        (lambda x: x.clamp(max=1.0), [1, 1, 1, 1, 0, 0]),
    ):  # fmt: skip
        assert gradients(call, x) == [expected]
    assert gradients(wg.clamp_min, [0.0, 1.0, nan, 3.0], [1.0, 1.0, 1.0, nan]) == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert gradients(wg.clamp_max, [0.0, 1.0, nan, 3.0], [-1.0, 1.0, 1.0, nan]) == [[0, 1, 0, 0], [1, 0, 0, 0]]
    low, high = [0.0, 0.0, 1.0, 2.0], [1.0, 0.0, 1.0, 1.0]  # the last pair is crossed: the result is the upper limit
    assert gradients(wg.clamp, [0.0, 0.0, 1.0, 3.0], low, high) == [[1, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 1]]
