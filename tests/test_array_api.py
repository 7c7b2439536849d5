"""The array API standard, function by function, against NumPy's own namespace, which follows it."""

from __future__ import annotations

import importlib.util
import itertools
import math
import os
import sys
from pathlib import Path

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.errors import WeftgradError

xp = wg.ones(1).__array_namespace__()
ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
NUMPY_FOLLOWS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
pytestmark = pytest.mark.skipif(not NUMPY_FOLLOWS, reason="NumPy follows the standard from 2.1 on")

NAN, INF = math.nan, math.inf
SPECIAL = (NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, -2.5, 3.0, -3.0, 1e300, -1e300, 1e-300, 5e-324)
FLOATS, INTEGERS = ("float32", "float64"), ("int8", "uint8")  # few, because each op and dtype is a kernel to compile
NUMERIC = (*FLOATS, *INTEGERS)


def special(dtype: str) -> np.ndarray:
    with np.errstate(all="ignore"):
        if dtype == "bool":
            return np.array([False, True])
        if dtype in FLOATS:
            return np.array(SPECIAL, dtype)
        limits = np.iinfo(dtype)
        return np.array([limits.min, limits.min // 2, 0, 1, 2, 3, 7, limits.max // 2, limits.max], dtype)


def sample(shape, dtype: str = "float64", seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if dtype == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype in FLOATS:
        return rng.standard_normal(shape).astype(dtype)
    return rng.integers(0 if dtype == "uint8" else -5, 6, shape).astype(dtype)


def check(result, expected, rtol: float = 0.0) -> None:
    """Compare dtype, shape and values: with rtol 0 also the signs of zeros."""
    assert isinstance(result, wg.Tensor), type(result)
    got = result.numpy()
    expected = np.asarray(expected)
    assert got.dtype == expected.dtype, (got.dtype, expected.dtype)
    assert got.shape == expected.shape, (got.shape, expected.shape)
    if rtol:
        np.testing.assert_allclose(got, expected, rtol=rtol, atol=rtol)
    else:
        np.testing.assert_array_equal(got, expected)
        if got.dtype.kind == "f":
            number = ~np.isnan(expected)
            np.testing.assert_array_equal(np.signbit(got)[number], np.signbit(expected)[number])


# --- Elementwise functions --------------------------------------------------------------------------------------------

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


def tolerance(units: int, dtype: str) -> float:
    return units * float(np.finfo(dtype).eps) if dtype in FLOATS else 0.0


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


# --- Creation and dtypes ----------------------------------------------------------------------------------------------


def test_arange_and_linspace():
    for arguments in ((5,), (2, 7), (7, 2, -2), (0, 10, 3), (3, 3), (5, 2), (0.0, 1.0, 0.3), (1, 0, 0.5), (0, 1, 0.25)):
        expected = np.arange(*arguments)
        result = xp.arange(*arguments)
        kind = "int64" if expected.dtype.kind == "i" else "float32"
        check(result, expected.astype(kind), 1e-6 if kind == "float32" else 0)
    check(xp.arange(3, dtype=xp.float64), np.arange(3.0))
    for num, endpoint in itertools.product((0, 1, 2, 5), (True, False)):
        expected = np.linspace(-1.0, 3.0, num, endpoint=endpoint)
        check(xp.linspace(-1.0, 3.0, num, endpoint=endpoint, dtype=xp.float64), expected, 1e-15)
    assert xp.linspace(0, 1, 3).dtype == wg.float32


def test_asarray():
    check(xp.asarray([[1, 2], [3, 4]]), np.array([[1, 2], [3, 4]]))
    check(xp.asarray(True), np.array(True))
    check(xp.asarray(1.5, dtype=xp.float64), np.array(1.5))
    check(xp.asarray([1.5, 2]), np.array([1.5, 2], "float32"))
    x = wg.ones(3)
    assert xp.asarray(x) is x
    assert xp.asarray(x, copy=False) is x
    assert xp.asarray(x, copy=True).data_ptr() != x.data_ptr()
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray(x, dtype=xp.float64, copy=False)
    array = np.arange(3.0)
    assert xp.asarray(array, device="cpu").data_ptr() == array.ctypes.data
    assert xp.asarray(memoryview(array), device="cpu").data_ptr() == array.ctypes.data
    with pytest.raises(ValueError, match="copy=False"):
        xp.asarray([1, 2], copy=False)

    class Producer:
        def __dlpack__(self, **options):
            return array.__dlpack__()

        def __dlpack_device__(self):
            return (1, 0)

    assert xp.asarray(Producer(), device="cpu").data_ptr() == array.ctypes.data
    assert xp.from_dlpack(Producer(), copy=True).tolist() == [0, 1, 2]


@pytest.mark.parametrize("name", ["empty", "ones", "zeros"])
def test_tensors_of_one_value(name):
    for shape in (3, (2, 3), (), (0, 2)):
        for dtype in (None, "int16", "bool", "float64"):
            expected = getattr(np, name)(shape, dtype or "float32")
            result = getattr(xp, name)(shape, dtype=None if dtype is None else getattr(xp, dtype))
            if name == "empty":
                assert (str(result.dtype), result.shape) == (f"weftgrad.{expected.dtype}", expected.shape)
            else:
                check(result, expected)
    x = wg.ones(2, 3, dtype=wg.int8)
    like = getattr(xp, f"{name}_like")
    assert (like(x).shape, like(x).dtype, like(x, dtype=xp.float32).dtype) == ((2, 3), wg.int8, wg.float32)
    if name != "empty":
        check(like(x), getattr(np, f"{name}_like")(x.numpy()))


def test_full_eye_and_triangles():
    check(xp.full((2, 3), 7), np.full((2, 3), 7))
    check(xp.full(2, True), np.full(2, True))
    check(xp.full((), 1.5, dtype=xp.float64), np.full((), 1.5))
    check(xp.full_like(wg.zeros(2, dtype=wg.int8), 3), np.full(2, 3, "int8"))
    for rows, columns, k in itertools.product((0, 1, 3, 4), (None, 3, 5), (0, 1, -2, 6, -6)):
        check(xp.eye(rows, columns, k=k), np.eye(rows, columns, k, dtype="float32"))
        check(xp.eye(rows, columns, k=k, dtype=xp.int16), np.eye(rows, columns, k, dtype="int16"))
    x = sample((2, 3, 4))
    for k in (-5, -1, 0, 2, 7):
        check(xp.tril(wg.tensor(x), k=k), np.tril(x, k))
        check(xp.triu(wg.tensor(x), k=k), np.triu(x, k))


def test_meshgrid():
    vectors = [np.arange(n) for n in (2, 3, 4)]
    for count, indexing in itertools.product((1, 2, 3), ("xy", "ij")):
        results = xp.meshgrid(*map(wg.tensor, vectors[:count]), indexing=indexing)
        assert isinstance(results, list)
        for result, expected in zip(results, np.meshgrid(*vectors[:count], indexing=indexing), strict=True):
            check(result, expected)
    assert xp.meshgrid() == []


def test_result_type_can_cast_and_isdtype():
    names = ("bool", "int16", "int32", "int64", *NUMERIC)
    for first, second in itertools.product(names, repeat=2):
        if "bool" in (first, second) and first != second:
            continue
        if (first in FLOATS) == (second in FLOATS):
            expected = np.result_type(np.dtype(first), np.dtype(second))
            for a in (getattr(xp, first), wg.zeros((), dtype=first), wg.zeros(2, dtype=first)):
                assert str(xp.result_type(a, getattr(xp, second))) == f"weftgrad.{expected}", (first, second)
            assert xp.can_cast(getattr(xp, first), getattr(xp, second)) == np.can_cast(first, second), (first, second)
        kinds = (
            "bool",
            "signed integer",
            "unsigned integer",
            "integral",
            "real floating",
            "complex floating",
            "numeric",
        )
        for kind in (*kinds, ("bool", "integral")):
            assert xp.isdtype(getattr(xp, first), kind) == np.isdtype(np.dtype(first), kind)
    assert xp.isdtype(xp.int8, xp.int8)
    assert not xp.isdtype(xp.int8, (xp.int16, "bool"))
    assert xp.result_type(wg.ones(1, dtype=wg.int8), 3) == wg.int8
    assert xp.result_type(wg.ones(1, dtype=wg.float64), 3.5, True) == wg.float64
    assert xp.can_cast(wg.ones(1, dtype=wg.int8), xp.int16)
    with pytest.raises(ValueError, match="no kind"):
        xp.isdtype(xp.int8, "integer")
    with pytest.raises(TypeError):
        xp.result_type(1, 2)
    with pytest.raises(TypeError):
        xp.can_cast("int8", xp.int16)


def test_limits_of_dtypes():
    for name in FLOATS:
        ours, theirs = xp.finfo(getattr(xp, name)), np.finfo(name)
        values = (ours.bits, ours.eps, ours.max, ours.min, ours.smallest_normal)
        assert values == (theirs.bits, theirs.eps, theirs.max, theirs.min, theirs.smallest_normal)
        assert ours.dtype == getattr(xp, name)
    for name in INTEGERS:
        ours, theirs = xp.iinfo(wg.zeros(1, dtype=name)), np.iinfo(name)
        assert (ours.bits, ours.max, ours.min) == (theirs.bits, theirs.max, theirs.min)


def test_astype():
    x = wg.tensor([0.0, 1.5, -2.5])
    for dtype in ("bool", "int8", "int64", *FLOATS):
        check(xp.astype(x, getattr(xp, dtype)), x.numpy().astype(dtype))
    assert xp.astype(x, xp.float32).data_ptr() != x.data_ptr()
    assert xp.astype(x, xp.float32, copy=False) is x
    assert xp.astype(x, xp.float64, device=x.device).device == x.device


def test_inspection():
    info, numpy_info = xp.__array_namespace_info__(), np.__array_namespace_info__()
    assert info.capabilities().keys() >= {"boolean indexing", "data-dependent shapes", "max dimensions"}
    assert info.default_device() == wg.get_default_device()
    assert info.default_device() in info.devices()
    assert info.default_dtypes() == {"real floating": wg.float32, "integral": wg.int64, "indexing": wg.int64}
    missing = {"uint16", "uint32", "uint64", "complex64", "complex128"}
    for kind in (None, "bool", "signed integer", "unsigned integer", "integral", "real floating", "numeric",
                 ("bool", "real floating")):  # fmt: skip
        expected = set(numpy_info.dtypes(kind=kind)) - missing
        assert set(info.dtypes(kind=kind)) == expected
    assert (xp.e, xp.pi, xp.inf, xp.newaxis, xp.__array_api_version__) == (math.e, math.pi, INF, None, "2024.12")
    assert math.isnan(xp.nan)
    x = wg.ones(2)
    assert x.__array_namespace__(api_version="2023.12") is xp is x.__array_namespace__()
    with pytest.raises(ValueError, match=r"2020\.01"):
        x.__array_namespace__(api_version="2020.01")
    assert x.to_device(x.device) is x
    assert x.to_device("meta").device.type == "meta"


# --- Manipulation and indexing ----------------------------------------------------------------------------------------


def test_shapes():
    x = sample((2, 3, 4))
    t = wg.tensor(x)
    for axis in (0, 1, 3, -1, -4, (0, 2), (-1, 0)):
        check(xp.expand_dims(t, axis=axis), np.expand_dims(x, axis))
    with pytest.raises(IndexError):
        xp.expand_dims(t, axis=5)
    for axes in ((0, 1, 2), (2, 0, 1), (-1, 0, 1)):
        check(xp.permute_dims(t, axes), np.permute_dims(x, axes))
    for source, destination in ((0, -1), ((0, 1), (2, 0)), (-1, 0)):
        check(xp.moveaxis(t, source, destination), np.moveaxis(x, source, destination))
    y = sample((1, 3, 1))
    for axis in (0, 2, -1, (0, 2), (-3, -1)):
        check(xp.squeeze(wg.tensor(y), axis), np.squeeze(y, axis))
    with pytest.raises(ValueError, match="squeeze"):
        xp.squeeze(wg.tensor(y), 1)
    for shape in ((6, 4), (-1,), (24,), (2, 1, 12), (4, -1)):
        check(xp.reshape(t, shape), np.reshape(x, shape))
        check(xp.reshape(xp.permute_dims(t, (2, 0, 1)), shape), np.reshape(np.permute_dims(x, (2, 0, 1)), shape))
    assert xp.reshape(t, (6, 4), copy=True).data_ptr() != t.data_ptr()
    assert xp.reshape(t, (6, 4), copy=False).data_ptr() == t.data_ptr()
    with pytest.raises(ValueError, match="copy=False"):
        xp.reshape(xp.permute_dims(t, (2, 0, 1)), (24,), copy=False)
    check(xp.broadcast_to(wg.tensor(y), (5, 2, 3, 4)), np.broadcast_to(y, (5, 2, 3, 4)))
    z = sample((2, 1, 4))
    for result, expected in zip(xp.broadcast_arrays(*map(wg.tensor, (y, z))), np.broadcast_arrays(y, z), strict=True):
        check(result, expected)
    for axis in (0, 1, -1):
        results = xp.unstack(t, axis=axis)
        assert isinstance(results, tuple)
        for result, expected in zip(results, np.unstack(x, axis=axis), strict=True):
            check(result, expected)


def test_joining_and_repeating():
    x, y = sample((2, 3), "int8"), sample((2, 3), "int32", 1)
    pair = [wg.tensor(x), wg.tensor(y)]
    for axis in (0, 1, -1, None):
        check(xp.concat(pair, axis=axis), np.concat([x, y], axis=axis))
    for axis in (0, 1, 2, -1):
        check(xp.stack(tuple(pair), axis=axis), np.stack([x, y], axis=axis))
    t = pair[1]
    for axis in (None, 0, 1, -1, (0, 1)):
        check(xp.flip(t, axis=axis), np.flip(y, axis))
    for shift, axis in ((1, None), (-4, None), (1, 0), (2, -1), ((1, 2), (0, 1)), (1, (0, 1)), (7, 1)):
        check(xp.roll(t, shift, axis=axis), np.roll(y, shift, axis))
    for repeats, axis in ((2, None), (0, 0), (3, 1)):
        check(xp.repeat(t, repeats, axis=axis), np.repeat(y, repeats, axis))
    counts = np.array([1, 0, 2])
    check(xp.repeat(t, wg.tensor(counts), axis=1), np.repeat(y, counts, 1))
    check(xp.repeat(t, wg.tensor(2)), np.repeat(y, 2))
    for repetitions in ((2,), (2, 1), (1, 2, 3), (), (0, 2)):
        check(xp.tile(t, repetitions), np.tile(y, repetitions))


def test_take():
    x = sample((3, 4))
    t = wg.tensor(x)
    for axis, indices in ((0, [2, 0, -1]), (1, [3, -4, 0, 1, 1]), (-1, [])):
        for dtype in ("int32", "int64"):
            positions = np.array(indices, dtype)
            check(xp.take(t, wg.tensor(positions), axis=axis), np.take(x, positions.astype("int64"), axis))
    check(xp.take(t[0], wg.tensor([1, -1])), np.take(x[0], [1, -1]))
    for axis in (0, 1, -1):
        positions = np.argsort(x, axis=axis)
        check(xp.take_along_axis(t, wg.tensor(positions), axis=axis), np.take_along_axis(x, positions, axis))
        length = x.shape[axis]
        check(xp.take_along_axis(t, wg.tensor(positions - length), axis=axis), np.take_along_axis(x, positions, axis))
    check(xp.take_along_axis(t, wg.tensor([[1], [-1], [0]])), np.take_along_axis(x, np.array([[1], [-1], [0]]), -1))
    for function, arguments in ((xp.take, (t, wg.tensor([0]))), (xp.take, (t[0], wg.tensor([0.5])))):
        with pytest.raises(ValueError, match="take"):
            function(*arguments)
    for bad in (7, -5):
        with pytest.raises(IndexError):
            xp.take(t, wg.tensor([bad]), axis=1)
    with pytest.raises(ValueError, match="axes"):
        xp.take_along_axis(t, wg.tensor([0]), axis=0)


# --- Reductions -------------------------------------------------------------------------------------------------------

AXES = (None, 0, -1, (0, 2), (), (-1, 1))


@pytest.mark.parametrize("name", ["sum", "prod", "max", "min", "mean", "std", "var", "all", "any", "count_nonzero"])
def test_reductions(name):
    kinds = {
        "mean": FLOATS,
        "std": FLOATS,
        "var": FLOATS,
        "sum": ("float64", "int8", "uint8"),
        "max": ("float32", "int8"),
    }
    kinds = kinds.get(name, ("float64", "int8"))
    for dtype, axis, keepdims in itertools.product(kinds, AXES, (False, True)):
        x = sample((2, 3, 4), dtype)
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims))
        if dtype == "uint8" and name in ("sum", "prod"):
            expected = expected.astype("int64")  # there is no uint64
        if name == "count_nonzero" and axis == ():
            expected = (x != 0).astype("int64")
        rtol = 1e-5 if dtype == "float32" else 1e-12 if dtype == "float64" else 0
        check(getattr(xp, name)(wg.tensor(x), axis=axis, keepdims=keepdims), expected, rtol)


def test_reductions_of_special_values_and_of_nothing():
    x = np.array([[1.0, NAN], [INF, -INF]])
    for name in ("sum", "prod", "max", "min", "mean", "all", "any"):
        with np.errstate(all="ignore"):
            expected = np.asarray(getattr(np, name)(x, axis=1))
        check(getattr(xp, name)(wg.tensor(x), axis=1), expected)
    empty = np.zeros((0, 3))
    for name in ("sum", "prod", "all", "any", "count_nonzero"):
        check(getattr(xp, name)(wg.tensor(empty), axis=0), np.asarray(getattr(np, name)(empty, axis=0)))
    for name in ("max", "min", "argmax", "argmin"):
        with pytest.raises(ValueError, match=r"dimension|reduce|element"):
            getattr(xp, name)(wg.tensor(empty), axis=0)
    x = sample((3, 4))
    for correction in (0, 1, 0.5, 2):
        check(xp.var(wg.tensor(x), axis=0, correction=correction), np.var(x, axis=0, correction=correction), 1e-13)
        check(xp.std(wg.tensor(x), correction=correction), np.std(x, correction=correction), 1e-13)
    check(xp.sum(wg.tensor([1, 2], dtype=wg.int8), dtype=xp.float64), np.array(3.0))
    check(xp.prod(wg.tensor([2, 3], dtype=wg.int8), dtype=xp.int16), np.array(6, "int16"))


@pytest.mark.parametrize("name", ["argmax", "argmin"])
def test_positions_of_extrema(name):
    for dtype, axis, keepdims in itertools.product(("float64", "int8"), (None, 0, 1, -1), (False, True)):
        x = sample((4, 5), dtype)
        check(getattr(xp, name)(wg.tensor(x), axis=axis, keepdims=keepdims),
              np.asarray(getattr(np, name)(x, axis=axis, keepdims=keepdims)))  # fmt: skip
    x = np.array([1.0, NAN, 3.0, NAN])
    check(getattr(xp, name)(wg.tensor(x)), np.asarray(getattr(np, name)(x)))


def test_nonzero():
    for x in (sample((3, 4), "int8"), sample(5, "bool"), np.array([0.0, -0.0, NAN])):
        for result, expected in zip(xp.nonzero(wg.tensor(x)), np.nonzero(x), strict=True):
            check(result, expected)
    with pytest.raises(ValueError, match="nonzero"):
        xp.nonzero(wg.tensor(1))


@pytest.mark.parametrize("name", ["cumulative_sum", "cumulative_prod"])
def test_cumulative(name):
    for dtype, axis, initial in itertools.product(("float64", "int8"), (0, -1), (False, True)):
        x = sample((3, 4), dtype)
        check(getattr(xp, name)(wg.tensor(x), axis=axis, include_initial=initial),
              getattr(np, name)(x, axis=axis, include_initial=initial), 1e-13 if dtype == "float64" else 0)  # fmt: skip
    x = sample(4, "int8")
    check(getattr(xp, name)(wg.tensor(x), dtype=xp.float64), getattr(np, name)(x, dtype="float64"))
    with pytest.raises(ValueError, match="axis"):
        getattr(xp, name)(wg.ones(2, 2))


def test_diff():
    x = sample((3, 5), "int64")
    t = wg.tensor(x)
    for axis, n in itertools.product((0, 1, -1), (0, 1, 2)):
        check(xp.diff(t, axis=axis, n=n), np.diff(x, n, axis))
    before, after = sample((3, 2), "int64", 1), sample((3, 1), "int64", 2)
    check(xp.diff(t, prepend=wg.tensor(before), append=wg.tensor(after)), np.diff(x, prepend=before, append=after))
    check(xp.diff(t, n=0, append=wg.tensor(after)), np.concat([x, after], axis=1))


# --- Sorting and sets -------------------------------------------------------------------------------------------------


def test_sorting():
    for dtype, axis in itertools.product(("float64", "int8", "bool"), (0, -1)):
        x = sample((6, 7), dtype)
        t = wg.tensor(x)
        order = np.argsort(x, axis=axis, stable=True)
        check(xp.argsort(t, axis=axis), order)
        check(xp.sort(t, axis=axis), np.sort(x, axis=axis))
        length = x.shape[axis]
        # Equal elements keep their order: sort the reversed tensor, and count from the other end.
        descending = length - 1 - np.flip(np.argsort(np.flip(x, axis), axis=axis, stable=True), axis)
        check(xp.argsort(t, axis=axis, descending=True), descending)
        check(xp.sort(t, axis=axis, descending=True), np.take_along_axis(x, descending, axis))
    check(xp.sort(wg.tensor([2.0, NAN, -INF, 1.0])), np.array([-INF, 1, 2, NAN], "float32"))


def test_searchsorted():
    x = np.sort(sample(8, "int64"))
    values = np.arange(-6, 7).reshape(1, 13)
    for side in ("left", "right"):
        check(xp.searchsorted(wg.tensor(x), wg.tensor(values), side=side), np.searchsorted(x, values, side))
    shuffled = x[::-1].copy()
    order = np.argsort(shuffled)
    check(
        xp.searchsorted(wg.tensor(shuffled), wg.tensor(values), sorter=wg.tensor(order)),
        np.searchsorted(shuffled, values, sorter=order),
    )
    check(xp.searchsorted(wg.tensor([1.0, 2.0]), wg.tensor(1.5, dtype=wg.float64)), np.array(1))
    with pytest.raises(ValueError, match="vector"):
        xp.searchsorted(wg.ones(2, 2), wg.ones(2))


def test_unique_elements():
    for x in (sample((4, 5), "int8"), np.array([NAN, 1.0, NAN, -0.0, 0.0, 1.0]), sample(9, "bool"), np.zeros((0, 2))):
        t = wg.tensor(x)
        expected = np.unique_all(x)
        result = xp.unique_all(t)
        assert result._fields == expected._fields
        assert np.array_equal(result.values.numpy(), expected.values, equal_nan=x.dtype.kind == "f")
        assert result.values.numpy().dtype == x.dtype
        number = ~np.isnan(expected.values) if x.dtype.kind == "f" else np.ones(len(expected.values), bool)
        for name in ("indices", "counts"):
            check(getattr(result, name)[wg.tensor(number)], getattr(expected, name)[number])
        flat = x.reshape(-1)
        assert np.array_equal(flat[result.indices.numpy()], expected.values, equal_nan=x.dtype.kind == "f")
        rebuilt = result.values.numpy()[result.inverse_indices.numpy()]
        assert rebuilt.shape == x.shape
        assert np.array_equal(rebuilt, x, equal_nan=x.dtype.kind == "f")
        assert np.array_equal(xp.unique_values(t).numpy(), expected.values, equal_nan=x.dtype.kind == "f")
        assert xp.unique_counts(t).counts.tolist() == result.counts.tolist()
        assert xp.unique_inverse(t).inverse_indices.tolist() == result.inverse_indices.tolist()


# --- Linear algebra ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "int8"])
def test_products(dtype):
    rtol = {"float32": 1e-5, "float64": 1e-12}.get(dtype, 0)
    for first, second in (((2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,)), ((3,), (3,)), ((5, 1, 2, 3), (4, 3, 2))):
        a, b = sample(first, dtype), sample(second, dtype, 1)
        for function, reference in ((xp.matmul, np.matmul), (xp.linalg.matmul, np.linalg.matmul)):
            check(function(wg.tensor(a), wg.tensor(b)), np.asarray(reference(a, b)), rtol)
    a, b = sample((2, 3, 4), dtype), sample((4, 3, 2), dtype, 1)
    for axes in (1, 0, ((1, 2), (1, 0)), ((0,), (2,)), ([2], [0])):
        check(xp.tensordot(wg.tensor(a), wg.tensor(b), axes=axes), np.tensordot(a, b, axes), rtol)
    for shapes, axis in ((((2, 3), (3,)), -1), (((2, 3), (2, 1)), -2), (((3,), (3,)), -1), (((4, 1, 3), (5, 3)), -1)):
        a, b = sample(shapes[0], dtype), sample(shapes[1], dtype, 1)
        check(xp.vecdot(wg.tensor(a), wg.tensor(b), axis=axis), np.asarray(np.vecdot(a, b, axis=axis)), rtol)
    with pytest.raises(ValueError, match="vecdot"):
        xp.vecdot(wg.ones(2), wg.ones(3))
    a = sample((2, 3, 4), dtype)
    check(xp.matrix_transpose(wg.tensor(a)), np.matrix_transpose(a))
    check(wg.tensor(a).mT, a.mT)
    with pytest.raises(ValueError, match="two axes"):
        xp.matrix_transpose(wg.ones(2))


def test_products_of_two_dtypes():
    a, b = sample((2, 3), "int8"), sample((3, 2), "int32", 1)
    check(xp.matmul(wg.tensor(a), wg.tensor(b)), a @ b)
    check(xp.tensordot(wg.tensor(a), wg.tensor(b), axes=1), np.tensordot(a, b, 1))
    check(xp.vecdot(wg.tensor(a), wg.tensor(b.T.copy())), np.vecdot(a, b.T))


def test_linalg():
    x = sample((2, 3, 4))
    t = wg.tensor(x)
    for offset in (0, 1, -2, 5):
        if offset < 4:
            check(xp.linalg.diagonal(t, offset=offset), np.linalg.diagonal(x, offset=offset))
        check(xp.linalg.trace(t, offset=offset), np.linalg.trace(x, offset=offset), 1e-13)
    check(xp.linalg.trace(wg.ones(2, 2, dtype=wg.int8)), np.array(2))
    for axis, keepdims, order in itertools.product((None, -1, (0, 1)), (False, True), (2, 1, 0, 3, -INF)):
        check(
            xp.linalg.vector_norm(t, axis=axis, keepdims=keepdims, ord=order),
            np.asarray(np.linalg.vector_norm(x, axis=axis, keepdims=keepdims, ord=order)), 1e-12,
        )  # fmt: skip
    for order, keepdims in itertools.product(("fro", "nuc", 1, -1, 2, -2, INF, -INF), (False, True)):
        check(
            xp.linalg.matrix_norm(t, ord=order, keepdims=keepdims),
            np.linalg.matrix_norm(x, ord=order, keepdims=keepdims), 1e-12,
        )  # fmt: skip
    square = sample((2, 3, 3))
    for n in (0, 1, 2, 3, 5, -2):
        check(xp.linalg.matrix_power(wg.tensor(square), n), np.linalg.matrix_power(square, n), 1e-12)
    for function in ("det", "inv"):
        check(getattr(xp.linalg, function)(wg.tensor(square)), getattr(np.linalg, function)(square), 1e-11)
    for actual, expected in zip(xp.linalg.slogdet(wg.tensor(square)), np.linalg.slogdet(square), strict=True):
        check(actual, expected, 1e-12)
    definite = square @ square.swapaxes(1, 2) + np.eye(3)
    check(xp.linalg.eigvalsh(wg.tensor(definite)), np.linalg.eigvalsh(definite), 1e-12)
    values, vectors = xp.linalg.eigh(wg.tensor(definite))
    check(vectors @ (values[..., None] * vectors.mT), definite, 1e-12)
    check(xp.linalg.svdvals(t), np.linalg.svd(x, compute_uv=False), 1e-12)
    for mode in ("reduced", "complete"):
        for actual, expected in zip(xp.linalg.qr(t, mode=mode), np.linalg.qr(x, mode), strict=True):
            check(actual, expected, 1e-12)
    U, S, Vh = xp.linalg.svd(t, full_matrices=False)
    check(U @ (S[..., None] * Vh), x, 1e-12)
    assert xp.linalg.svd(t).Vh.shape == (2, 4, 4)
    check(xp.linalg.pinv(t), np.linalg.pinv(x), 1e-11)
    check(xp.linalg.matrix_rank(t, rtol=0.5), np.linalg.matrix_rank(x, rtol=0.5))
    for upper in (False, True):
        factor = np.linalg.cholesky(definite, upper=upper)
        check(xp.linalg.cholesky(wg.tensor(definite), upper=upper), factor, 1e-12)
    for right in (sample((3,)), sample((2, 3, 2)), sample((3, 4)), sample((2, 3, 3))[:, :, :1]):
        check(xp.linalg.solve(wg.tensor(square), wg.tensor(right)), np.linalg.solve(square, right), 1e-11)
    matrices, right = sample((3, 2, 2)), sample((3, 2, 2), seed=2)[0]  # no vectors, although PyTorch takes (..., M)
    check(xp.linalg.solve(wg.tensor(matrices), wg.tensor(right)), np.linalg.solve(matrices, right), 1e-11)
    a, b = sample((4, 3)), sample((4, 3), seed=1)
    check(xp.linalg.cross(wg.tensor(a), wg.tensor(b)), np.linalg.cross(a, b), 1e-13)
    check(xp.linalg.cross(wg.tensor(a.T), wg.tensor(b.T), axis=0), np.linalg.cross(a.T, b.T, axis=0), 1e-13)
    check(xp.linalg.outer(wg.tensor(a[0]), wg.tensor(b[0])), np.linalg.outer(a[0], b[0]))
    with pytest.raises(ValueError, match="outer"):
        xp.linalg.outer(wg.tensor(a), wg.tensor(b[0]))


# --- The page and the names -------------------------------------------------------------------------------------------


def docs_script():
    path = ROOT / "docs" / "refresh_array_api.py"
    if not path.is_file():
        pytest.skip("needs the checkout: set WEFTGRAD_CHECKOUT")
    spec = importlib.util.spec_from_file_location("refresh_array_api", path)
    script = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = script  # for its dataclass
    spec.loader.exec_module(script)
    return script


def test_the_page_is_up_to_date_and_signatures_are_the_standards():
    script = docs_script()
    assert script.PAGE.read_text(encoding="utf-8") == script.page(), "run python docs/refresh_array_api.py"
    entries = list(script.entries())
    assert len({(entry.owner, entry.name) for entry in entries}) == len(entries) > 230
    wrong = [e.text for e in entries if script.status(e).startswith("with")]
    assert not wrong, wrong
    names = {entry.name for entry in entries if entry.owner == ""}
    assert set(xp.__all__) - names == {"__array_api_version__", "linalg"}


def test_numpy_has_the_names_of_the_standard():
    """The table of the standard's names agrees with NumPy's signatures, where NumPy's can be read."""
    script = docs_script()
    checked = 0
    for entry in script.entries():
        owner = {"": np, "linalg": np.linalg, "fft": np.fft}.get(entry.owner)
        if owner is None or entry.parameters is None:
            continue
        assert hasattr(owner, entry.name), entry.text
        try:
            theirs = script.parameters_of(getattr(owner, entry.name)).replace("/, ", "").replace(", /", "").split(", ")
        except (ValueError, TypeError):
            continue
        keywords = entry.parameters.partition("*, ")[2].split(", ")
        if keywords != [""] and not theirs[-1].startswith("*") and entry.name not in ("arange", "asarray", "eye"):
            known = set(theirs) | {"ord", "device"}
            checked += set(keywords) <= known
    assert checked > 30


def test_errors_are_ours():
    for function in (xp.sum, xp.abs, xp.sort, xp.unique_values, xp.flip):
        with pytest.raises(WeftgradError, match="tensor"):
            function([1.0])
