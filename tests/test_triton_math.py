"""Check the math functions of the Triton target in the interpreter, without a GPU.

Errors are counted in units in the last place (ULP), as in test_opencl_math.py.
"""

import math

import numpy as np
import pytest
import scipy.special
from math_points import EDGES, INCOMPLETE_GAMMA, POLYGAMMA, RECORDED, ZETA, inputs, ulps
from triton_math_running import (
    FLOATS,
    INTEGER_BINARY,
    INTEGER_UNARY,
    INTEGERS,
    MASKS,
    SPECIAL,
    UNARY,
    assert_same_bits,
    interpret,
    kernel_text,
    pairs,
    wrap,
)

pytest.importorskip("triton")
LONG_DOUBLE = np.longdouble

LONG_DOUBLE_IS_WIDER = np.finfo(LONG_DOUBLE).nmant >= 63
"""Whether NumPy's long double is precise enough to check float64."""


def call(name, *arrays):
    """Return `wg_NAME` of arrays in their dtype, or in bool if the function returns a mask."""
    dtype = arrays[0].dtype
    names = ["a", "b"][: len(arrays)]
    text = kernel_text([], names, [f"wg_{name}({', '.join(names)})"])
    return interpret(text, dtype, arrays, [np.bool_ if name in MASKS else dtype])[0]


def check_errors(name, allowed, actual, expected, *arguments):
    errors = ulps(actual, expected)
    worst = int(errors.argmax())
    point = [a[worst] for a in arguments]
    assert errors[worst] <= allowed, (
        f"{name}{point} = {actual[worst]!r}, not {expected[worst]!r}: {errors[worst]:.2f} ULP"
    )


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# Floating-point functions


@pytest.mark.parametrize("dtype", FLOATS)
def test_unary_functions_within_their_ulps(dtype):
    if dtype is np.float64 and not LONG_DOUBLE_IS_WIDER:
        pytest.skip("long double is no wider than float64 here")
    x = inputs(dtype, np.random.default_rng(1))
    for name, (allowed, reference) in UNARY.items():
        actual, expected = call(name, x), reference(x.astype(LONG_DOUBLE))
        if name in ("sin", "cos", "tan") and dtype is np.float64:
            expected = reference(x)  # the interpreter calls NumPy, so only the call is tested
        check_errors(name, allowed, actual, expected, x)
        zero = (expected == 0) & (actual == 0)
        assert np.array_equal(np.signbit(actual[zero]), np.signbit(expected[zero])), f"{name}: the sign of 0"
    assert_same_bits("sign", call("sign", x), np.where(np.isnan(x), 0, np.sign(x) + 0).astype(dtype), x)
    for name, reference in MASKS.items():
        assert_same_bits(name, call(name, x), reference(x), x)


