"""Check the math functions written in OpenCL C against NumPy, SciPy and values recorded from mpmath.

Errors are counted in units in the last place (ULP). Every function runs on scalars and on vectors, and both must agree
to the bit.
"""

import copy
import math
from collections.abc import Callable

import numpy as np
import pytest
import scipy.special
from math_points import EDGES, INCOMPLETE_GAMMA, POLYGAMMA, RECORDED, ZETA, inputs, random_bit_patterns, ulps
from opencl_math_running import (
    DTYPES,
    FLOATS,
    LANES,
    LONG_DOUBLE,
    MASKS,
    PRECISE,
    SPECIAL,
    TEXTS,
    UNARY,
    Device,
    check,
    kernel_text,
    open_device,
)

from weftgrad.codegen import math_library

cl = pytest.importorskip("pyopencl")


@pytest.fixture(scope="module")
def device() -> Device:
    return open_device()


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


@pytest.mark.parametrize("element", FLOATS)
def test_unary_functions_within_their_ulps(device, element):
    if element == "double" and not PRECISE:
        pytest.skip("long double is no wider than double here")
    x = inputs(DTYPES[element], np.random.default_rng(1))
    for name, (single, double, reference) in UNARY.items():
        actual, expected = device.evaluate(name, element, x), reference(x.astype(LONG_DOUBLE))
        check(name, single if element == "float" else double, actual, expected, x)
        zero = (expected == 0) & (actual == 0)
        assert np.array_equal(np.signbit(actual[zero]), np.signbit(expected[zero])), f"{name}: the sign of 0"


def test_special_functions_in_float(device):
    x = inputs(np.float32, np.random.default_rng(2))
    x = x[(np.abs(x) > 1e-36) & (np.abs(x) < 1e6) & ((x > 0) | (x != np.rint(x)))]
    x = x[(x > 0) | (x > -30)]
    for name, (allowed, reference) in SPECIAL.items():
        inside = x[np.abs(x) <= 1] if name == "erfinv" else x
        expected = reference(inside.astype(np.float64))
        keep = np.abs(expected) > (0.05 if name in ("lgamma", "digamma") else 0)
        check(name, allowed, device.evaluate(name, "float", inside)[keep], expected[keep], inside[keep])


def test_float_functions_without_avx512_and_fma(device):
    """Table lookups by permutation, scaling and reciprocal estimates need AVX-512; the float argument reduction needs
    FMA. Without them the functions take other branches."""
    names = ["exp", "exp2", "tanh", "logistic", "erf", "sin", "cos", "tan", "sqrt", "rsqrt"]
    plain = copy.copy(device)
    plain.kernels = {}
    text = "#undef __AVX512F__\n#undef __FMA__\n#undef FP_FAST_FMAF\n"
    text += math_library.program_text(names, "float", [LANES], TEXTS)
    plain.build(text + "".join(kernel_text(name, "float") for name in names))
    x = inputs(np.float32, np.random.default_rng(1))
    for name in names:
        if name in UNARY:
            allowed, _, reference = UNARY[name]
            check(name, allowed, plain.evaluate(name, "float", x), reference(x.astype(LONG_DOUBLE)), x)
        else:
            allowed, reference = SPECIAL[name]
            keep = ~(np.abs(x) <= 1e-36)
            check(name, allowed, plain.evaluate(name, "float", x)[keep], reference(x.astype(np.float64))[keep], x[keep])


@pytest.mark.parametrize("element", FLOATS)
def test_special_functions_at_recorded_points(device, element):
    for name, points in RECORDED.items():
        x, expected = np.array(points).T
        keep = (x.astype(DTYPES[element]) == x) & (np.abs(expected) > np.finfo(DTYPES[element]).tiny)
        actual = device.evaluate(name, element, x[keep])
        limit = 1e-6 if element == "float" else 5e-14 if name.startswith("airy") else 1e-14
        assert np.allclose(actual, expected[keep], rtol=limit, atol=0), name
        if element == "double" and name in ("erf", "erfc", "erfinv"):
            assert ulps(actual, expected).max() <= 4, name


