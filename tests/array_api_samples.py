"""Samples of each dtype for tests of the array API standard, and their comparison with NumPy's results."""

from __future__ import annotations

import math

import numpy as np

import weftgrad as wg

__all__ = ["FLOATS", "INF", "INTEGERS", "NAN", "NUMERIC", "NUMPY_FOLLOWS", "check", "sample", "xp"]

xp = wg.ones(1).__array_namespace__()
NUMPY_FOLLOWS = np.lib.NumpyVersion(np.__version__) >= "2.1.0"
NAN, INF = math.nan, math.inf
FLOATS, INTEGERS = ("float32", "float64"), ("int8", "uint8")  # few, because each op and dtype is a kernel to compile
NUMERIC = (*FLOATS, *INTEGERS)


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