def test_special_functions_in_float32():
    x = inputs(np.float32, np.random.default_rng(2))
    x = x[(np.abs(x) > 1e-36) & (np.abs(x) < 1e6) & ((x > 0) | (x != np.rint(x))) & (x > -30)]
    for name, (allowed, reference) in SPECIAL.items():
        points = x[np.abs(x) <= 1] if name == "erfinv" else x
        expected = reference(points.astype(np.float64))
        selected = np.abs(expected) > (0.05 if name in ("lgamma", "digamma") else 0)
        check_errors(name, allowed, call(name, points)[selected], expected[selected], points[selected])


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_functions_at_recorded_points(dtype):
    for name, points in RECORDED.items():
        x, expected = np.array(points).T
        selected = (x.astype(dtype) == x) & (np.abs(expected) > np.finfo(dtype).tiny)
        x, expected = x[selected].astype(dtype), expected[selected]
        actual = call(name, x)
        if name in ("lgamma", "digamma", "trigamma"):  # near their zeros errors are measured in absolute terms
            errors = np.abs(actual - expected) / np.maximum(np.abs(expected), 0.1)
            assert (errors <= 1e-14 if dtype is np.float64 else errors <= 1.2e-7).all()
        elif name.startswith(("bessel", "airy", "ndtr", "erfcx")):  # they oscillate, or are computed from exponentials
            limit = 1.2e-7 if dtype is np.float32 else 5e-14 if name.startswith("airy") else 1e-14
            assert (np.abs(actual - expected) <= limit * np.abs(expected)).all(), name
        else:
            check_errors(name, 4.5, actual, expected, x)
    orders, x, expected = np.array(POLYGAMMA).T
    magnitude = np.abs(expected)
    selected = (
        (orders <= 40) & (x.astype(dtype) == x) & (magnitude > np.finfo(dtype).tiny) & (magnitude < np.finfo(dtype).max)
    )
    actual = call("polygamma", orders[selected].astype(dtype), x[selected].astype(dtype))
    assert (np.abs(actual / expected[selected] - 1) < (3e-13 if dtype is np.float64 else 1.2e-7)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeta_at_recorded_points(dtype):
    s, x, expected = np.array(ZETA).T
    keep = (expected > np.finfo(dtype).tiny) & (expected < np.finfo(dtype).max)
    actual = call("zeta", s[keep].astype(dtype), x[keep].astype(dtype))
    assert np.allclose(actual, expected[keep], rtol=4e-15 if dtype is np.float64 else 1.2e-7, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_incomplete_gamma_functions(dtype):
    a, x, lower, upper = np.array(INCOMPLETE_GAMMA).T
    ends = np.array([(0, 0), (0, 1), (1, 0), (2, np.inf), (np.inf, 2), (np.inf, np.inf), (-1, 1), (1, np.nan)]).T
    limits = np.array([np.nan, 1, 0, 1, 0, np.nan, np.nan, np.nan])
    for name, expected, at_ends in (("gammainc", lower, limits), ("gammaincc", upper, 1 - limits)):
        actual = call(name, a.astype(dtype), x.astype(dtype))
        assert np.allclose(actual, expected, rtol=2e-14 if dtype is np.float64 else 6e-8, atol=0), name
        assert_same_bits(name, call(name, *ends.astype(dtype)), at_ends.astype(dtype), *ends)
    inside = (a < 1000) & (x < 90)
    slope = scipy.special.xlogy(a - 1, x) - x - scipy.special.gammaln(a)
    actual = call("gamma_density", a[inside].astype(dtype), x[inside].astype(dtype))
    assert np.allclose(actual, np.exp(slope[inside]), rtol=1e-13 if dtype is np.float64 else 1e-7, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(dtype):
    inf, nan = np.inf, np.nan
    points = {
        "erf": ([0.0, -0.0, inf, -inf, nan], [0.0, -0.0, 1, -1, nan]),
        "erfc": ([inf, -inf, nan, 0.0], [0.0, 2, nan, 1]),
        "erfinv": ([0.0, -0.0, 1, -1, 1.5, nan], [0.0, -0.0, inf, -inf, nan, nan]),
        "lgamma": ([1, 2, 0, -1, -5, inf, -inf, nan], [0.0, 0.0, inf, inf, inf, inf, inf, nan]),
        "digamma": ([0.0, -0.0, -1, -7, inf, nan], [-inf, inf, nan, nan, inf, nan]),
        "trigamma": ([0.0, -1, inf, nan], [inf, inf, 0.0, nan]),
    }
    for name, (x, expected) in points.items():
        x = np.array(x, dtype)
        assert_same_bits(name, call(name, x), np.array(expected, dtype), x)
    order, x = np.array([[1.5, -1, nan, 2, 2, 1, 0], [1, 1, 1, nan, inf, -2, 0]], dtype)
    assert_same_bits(
        "polygamma", call("polygamma", order, x), np.array([nan, nan, nan, nan, -0.0, inf, -inf], dtype), order, x
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_functions(dtype):
    rng = np.random.default_rng(3)
    a, b = pairs(np.array(EDGES, dtype))
    x, y = inputs(dtype, rng), inputs(dtype, rng)
    rng.shuffle(y)
    x, y = np.concatenate([a, x]), np.concatenate([b, y])
    exact = {"floor_div": np.floor_divide, "mod": np.mod, "fmod": np.fmod, "copysign": np.copysign}
    for name, reference in exact.items():
        expected = reference(x, y)
        assert_same_bits(name, call(name, x, y), expected, x, y)
    for name, reference in {"maximum": np.maximum, "minimum": np.minimum}.items():
        check_errors(name, 0, call(name, x, y), reference(x, y), x, y)
    for name, allowed, reference in (("div", 0.5, np.divide), ("hypot", 1.2, np.hypot), ("atan2", 2, np.arctan2)):
        if dtype is np.float32 or LONG_DOUBLE_IS_WIDER:
            check_errors(name, allowed, call(name, x, y), reference(x.astype(LONG_DOUBLE), y.astype(LONG_DOUBLE)), x, y)
    x = np.concatenate([a, 10 ** rng.uniform(-5, 5, 20000) * rng.choice([-1, 1], 20000), np.full(99, -2)]).astype(dtype)
    y = np.concatenate([b, rng.uniform(-30, 30, 20000), np.arange(99) - 50]).astype(dtype)
    if dtype is np.float32 or LONG_DOUBLE_IS_WIDER:
        check_errors("pow", 1.5, call("pow", x, y), np.power(x.astype(LONG_DOUBLE), y.astype(LONG_DOUBLE)), x, y)


# Integers: expected results by Python


def truncated_divide(x, y):
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def power(x, y):
    if y < 0:
        return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)
    return pow(x, y, 2**64)


PYTHON = {
    "neg": lambda x: -x, "abs": abs, "sign": lambda x: (x > 0) - (x < 0), "square": lambda x: x * x,
    "floor": lambda x: x, "ceil": lambda x: x, "trunc": lambda x: x, "round": lambda x: x,
    "div": truncated_divide, "floor_div": lambda x, y: x // y if y else 0, "mod": lambda x, y: x % y if y else 0,
    "fmod": lambda x, y: x - truncated_divide(x, y) * y if y else 0, "pow": power, "maximum": max, "minimum": min,
}  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_functions_agree_with_python(dtype):
    info = np.iinfo(dtype)
    width = info.bits
    values = {
        0,
        1,
        2,
        3,
        5,
        7,
        10,
        63,
        100,
        -1,
        -2,
        -3,
        -7,
        -100,
        info.min,
        info.min + 1,
        info.max,
        info.max - 1,
        width,
    }
    x, y = pairs(np.array(sorted(v for v in values if info.min <= v <= info.max), dtype))
    operand_pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    shifts = {
        "lshift": lambda a, b: a << b if 0 <= b < width else 0,
        "rshift": lambda a, b: a >> (b if 0 <= b < width else width),
        "gcd": math.gcd,
    }
    for name in INTEGER_UNARY:
        assert_same_bits(
            name, call(name, x), np.array([wrap(PYTHON[name](a), dtype) for a, _ in operand_pairs], dtype), x
        )
    for name in INTEGER_BINARY:
        function = {**PYTHON, **shifts}[name]
        expected = np.array([wrap(function(a, b), dtype) for a, b in operand_pairs], dtype)
        assert_same_bits(name, call(name, x, y), expected, x, y)
    for name, function in MASKS.items():
        assert_same_bits(name, call(name, x), function(x) if name != "signbit" else x < 0, x)


# Random numbers


def test_philox_gives_the_vectors_of_random123():
    text = kernel_text(["a, b, c, d = wg_philox(x, y, z)"], ["x", "y", "z"], ["a", "b", "c", "d"])
    ones = 2**64 - 1
    counters = [(0, 0, 0), (ones, ones, ones), (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822)]
    arrays = [np.array(column, np.uint64).view(np.int64) for column in zip(*counters, strict=True)]
    words = np.array(interpret(text, np.int64, arrays, [np.uint32] * 4)).T
    assert [[f"{w:08x}" for w in row] for row in words.tolist()] == [
        ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"],
        ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"],
        ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"],
    ]


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_random_numbers_are_computed_from_philox_words(index):
    """Uniform and normal numbers follow from the Philox words; OpenCL functions are tested against the same words."""
    i = np.arange(5000, dtype=index)
    words = ["a, b, c, d = wg_philox(x, tl.full((), 7, tl.int64), tl.full((), -42, tl.int64))"]
    a, b, c, d = interpret(kernel_text(words, ["x"], list("abcd")), index, [i], [np.uint32] * 4)
    arguments = "x, tl.full((), 4, tl.int64) + 3, tl.full((), -42, tl.int64)"
    draws = [
        f"wg_bits({arguments})",
        *(f"wg_{f}({arguments}, tl.{t})" for t in ("float32", "float64") for f in ("uniform", "normal")),
    ]
    types = [np.int64, np.float32, np.float32, np.float64, np.float64]
    bits, u, n, v, m = interpret(kernel_text([], ["x"], draws), index, [i], types)
    unit = [
        ((high.astype(np.uint64) << np.uint64(32) | low) >> np.uint64(11)) / 2**53 for low, high in ((a, b), (c, d))
    ]
    assert np.array_equal(bits, a)
    assert np.array_equal(u, (a >> 8) / 2**24)
    assert np.array_equal(v, unit[0])
    float32_one = np.float32(1)
    radius = (a >> 16).astype(np.float32) * np.float32(65536) + (a & 0xFFFF).astype(np.float32) + float32_one
    radius = np.sqrt(-2 * np.log(radius.astype(LONG_DOUBLE) / 2**32))
    expected = radius * np.cos(2 * LONG_DOUBLE("3.14159265358979323846") * ((b >> 8) / LONG_DOUBLE(2**24)))
    assert (np.abs(n - expected) <= 3 * np.spacing(np.maximum(np.abs(expected), 0.1).astype(np.float32))).all()
    expected = np.sqrt(-2 * np.log(unit[0].astype(LONG_DOUBLE) + LONG_DOUBLE(2) ** -53))
    expected *= np.cos(2 * LONG_DOUBLE("3.14159265358979323846") * unit[1])
    assert (np.abs(m - expected) <= 4 * np.spacing(np.maximum(np.abs(expected), 0.1).astype(np.float64))).all()
    assert abs(n.mean()) < 0.05
    assert abs(n.std() - 1) < 0.05