@pytest.mark.parametrize("element", FLOATS)
def test_zeta_at_recorded_points(device, element):
    s, x, expected = np.array(ZETA).T
    keep = (expected > np.finfo(DTYPES[element]).tiny) & (expected < np.finfo(DTYPES[element]).max)
    actual = device.evaluate("zeta", element, s[keep], x[keep])
    assert np.allclose(actual, expected[keep], rtol=4e-15 if element == "double" else 1.2e-7, atol=0)


@pytest.mark.parametrize("element", FLOATS)
def test_incomplete_gamma_functions_at_recorded_points(device, element):
    a, x, lower, upper = np.array(INCOMPLETE_GAMMA).T
    for name, expected in (("gammainc", lower), ("gammaincc", upper)):
        actual = device.evaluate(name, element, a, x)
        assert np.allclose(actual, expected, rtol=2e-14 if element == "double" else 6e-8, atol=0), name


@pytest.mark.parametrize("element", FLOATS)
def test_incomplete_gamma_functions_beside_scipy(device, element):
    """Check every region, with different ones in adjacent lanes; SciPy's own error is up to 7e-13 here."""
    rng, dtype = np.random.default_rng(7), DTYPES[element]
    a = np.concatenate([10 ** rng.uniform(-12, 5, 3000), rng.uniform(0, 30, 3000), rng.uniform(12, 400, 2000)])
    factor = np.exp(rng.normal(size=a.size) * 3 / np.sqrt(a + 0.5))
    a, x = rng.permutation(np.stack([a, a * factor]).astype(dtype), axis=1)
    for name, reference in (("gammainc", scipy.special.gammainc), ("gammaincc", scipy.special.gammaincc)):
        expected = reference(a.astype(np.float64), x.astype(np.float64))
        actual = device.evaluate(name, element, a, x)
        keep = expected > np.finfo(dtype).tiny * 100
        assert keep.sum() > 4000
        assert np.allclose(actual[keep], expected[keep], rtol=2e-12 if element == "double" else 6e-8, atol=0), name
        assert (actual >= 0).all(), name
        assert (actual <= 1).all(), name
    slope = scipy.special.xlogy(a.astype(np.float64) - 1, x) - x - scipy.special.gammaln(a.astype(np.float64))
    keep = (np.abs(slope) < (600 if element == "double" else 80)) & (a < 1000)
    actual = device.evaluate("gamma_density", element, a, x)[keep]
    assert np.allclose(actual, np.exp(slope[keep]), rtol=5e-12 if element == "double" else 1e-7, atol=0)


@pytest.mark.parametrize("element", FLOATS)
def test_incomplete_gamma_functions_at_their_ends(device, element):
    inf, nan = math.inf, math.nan
    a, x, lower, upper, density = np.array([
        (0, 0, nan, nan, nan), (-0.0, 0, nan, nan, nan), (0, 1, 1, 0, 0), (0, inf, 1, 0, 0), (1, 0, 0, 1, 1),
        (0.5, 0, 0, 1, inf), (2, 0, 0, 1, 0), (2, -0.0, 0, 1, 0), (1, inf, 1, 0, 0), (30, inf, 1, 0, 0),
        (inf, 0, 0, 1, 0), (inf, 5, 0, 1, 0), (inf, inf, nan, nan, nan), (-1, 1, nan, nan, nan),
        (1, -1, nan, nan, nan), (-inf, 1, nan, nan, nan), (1, -inf, nan, nan, nan), (nan, 1, nan, nan, nan),
        (1, nan, nan, nan, nan), (nan, inf, nan, nan, nan), (nan, 0, nan, nan, nan), (1e30, 1, 0, 1, 0),
        (1, 1e30, 1, 0, 0), (1e30, 1e30, 0.5, 0.5, 3.989422804014327e-16), (9, 1e35, 1, 0, 0),
        (30, 1e-30, 0, 1, 0), (30, 1e35, 1, 0, 0), (1e35, 30, 0, 1, 0),
    ]).T  # fmt: skip
    for name, expected in (("gammainc", lower), ("gammaincc", upper), ("gamma_density", density)):
        actual = device.evaluate(name, element, a, x)
        assert np.allclose(actual, expected, rtol=1e-6, atol=0, equal_nan=True), (name, a, x, actual)


