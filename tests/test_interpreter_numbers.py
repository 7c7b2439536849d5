"""Check numbers in the interpreter of Triton kernels: bfloat16, integers, Booleans, floats and their rounding."""

from fractions import Fraction

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from interpreter_running import (
    BLOCK,
    arithmetic,
    bfloat16_bits,
    convert,
    decode,
    encode,
    nearest_bfloat16,
    random_bfloat16,
    run,
)  # fmt: skip

from weftgrad.runtime.errors import LaunchError
from weftgrad.runtime.triton.builder import widen

# --- bfloat16 ---------------------------------------------------------------------------------------------------------


EXACT_RESULTS = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "neg": lambda a, b: -a,
    "abs": lambda a, b: abs(a),
    "maximum": max,
    "minimum": min,
    "where": lambda a, b: a if a < b else b + 1,
    "fma": lambda a, b: a * b + a,
}


@pytest.mark.parametrize("op", [*EXACT_RESULTS])
def test_bfloat16_is_rounded_to_nearest_even(op):
    rng = np.random.default_rng(1)
    x, y, out = random_bfloat16(rng), random_bfloat16(rng), np.zeros(BLOCK, np.uint16)
    run(arithmetic, x, y, out, OP=op, BLOCK=BLOCK)
    operands = [[Fraction(float(v)) for v in widen(a)] for a in (x, y)]
    exact = map(EXACT_RESULTS[op], *operands)
    assert widen(out).tolist() == [nearest_bfloat16(e) for e in exact]


def test_bfloat16_quotients_are_calculated_in_float32():
    rng = np.random.default_rng(2)
    x, y, out = random_bfloat16(rng), random_bfloat16(rng), np.zeros(BLOCK, np.uint16)
    run(arithmetic, x, y, out, OP="div", BLOCK=BLOCK)
    quotients = np.divide(widen(x), widen(y), dtype=np.float32)
    assert widen(out).tolist() == [nearest_bfloat16(Fraction(float(q))) for q in quotients]


def test_conversions_to_and_from_bfloat16():
    rng = np.random.default_rng(3)
    ties = 1 + np.array([1, 3, 5, 7, 2, 4]) * 2.0**-8
    edges = [0.0, 1e-40, 3.3895314e38, 3.4028235e38, 2.0**-133, 2.0**-134, *ties]
    ordinary = rng.standard_normal(BLOCK - len(edges)) * 100
    source = np.concatenate([edges, ordinary]).astype(np.float32)
    out = np.zeros(BLOCK, np.uint16)
    run(convert, source, out, BLOCK=BLOCK)
    assert widen(out).tolist() == [nearest_bfloat16(Fraction(float(v))) for v in source]
    half = ordinary[:32].astype(np.float16)
    run(convert, half, out, BLOCK=32)
    assert widen(out[:32]).tolist() == [nearest_bfloat16(Fraction(float(v))) for v in half]
    counts = rng.integers(-100000, 100000, BLOCK).astype(np.int32)
    run(convert, counts, out, BLOCK=BLOCK)
    assert widen(out).tolist() == [nearest_bfloat16(Fraction(int(v))) for v in counts]
    integers = np.zeros(BLOCK, np.int32)
    run(convert, out, integers, BLOCK=BLOCK)
    assert integers.tolist() == [int(v) for v in widen(out)]
    source_bits, half = bfloat16_bits(ordinary[:32]), np.zeros(32, np.float16)
    run(convert, source_bits, half, BLOCK=32)
    assert half.tolist() == widen(source_bits).astype(np.float16).tolist()


def test_nan_and_infinity_stay_in_bfloat16():
    source = np.array([np.nan, np.inf, -np.inf, -np.nan] * 16, np.float32)
    out = np.zeros(BLOCK, np.uint16)
    run(convert, source, out, BLOCK=BLOCK)
    np.testing.assert_array_equal(widen(out), source)


