"""Check the math functions in OpenCL C for integers, the storage of half types, and random numbers."""

import copy

import numpy as np
import pytest
from math_points import inputs, random_bit_patterns
from opencl_math_running import (
    DTYPES,
    FLOATS,
    INTEGERS,
    LANES,
    LONG_DOUBLE,
    PRECISE,
    TEXTS,
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
@pytest.mark.parametrize("exponent", [2, 1, 3, -1, -2, 0.5, -0.5, 4, 0])
def test_powers_with_a_uniform_exponent(device, element, exponent):
    """Exponents with a short code path also run beside others in a vector; `evaluate` compares vectors with scalars."""
    if element == "double" and not PRECISE:
        pytest.skip("long double is no wider than double here")
    x = inputs(DTYPES[element], np.random.default_rng(4))
    y = np.full(len(x), exponent, DTYPES[element])
    actual, expected = device.evaluate("pow", element, x, y), np.power(x.astype(LONG_DOUBLE), LONG_DOUBLE(exponent))
    allowed = 0.51 if element == "float" else 1.5
    check("pow", allowed, actual, expected, x, y)
    signed = ~np.isnan(actual)
    assert np.array_equal(np.signbit(actual[signed]), np.signbit(expected[signed])), exponent
    y[::3] = 1.75
    mixed = device.evaluate("pow", element, x, y)
    assert np.array_equal(np.delete(mixed, np.s_[::3]), np.delete(actual, np.s_[::3]), equal_nan=True)


def integer_power(x: int, y: int, width: int, signed: bool) -> int:
    if y < 0:
        return {1: 1, -1: -1 if y % 2 else 1}.get(x, 0)
    value = pow(x, y, 1 << width)
    return value - (1 << width) if signed and value >> (width - 1) else value


@pytest.mark.parametrize("element", INTEGERS)
def test_integers(device, element):
    """Results are Python's, with wrap-around. Division by 0 gives 0; neither it nor the minimum divided by -1 traps."""
    rng, dtype, n = np.random.default_rng(4), DTYPES[element], 2000
    info = np.iinfo(dtype)
    signed = info.min < 0
    pool = np.array([0, 1, 2, 3, 7, 10, 100, info.max, info.max - 1, info.min, info.min + 1], dtype=dtype)
    if signed:
        pool = np.concatenate([pool, np.array([-1, -2, -3, -7, -100], dtype=dtype)])
    grid = np.stack(np.meshgrid(pool, pool)).reshape(2, -1)
    a = [grid[0], rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True), rng.integers(0, 10, n, dtype=dtype)]
    b = [grid[1], rng.integers(info.min, info.max, n, dtype=dtype, endpoint=True), rng.integers(0, 40, n, dtype=dtype)]
    x, y = np.concatenate(a), np.concatenate(b)
    powers = [integer_power(int(p), int(q), info.bits, signed) for p, q in zip(x, y, strict=True)]
    expected = {
        "floor_div": np.floor_divide(x, y), "mod": np.remainder(x, y), "fmod": np.fmod(x, y),
        "pow": np.array(powers, dtype=dtype), "maximum": np.maximum(x, y), "minimum": np.minimum(x, y),
        "lshift": np.left_shift(x, y), "rshift": np.right_shift(x, y), "bitwise_and": x & y, "bitwise_or": x | y,
        "bitwise_xor": x ^ y, "gcd": np.gcd(x, y),
    }  # fmt: skip
    for name, values in expected.items():
        actual = device.evaluate(name, element, x, y)
        index = np.flatnonzero(actual != values)[:3]
        assert index.size == 0, f"{name} of {x[index]} and {y[index]} gives {actual[index]}, not {values[index]}"
    unary = {"abs": np.abs(x), "sign": np.sign(x), "square": x * x, "floor": x, "round": x, "bitwise_not": ~x}
    for name, values in unary.items():
        assert np.array_equal(device.evaluate(name, element, x), values), name
    masks = {"isnan": np.zeros(len(x), bool), "isfinite": np.ones(len(x), bool), "signbit": x < 0}
    for name, values in masks.items():
        assert np.array_equal(device.evaluate(name, element, x), values), name