@pytest.mark.parametrize("element", FLOATS)
def test_special_functions_at_their_ends(device, element):
    inf, nan = math.inf, math.nan
    ends = {
        "erf": ([0.0, -0.0, inf, -inf, nan], [0.0, -0.0, 1, -1, nan]),
        "erfc": ([0.0, -0.0, inf, -inf, nan], [1, 1, 0, 2, nan]),
        "erfinv": ([0.0, -0.0, 1, -1, 1.5, -2, inf, nan], [0.0, -0.0, inf, -inf, nan, nan, nan, nan]),
        "lgamma": ([1, 2, 0.0, -0.0, -1, -7, inf, -inf, nan], [0, 0, inf, inf, inf, inf, inf, inf, nan]),
        "digamma": ([0.0, -0.0, -1, -8, inf, nan], [-inf, inf, nan, nan, inf, nan]),
        "trigamma": ([0.0, -0.0, -1, -8, -1e17, inf, -inf, nan], [inf, inf, inf, inf, inf, 0, nan, nan]),
        "sign": ([0.0, -0.0, 3, -inf, nan], [0, 0, 1, -1, 0]),
        "bessel_j0": ([0.0, inf, -inf, nan], [1, 0, 0, nan]),
        "bessel_j1": ([0.0, inf, -inf, nan], [0, 0, 0, nan]),
        "bessel_y0": ([0.0, -1, inf, nan], [-inf, nan, 0, nan]),
        "bessel_y1": ([0.0, -1, inf, nan], [-inf, nan, 0, nan]),
        "bessel_i0": ([0.0, inf, -inf, nan], [1, inf, inf, nan]),
        "bessel_i1": ([0.0, inf, -inf, nan], [0, inf, -inf, nan]),
        "bessel_i0e": ([0.0, inf, -inf, nan], [1, 0, 0, nan]),
        "bessel_i1e": ([0.0, inf, -inf, nan], [0, 0, 0, nan]),
        "bessel_k0": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "bessel_k1": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "bessel_k0e": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "bessel_k1e": ([0.0, -1, inf, nan], [inf, nan, 0, nan]),
        "erfcx": ([0.0, inf, -inf, -30, nan], [1, 0, inf, inf, nan]),
        "ndtr": ([inf, -inf, -50, nan], [1, 0, 0, nan]),
        "ndtri": ([0.0, 0.5, 1, -1e-30, 1.5, inf, nan], [-inf, 0, inf, nan, nan, nan, nan]),
    }
    for name, (x, expected) in ends.items():
        actual = device.evaluate(name, element, np.array(x))
        assert np.array_equal(actual, np.array(expected), equal_nan=True), f"{name}{x} = {actual}"
        if name.startswith("erf"):
            assert np.array_equal(np.signbit(actual[:2]), np.signbit(expected[:2])), name


