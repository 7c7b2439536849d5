"""Elementwise functions of the array API standard against NumPy, by units of the dtype's eps."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from array_api_samples import FLOATS, INF, INTEGERS, NAN, NUMERIC, NUMPY_FOLLOWS, check, sample, xp

import weftgrad as wg

pytestmark = pytest.mark.skipif(not NUMPY_FOLLOWS, reason="NumPy follows the standard from 2.1 on")
SPECIAL = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 1e300, -1e300, 1e-300, 5e-324)


def special(dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return np.array([False, True])
        if dtype in FLOATS:
            return np.array(SPECIAL, dtype)
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.min // 2, 0, 1, 2, 3, 7, limits.max // 2, limits.max], dtype)


# The dtypes of each function in the standard, and the relative tolerance in units of the dtype's eps; 0: exact.
UNARY = {
    "abs": (NUMERIC, 0), "acos": (FLOATS, 4), "acosh": (FLOATS, 4), "asin": (FLOATS, 4), "asinh": (FLOATS, 4),
    "atan": (FLOATS, 4), "atanh": (FLOATS, 4), "bitwise_invert": (("bool", *INTEGERS), 0), "ceil": (NUMERIC, 0),
    "conj": (FLOATS, 0), "cos": (FLOATS, 4), "cosh": (FLOATS, 4), "exp": (FLOATS, 4), "expm1": (FLOATS, 4),
    "floor": (NUMERIC, 0), "isfinite": (NUMERIC, 0), "isinf": (NUMERIC, 0), "isnan": (NUMERIC, 0), "log": (FLOATS, 4),
    "log10": (FLOATS, 4), "log1p": (FLOATS, 4), "log2": (FLOATS, 4), "logical_not": (("bool",), 0),
    "negative": (NUMERIC, 0), "positive": (NUMERIC, 0), "real": (FLOATS, 0), "reciprocal": (FLOATS, 1),
    "round": (NUMERIC, 0), "sign": (NUMERIC, 0), "signbit": (FLOATS, 0), "sin": (FLOATS, 4), "sinh": (FLOATS, 4),
    "sqrt": (FLOATS, 1), "square": (NUMERIC, 0), "tan": (FLOATS, 4), "tanh": (FLOATS, 4), "trunc": (NUMERIC, 0),
}  # fmt: skip

BINARY = {
    "add": (NUMERIC, 0), "atan2": (FLOATS, 4), "bitwise_and": (("bool", *INTEGERS), 0),
    "bitwise_left_shift": (INTEGERS, 0), "bitwise_or": (("bool", *INTEGERS), 0), "bitwise_right_shift": (INTEGERS, 0),
    "bitwise_xor": (("bool", *INTEGERS), 0), "copysign": (FLOATS, 0), "divide": (FLOATS, 1),
    "equal": (("bool", *NUMERIC), 0), "floor_divide": (NUMERIC, 0), "greater": (NUMERIC, 0),
    "greater_equal": (NUMERIC, 0), "hypot": (FLOATS, 4), "less": (NUMERIC, 0), "less_equal": (NUMERIC, 0),
    "logaddexp": (FLOATS, 4), "logical_and": (("bool",), 0), "logical_or": (("bool",), 0),
    "logical_xor": (("bool",), 0),
    "maximum": (NUMERIC, 0), "minimum": (NUMERIC, 0), "multiply": (NUMERIC, 0), "nextafter": (FLOATS, 0),
    "not_equal": (("bool", *NUMERIC), 0), "pow": (NUMERIC, 4), "remainder": (NUMERIC, 1), "subtract": (NUMERIC, 0),
}  # fmt: skip


def compare_elements(result, expected, units: int, dtype: str) -> None:
    """Compare within a few units: relative, except below the smallest normal number."""
    if not units or dtype not in FLOATS:
        check(result, expected)
        return
    got = result.numpy()
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    limits = np.finfo(dtype)
    np.testing.assert_allclose(got, expected, rtol=units * float(limits.eps), atol=float(limits.tiny))


@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_element(name):
    kinds, units = UNARY[name]
    for dtype in kinds:
        x = special(dtype)
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(x))
        if name in ("isfinite", "isinf", "isnan", "signbit", "logical_not"):
            expected = expected.astype(bool)
        compare_elements(getattr(xp, name)(wg.tensor(x)), expected, units, dtype)


def operands(name: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all pairs of special values for which the standard defines the function."""
    pairs = np.array(list(itertools.product(special(dtype), repeat=2)), dtype=dtype)
    a, b = pairs[:, 0], pairs[:, 1]
    if dtype in INTEGERS:
        defined = np.ones(len(a), bool)
        if name in ("floor_divide", "remainder"):
            defined = (b != 0) & ~((a == np.iinfo(dtype).min) & (b == -1))
        elif name == "pow":
            defined = b >= 0
        elif name.endswith("shift"):
            defined = (b >= 0) & (b < np.iinfo(dtype).bits)
        a, b = a[defined], b[defined]
    return a, b