@triton.jit
def reduce_bfloat16(x, out, equality, BLOCK: tl.constexpr):
    a = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(a.to(tl.float32), 0))
    tl.store(out + 1, tl.max(a, 0))
    tl.store(out + 2, tl.min(a, 0))
    half = tl.reshape(a.to(tl.float32), (2, BLOCK // 2))
    tl.store(out + 3 + tl.arange(0, 2), tl.sum(half, 1))
    tl.store(out + 5, tl.sum(a, 0))
    equals_itself = tl.broadcast_to(a[:, None], (BLOCK, 2)) == a[:, None]
    tl.store(equality, tl.min(tl.min(equals_itself.to(tl.int32), 1), 0))


def test_bfloat16_reductions():
    x = random_bfloat16(np.random.default_rng(4))
    out, equality = np.zeros(6, np.float32), np.zeros(1, np.int32)
    run(reduce_bfloat16, x, out, equality, BLOCK=BLOCK)
    a = widen(x).astype(np.float64)
    np.testing.assert_allclose(out[[0, 3, 4]], [a.sum(), a[:32].sum(), a[32:].sum()], atol=1e-6 * np.abs(a).sum())
    np.testing.assert_allclose(out[5], a.sum(), atol=1e-2 * np.abs(a).sum())  # Triton accumulates in bfloat16
    assert widen(bfloat16_bits(out[5])) == out[5]
    assert out[1:3].tolist() == [a.max(), a.min()]
    assert equality[0] == 1  # every element equals itself after broadcasting


@triton.jit
def add_to_two(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i % 2, tl.load(x + i), mask=i < BLOCK - 2)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_atomics_add_every_lane(dtype):
    x = np.arange(BLOCK, dtype=np.float32)
    out = np.zeros(2, dtype)
    run(add_to_two, encode(x, dtype), out, BLOCK=BLOCK)
    expected = [0.0, 0.0]
    for k in range(BLOCK - 2):
        total = expected[k % 2] + k
        expected[k % 2] = nearest_bfloat16(Fraction(total)) if dtype == np.uint16 else total
    assert decode(out).tolist() == expected


# --- Integers ---------------------------------------------------------------------------------------------------------


@triton.jit
def multiply_integers(out, a, b, integers):
    tl.store(out, (a * b).to(tl.int64))
    tl.store(out + 1, (integers[0] * integers[1]).to(tl.int64))
    tl.store(out + 2, (integers[0] * integers[2]).to(tl.int64))
    tl.store(out + 3, (integers[1] + 2147483647).to(tl.int64))


def test_int32_overflows_as_on_a_device():
    out = np.zeros(4, np.int64)
    types, values = ("i32", "i32", ("i32", "i32", "i64")), (65536, 65537, (65536, 65537, 65537))
    run(multiply_integers, out, types=types, values=values)
    assert out.tolist() == [65536, 65536, 65536 * 65537, 65537 - 2147483649]


def test_numbers_outside_the_range_of_their_type():
    with pytest.raises(LaunchError, match="multiply_integers: a is 2147483648, which i32 does not hold"):
        run(multiply_integers, np.zeros(4, np.int64), types=("i32",) * 3, values=(2**31, 1, 1))
    with pytest.raises(LaunchError, match="multiply_integers: takes 4 arguments apart from constants, was given 3"):
        run(multiply_integers, np.zeros(4, np.int64), types=("i32",) * 3, values=(1, 1))


@triton.jit
def check_types(out, integers, numbers, flag):
    tl.static_assert(integers[0].dtype == tl.int32)
    tl.static_assert(integers[1].dtype == tl.int64)
    tl.static_assert(numbers[0].dtype == tl.float32)
    tl.static_assert(numbers[1].dtype == tl.bfloat16)
    tl.static_assert(numbers[2].dtype == tl.float64)
    tl.static_assert(flag.dtype == tl.int1)
    total = numbers[0].to(tl.float64) + numbers[1].to(tl.float64) + numbers[2]
    for k in tl.static_range(len(integers)):
        total += integers[k]
    tl.store(out, tl.where(flag, total, 0.0))


@pytest.mark.parametrize("flag", [True, False])
def test_scalars_and_tuples_have_the_types_of_the_signature(flag):
    out = np.zeros(1, np.float64)
    types = (("i32", "i64"), ("fp32", "bf16", "fp64"), "i1")
    run(check_types, out, types=types, values=((7, 2**40), (0.1, 0.1, 0.1), flag))
    expected = float(np.float32(0.1)) + nearest_bfloat16(Fraction(float(np.float32(0.1)))) + 0.1 + 7 + 2.0**40
    assert out[0] == (expected if flag else 0)


@triton.jit
def divide(x, y, quotient, remainder, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(quotient + i, tl.load(x + i) // tl.load(y + i))
    tl.store(remainder + i, tl.load(x + i) % tl.load(y + i))


@pytest.mark.parametrize("dtype", [np.int8, np.int32, np.int64, np.uint8, np.uint32, np.uint64])
def test_integers_divide_as_in_c(dtype):
    x = np.array([7, -7, 7, -7, 100, -100, 0, -1], np.int64).astype(dtype)
    y = np.array([2, 2, -2, -2, 7, 7, 5, 3], np.int64).astype(dtype)
    quotient, remainder = np.zeros(8, dtype), np.zeros(8, dtype)
    run(divide, x, y, quotient, remainder, BLOCK=8)
    exact = [Fraction(int(a), int(b)) for a, b in zip(x, y, strict=True)]
    assert quotient.tolist() == [int(e) for e in exact]  # int() truncates towards zero
    assert remainder.tolist() == [int(a) - int(e) * int(b) for a, b, e in zip(x, y, exact, strict=True)]


@triton.jit
def shift_and_invert(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, tl.umulhi(a, b))
    tl.store(out + BLOCK + i, a >> 3)
    tl.store(out + 2 * BLOCK + i, ~a)


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64, np.uint64])
def test_high_halves_and_shifts(dtype):
    rng = np.random.default_rng(5)
    size = np.dtype(dtype).itemsize * 8
    x, y = (rng.integers(0, 2**size, 16, np.uint64).astype(f"u{size // 8}").view(dtype) for _ in "xy")
    out = np.zeros(48, dtype)
    run(shift_and_invert, x, y, out, BLOCK=16)
    unsigned = [(int(a) % 2**size) * (int(b) % 2**size) >> size for a, b in zip(x, y, strict=True)]
    assert [int(v) % 2**size for v in out[:16]] == unsigned
    assert out[16:32].tolist() == [int(a) >> 3 for a in x]
    assert [int(v) % 2**size for v in out[32:]] == [~int(a) % 2**size for a in x]


def test_floats_outside_the_range_of_int32_saturate():
    source = np.array([1e20, -1e20, np.inf, -np.inf, np.nan, 2.9, -2.9, 300.0], np.float32)
    out = np.zeros(8, np.int32)
    run(convert, source, out, BLOCK=8)
    assert out.tolist() == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 2, -2, 300]
    small = np.zeros(8, np.uint8)
    run(convert, source, small, BLOCK=8)
    assert small[5:].tolist() == [2, 0, 44]


@triton.jit
def boolean_arithmetic(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i) != 0
    tl.store(out + i, (a ^ True) | (~a & (i < 4)))
    tl.store(out + BLOCK + i, (a + a).to(tl.int8))
    tl.store(out + 2 * BLOCK + i, tl.cumsum(a.to(tl.int8), 0))


def test_booleans():
    x = np.array([1, 0, 1, 1, 0, 0, 1, 0], np.bool_)
    out = np.zeros(24, np.int8)
    run(boolean_arithmetic, x, out, BLOCK=8)
    assert out[:8].tolist() == (~x).astype(int).tolist()
    assert not out[8:16].any()  # one-bit addition wraps
    assert out[16:].tolist() == np.cumsum(x).tolist()


# --- Floats -----------------------------------------------------------------------------------------------------------


@triton.jit
def minima_and_maxima(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    tl.store(out + i, tl.maximum(a, b))
    tl.store(out + BLOCK + i, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 2 * BLOCK + i, tl.minimum(a, b))
    tl.store(out + 3 * BLOCK + i, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 4 * BLOCK + i, tl.clamp(a, 0.0, 2.0))
    tl.store(out + 5 * BLOCK + i, tl.clamp(a, 0.0, 2.0, propagate_nan=tl.PropagateNan.ALL))
    tl.store(out + 6 * BLOCK, tl.max(a, 0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.float16, np.uint16])
def test_nan_in_minimum_and_maximum(dtype):
    nan = np.nan
    x, y = np.array([1, nan, 3, nan], np.float32), np.array([2, 2, nan, nan], np.float32)
    out = np.zeros(25, dtype)
    run(minima_and_maxima, encode(x, dtype), encode(y, dtype), out, BLOCK=4)
    actual = decode(out)
    expected = {
        "maximum": [2, 2, 3, nan], "maximum, all NaN": [2, nan, nan, nan],
        "minimum": [1, 2, 3, nan], "minimum, all NaN": [1, nan, nan, nan],
        "clamp": [1, 0, 2, 0], "clamp, all NaN": [1, nan, 2, nan],
    }  # fmt: skip
    for k, (function, values) in enumerate(expected.items()):
        np.testing.assert_array_equal(actual[4 * k : 4 * k + 4], values, err_msg=function)
    assert actual[24] == 3  # the maximum of the block


@triton.jit
def round_once(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    rounded = a * b
    tl.store(out + i, tl.fma(a, b, -rounded))
    if a.dtype == tl.float32:
        tl.store(out + BLOCK + i, tl.div_rn(a, b))
        tl.store(out + 2 * BLOCK + i, tl.sqrt_rn(tl.abs(a)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_rounds_once_and_rn_functions_round_correctly(dtype):
    """fma(a, b, -(a * b)) is the rounding error of the product."""
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal(16).astype(dtype), rng.standard_normal(16).astype(dtype)
    out = np.zeros(48, dtype)
    run(round_once, x, y, out, BLOCK=16)
    pairs = [(Fraction(float(a)), Fraction(float(b)), Fraction(float(a * b))) for a, b in zip(x, y, strict=True)]
    errors = [float(a * b - rounded) for a, b, rounded in pairs]
    assert out[:16].tolist() == errors
    assert any(errors)
    if dtype == np.float32:
        assert out[16:32].tolist() == (x / y).tolist()
        assert out[32:].tolist() == np.sqrt(np.abs(x)).tolist()


@triton.jit
def matmul(x, y, out, N: tl.constexpr, PRECISION: tl.constexpr):
    i = tl.arange(0, N)
    a = tl.load(x + i[:, None] * N + i[None, :])
    b = tl.load(y + i[:, None] * N + i[None, :])
    acc = tl.zeros((N, N), dtype=out.dtype.element_ty)
    tl.store(out + i[:, None] * N + i[None, :], tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=acc.dtype))


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16])
def test_dot_accumulates_in_float32(dtype):
    rng = np.random.default_rng(7)
    x, y = (encode(rng.standard_normal((32, 32)).astype(np.float32), dtype) for _ in "xy")
    out = np.zeros((32, 32), np.float32)
    run(matmul, x, y, out, N=32, PRECISION="ieee")
    np.testing.assert_allclose(out, decode(x) @ decode(y), rtol=1e-5, atol=1e-5)


def test_dot_of_int8_accumulates_in_int32():
    rng = np.random.default_rng(7)
    x, y = (rng.integers(-128, 128, (32, 32)).astype(np.int8) for _ in "xy")
    out = np.zeros((32, 32), np.int32)
    run(matmul, x, y, out, N=32, PRECISION="ieee")
    assert (out == x.astype(np.int64) @ y.astype(np.int64)).all()


def test_precisions_of_dot():
    """tf32 has ten bits of mantissa; tf32x3, the sum of three such products, is as precise as float32."""
    rng = np.random.default_rng(8)
    x, y = (rng.standard_normal((32, 32)).astype(np.float32) for _ in "xy")
    errors = {}
    for precision in ("ieee", "tf32", "tf32x3"):
        out = np.zeros((32, 32), np.float32)
        run(matmul, x, y, out, N=32, PRECISION=precision)
        errors[precision] = np.abs(out - x.astype(np.float64) @ y.astype(np.float64)).max()
    assert errors["ieee"] < 1e-5
    assert errors["tf32x3"] < 1e-5
    assert 1e-4 < errors["tf32"] < 2e-2