@pytest.mark.parametrize("element", FLOATS)
def test_polygamma(device, element):
    """Check recorded points, SciPy over many orders, and special values, with different cases in adjacent lanes."""
    dtype = DTYPES[element]
    n, x, expected = np.array([p for p in POLYGAMMA if element == "double" or float(dtype(p[1])) == p[1]]).T
    keep = np.abs(np.log(np.abs(expected))) < abs(math.log(np.finfo(dtype).tiny))
    actual = device.evaluate("polygamma", element, n[keep], x[keep])
    assert np.allclose(actual, expected[keep], rtol=2e-15 if element == "double" else 1.2e-7, atol=0)
    rng = np.random.default_rng(6)
    n = rng.integers(0, 25, 4000).astype(dtype)
    x = np.where(rng.random(4000) < 0.5, 10 ** rng.uniform(-1, 2, 4000), rng.uniform(-30, 30, 4000)).astype(dtype)
    expected = scipy.special.polygamma(n.astype(np.float64), x.astype(np.float64))
    pole = scipy.special.polygamma(n + (n == 0), np.abs(x - np.rint(x)))
    size = np.maximum(np.abs(expected), np.where(x < 0, pole, 0))  # for negative x the subtracted term may be larger
    with np.errstate(over="ignore"):
        expected = expected.astype(dtype)
    actual = device.evaluate("polygamma", element, n, x)
    finite = np.isfinite(expected) & (np.abs(size) < np.finfo(dtype).max / 10)
    assert finite.mean() > 0.7
    assert np.array_equal(actual[np.isinf(expected)], expected[np.isinf(expected)])
    error = np.abs(actual.astype(np.float64) - expected)[finite] / np.abs(size[finite])
    assert error.max() < (1e-13 if element == "double" else 1.2e-7)
    inf, nan = math.inf, math.nan
    n, x, expected = np.array([
        (1, 0.0, inf), (1, -0.0, inf), (2, 0.0, -inf), (2, -0.0, -inf), (2, -7, -inf), (3, -1e17, inf), (4, inf, 0),
        (2, -inf, nan), (2, nan, nan), (0, 0.0, -inf), (0, -1, nan), (0, inf, inf), (-1, 2, nan), (1.5, 2, nan),
        (nan, 2, nan), (inf, 2, nan), (1e9, 2, nan), (1, 1e30, 1e-30), (400, 2, -inf), (1, 1e-30, inf),
    ]).T  # fmt: skip
    if element == "double":
        expected[-1] = 1e60
    actual = device.evaluate("polygamma", element, n, x)
    assert np.allclose(actual, expected, rtol=1e-6, atol=0, equal_nan=True), (n, x, actual)


@pytest.mark.parametrize("element", FLOATS)
def test_functions_of_two_numbers(device, element):
    rng, dtype, n = np.random.default_rng(3), DTYPES[element], 8000
    pool = np.array([*EDGES, 0.1, 0.3, 7, 1.5, 2.5, -2.5, 33, -33, 1e15 + 1, 2**53 - 1, 2**24 - 1, 1e18]).astype(dtype)
    grid = np.stack(np.meshgrid(pool, pool)).reshape(2, -1)
    x = [grid[0], random_bit_patterns(DTYPES[element], n, rng), np.exp(rng.normal(size=n) * 20),
         rng.normal(size=n) * 100, rng.integers(-50, 50, n), 1 + rng.normal(size=n) * 1e-3]  # fmt: skip
    y = [grid[1], random_bit_patterns(DTYPES[element], n, rng), rng.normal(size=n) * 3, rng.normal(size=n) * 10,
         rng.integers(-20, 20, n), rng.normal(size=n) * 1e4]  # fmt: skip
    a, b = np.concatenate([v.astype(dtype) for v in x]), np.concatenate([v.astype(dtype) for v in y])
    reference_dtype = LONG_DOUBLE if element == "double" else np.float64
    exact: dict[str, tuple[float, Callable]] = {
        "fmod": (0, np.fmod), "mod": (0, np.remainder), "floor_div": (0, np.floor_divide),
        "maximum": (0, np.maximum), "minimum": (0, np.minimum), "copysign": (0, np.copysign),
    }  # fmt: skip
    rounded: dict[str, tuple[float, Callable]] = {
        "pow": (0.51 if element == "float" else 1.5, np.power),
        "hypot": (0.51 if element == "float" else 1.2, np.hypot),
        "atan2": (2, np.arctan2),
    }
    for name, (allowed, reference) in exact.items():
        actual, expected = device.evaluate(name, element, a, b), reference(a, b)
        check(name, allowed, actual, expected, a, b)
        signed = ~np.isnan(actual) & ((actual != 0) | (name not in ("maximum", "minimum")))
        assert np.array_equal(np.signbit(actual[signed]), np.signbit(expected[signed])), name
    if reference_dtype is LONG_DOUBLE and not PRECISE:
        return
    for name, (allowed, reference) in rounded.items():
        actual, expected = device.evaluate(name, element, a, b), reference(a.astype(LONG_DOUBLE), b.astype(LONG_DOUBLE))
        check(name, allowed, actual, expected, a, b)
        signed = ~np.isnan(actual)
        assert np.array_equal(np.signbit(actual[signed]), np.signbit(expected[signed])), name
    for name in MASKS:
        assert np.array_equal(device.evaluate(name, element, a), getattr(np, name)(a)), name