@pytest.mark.parametrize("name", BINARY)
def test_functions_of_two_elements(name):
    kinds, units = BINARY[name]
    for dtype in kinds:
        a, b = operands(name, dtype)
        with np.errstate(all="ignore"):
            expected = getattr(np, name)(a, b)
        compare_elements(getattr(xp, name)(wg.tensor(a), wg.tensor(b)), expected, units, dtype)


@pytest.mark.parametrize("name", [name for name in BINARY if len(BINARY[name][0]) > 1])
def test_dtypes_and_shapes_of_two_tensors(name):
    """Promotion inside of a kind, where a tensor without dimensions counts like any other, and numbers."""
    kinds = BINARY[name][0]
    for first, second in itertools.combinations([k for k in kinds if k != "bool"], 2):
        if (first in FLOATS) != (second in FLOATS):
            continue
        for shapes in (((2, 1), (3,)), ((2,), ()), ((), (2,)), ((), ())):
            a, b = np.abs(sample(shapes[0], first)) + 1, np.abs(sample(shapes[1], second, 1)) + 1
            a, b = np.asarray(a, first), np.asarray(b, second)
            expected = getattr(np, name)(a, b)
            result = getattr(xp, name)(wg.tensor(a), wg.tensor(b))
            assert (str(result.dtype), result.shape) == (f"weftgrad.{expected.dtype}", expected.shape), (first, second)
    dtype = kinds[-1]
    x = wg.tensor(sample((2,), dtype)) if dtype != "uint8" else wg.tensor([1, 2], dtype="uint8")
    for result in (getattr(xp, name)(x, 2), getattr(xp, name)(2, x)):
        assert result.shape == (2,)
        assert result.dtype in (x.dtype, wg.bool)
    with pytest.raises(TypeError, match=name):
        getattr(xp, name)(1, 2)
    with pytest.raises(TypeError, match=name):
        getattr(xp, name)(x, [1, 2])


def test_clip():
    for dtype in NUMERIC:
        x = special(dtype)
        low, high = np.asarray(1, dtype), np.asarray(3, dtype)
        check(xp.clip(wg.tensor(x), 1, 3), np.clip(x, low, high))
        check(xp.clip(wg.tensor(x), wg.tensor(low), wg.tensor(high)), np.clip(x, low, high))
        check(xp.clip(wg.tensor(x), min=1), np.clip(x, low, None))
        check(xp.clip(wg.tensor(x), max=3), np.clip(x, None, high))
        check(xp.clip(wg.tensor(x)), x)
    x = sample((2, 3))
    bounds = sample((3,), seed=1), sample((2, 1), seed=2)
    check(xp.clip(wg.tensor(x), *map(wg.tensor, bounds)), np.clip(x, *bounds))
    assert np.isnan(xp.clip(wg.tensor([1.0, 2.0]), NAN, 3.0).numpy()).all()
    with pytest.raises(TypeError, match="clip"):
        xp.clip(wg.tensor([1, 2]), 0.5)


def test_where():
    condition = sample((2, 3), "bool")
    for first, second in (("int8", "int16"), ("float32", "float64"), ("int32", "int32")):
        for shape in ((2, 3), (3,), ()):
            a, b = sample(shape, first), sample((2, 1), second, 1)
            check(xp.where(wg.tensor(condition), wg.tensor(a), wg.tensor(b)), np.where(condition, a, b))
    a = sample((2, 3), "float32")
    check(xp.where(wg.tensor(condition), wg.tensor(a), 0), np.where(condition, a, np.float32(0)))
    check(xp.where(wg.tensor(condition), 1.5, wg.tensor(a)), np.where(condition, np.float32(1.5), a))


def test_gradients_are_recorded():
    x = wg.tensor([0.5, 2.0], requires_grad=True)
    xp.sum(xp.multiply(xp.square(x), xp.exp(x))).backward()
    v = np.array([0.5, 2.0])
    np.testing.assert_allclose(x.grad.numpy(), (2 * v + v * v) * np.exp(v), rtol=1e-6)