def test_storage_of_half(device):
    all_halves = np.arange(1 << 16, dtype=np.uint16)
    expected = all_halves.view(np.float16).astype(np.float32)
    expected.view(np.uint32)[np.isnan(expected)] |= 1 << 22  # processors make NaN quiet
    vector, scalar = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    device.call("from_half", 1 << 12, all_halves, vector, all_halves.copy(), scalar)
    assert np.array_equal(vector.view(np.uint32), expected.view(np.uint32))
    assert np.array_equal(scalar.view(np.uint32), expected.view(np.uint32))
    rng = np.random.default_rng(5)
    ties = (expected[:31743].astype(np.float64) + expected[1:31744]) / 2
    x = np.concatenate([expected, ties, -ties, random_bit_patterns(np.float32, 100000, rng), rng.normal(size=100000)])
    x = x[: len(x) // 256 * 256].astype(np.float32)
    vector, scalar = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint16)
    device.call("to_half", len(x) // 16, x, vector, x.copy(), scalar)
    nan = np.isnan(x)
    assert np.array_equal(vector, scalar)
    assert np.array_equal(vector[~nan], x.astype(np.float16).view(np.uint16)[~nan])
    assert np.isnan(vector.view(np.float16)[nan]).all()


def test_storage_of_bfloat16(device):
    all_bfloat16s = np.arange(1 << 16, dtype=np.uint16)
    vector, scalar = np.zeros(1 << 16, np.float32), np.zeros(1 << 16, np.float32)
    device.call("from_bfloat16", 1 << 12, all_bfloat16s, vector, all_bfloat16s.copy(), scalar)
    assert np.array_equal(vector.view(np.uint32), all_bfloat16s.astype(np.uint32) << 16)
    assert np.array_equal(scalar.view(np.uint32), all_bfloat16s.astype(np.uint32) << 16)
    x = np.concatenate([random_bit_patterns(np.float32, 1 << 17, np.random.default_rng(6)), vector])
    x[:1000].view(np.uint32)[:] = (x[:1000].view(np.uint32) & 0xFFFF0000) | 0x8000  # ties
    vector_bits, scalar_bits = np.zeros(len(x), np.uint16), np.zeros(len(x), np.uint16)
    device.call("to_bfloat16", len(x) // 16, x, vector_bits, x.copy(), scalar_bits)
    word = x.view(np.uint32).astype(np.uint64)
    expected = ((word + 0x7FFF + ((word >> 16) & 1)) >> 16).astype(np.uint16)
    nan = np.isnan(x)
    assert np.array_equal(vector_bits, scalar_bits)
    assert np.array_equal(vector_bits[~nan], expected[~nan])
    assert np.isnan((vector_bits.astype(np.uint32) << 16).view(np.float32)[nan]).all()


def test_philox_gives_the_published_words(device):
    """Check Random123's test vectors: all zeros, all ones, and the digits of pi."""
    ones = 2**64 - 1
    counters = np.array(
        [0, 0, 0, ones, ones, ones, 0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822], np.uint64
    )
    out = np.zeros(12, np.uint32)
    device.call("philox", 1, counters, out)
    assert " ".join(f"{word:08x}" for word in out) == (
        "6627e8d5 e169c58d bc57ac4c 9b00dbd8 408f276d 41c83b0e a20bc7c6 6d5451fd d16cfe09 94fdcceb 5001e420 24126ea1"
    )


def test_random_numbers(device):
    """Scalar and vector lanes agree, and the first moments are those of the distributions."""
    n = 1 << 18
    arrays = [np.zeros(n, dtype) for dtype in (np.float32, np.float32, np.float64, np.float64) * 2]
    device.call("random", n // 16, *arrays)
    for vector, scalar in zip(arrays[:4], arrays[4:], strict=True):
        assert np.array_equal(vector, scalar)
    for uniform in (arrays[0], arrays[2]):
        assert uniform.min() >= 0
        assert uniform.max() < 1
        assert abs(uniform.mean() - 0.5) < 0.003
        assert abs(uniform.var() - 1 / 12) < 0.001
    for normal in (arrays[1], arrays[3]):
        assert abs(normal.mean()) < 0.01
        assert abs(normal.std() - 1) < 0.01
        assert abs((normal**4).mean() - 3) < 0.1
        assert abs((normal[::2] * normal[1::2]).mean()) < 0.01


@pytest.mark.parametrize("error", [-3.0e-7, 0.0, 3.0e-7])
def test_quotients_of_narrow_integers_are_exact_whatever_the_division_rounds(device, error):
    """OpenCL allows a division of floats a relative error of 3e-7 (2.5 ULP), and AMD's and Intel's compilers use it."""
    exact = TEXTS["quotient.int"]
    inexact = exact.replace("/ TO_S(d))", f"/ TO_S(d) * {1 + error:.8f}f)")
    assert inexact != exact
    names = ["floor_div", "mod", "fmod"]
    narrow = copy.copy(device)
    narrow.kernels = {}
    elements = ("char", "uchar", "short", "ushort")
    texts = [math_library.program_text(names, e, [LANES], {**TEXTS, "quotient.int": inexact}) for e in elements]
    narrow.build("".join(texts) + "".join(kernel_text(name, e) for e in elements for name in names))
    for element in elements:
        info = np.iinfo(DTYPES[element])
        if info.bits == 8:
            y, x = (a.ravel() for a in np.meshgrid(*[np.arange(info.min, info.max + 1)] * 2))
        else:  # every divisor, with the largest multiples of it, and their neighbours
            y = np.arange(info.min, info.max + 1)[:, None, None]
            quotient = info.max // np.where(y == 0, 1, y)
            numerators = (quotient - np.array([0, 1, 7])[:, None]) * y + np.array([-1, 0, 1])
            x, y = (a.ravel() for a in np.broadcast_arrays(np.clip(numerators, info.min, info.max), y))
        x, y = x.astype(np.int64), y.astype(np.int64)
        safe = np.where(y == 0, 1, y)
        expected = {"floor_div": x // safe, "mod": x % safe, "fmod": np.fmod(x, safe)}
        for name in names:
            values = np.where(y == 0, 0, expected[name]).astype(DTYPES[element])
            actual = narrow.evaluate(name, element, x.astype(DTYPES[element]), y.astype(DTYPES[element]))
            wrong = np.flatnonzero(actual != values)
            assert wrong.size == 0, f"{name} of {element}: {wrong.size} wrong, such as {x[wrong[0]]}, {y[wrong[0]]}"
