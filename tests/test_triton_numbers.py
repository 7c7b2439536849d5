"""Check number formats of the Triton target: float16 and bfloat16 results are rounded to nearest even once, when they
are stored; integers wrap around; float64 is computed in float64.

Blocks are small, so that every kernel needs several programs.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_running import rounded

pytest.importorskip("triton")

from triton_running import convolve, index_add, index_tensor, interpreter

import weftgrad as wg
from weftgrad.nn import functional as F

Array = Any
SMALL, _ = interpreter("block=64,cores=2")
HALVES = {"float16": 2048.0, "bfloat16": 256.0}  # above these numbers, only even integers are representable


def to_array(x: Any) -> Array:
    return (x.float() if x.dtype is wg.bfloat16 else x).detach().cpu().numpy()


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_round_to_nearest_even(dtype: str) -> None:
    """Every kind of kernel rounds ties to even: n + 1 down to n, n + 3 up to n + 4."""
    half_dtype, n = getattr(wg, dtype), HALVES[dtype]

    def tensor(values: Any) -> Any:
        return wg.tensor(np.asarray(values, np.float32), device=SMALL).to(half_dtype)

    def assert_equal(actual: Any, expected: Any, label: str) -> None:
        assert actual.dtype is half_dtype, label
        np.testing.assert_array_equal(to_array(actual), np.asarray(expected, np.float32), label)

    pairs, sums = [[n, 1], [n, 3], [n + 2, 1], [-n, -1], [-n, -3]], [n, n + 4, n + 4, -n, -n - 4]
    x = tensor(pairs)
    assert_equal(x[:, 0] + x[:, 1], sums, "pointwise rows")
    assert_equal(tensor([p[0] for p in pairs]) + tensor([p[1] for p in pairs]), sums, "pointwise flat")
    assert_equal(x.sum(1), sums, "reduction")
    assert_equal(x.T.sum(0), sums, "reduction of columns")
    assert_equal(tensor([n, 1, 1] + [0] * 9000).sum(), n + 2, "reduction in shares, rounded once")
    assert_equal(tensor([n, 1] + [0] * 9000).sum(), n, "reduction in shares")
    assert_equal(x @ tensor([[1, 2], [1, 2]]), [[s, 2 * s] for s in sums], "contraction")
    assert_equal(tensor([n, 3]) @ tensor([1, 1]), n + 4, "contraction to a number")
    assert_equal(F.conv2d(x.reshape(5, 2, 1, 1), tensor(np.ones((1, 2, 1, 1)))).flatten(), sums, "convolution")
    rows = wg.tensor(np.zeros(3, np.int64), device=SMALL)
    assert_equal(tensor([n]).index_add(0, rows[:1], tensor([1])), [n], "index")
    assert_equal(tensor([n]).index_add(0, rows, tensor([1, 1, 1])), [n + 4], "index, rounded once")
    # With this eps the standard deviation is 2, so that 1 and -1 are added to numbers whose neighbours are 2 apart.
    normalized = F.layer_norm(tensor([[1, -1]]), (2,), tensor([2, 2]), tensor([n, n + 4]), eps=3.0)
    assert_equal(normalized, [[n, n + 4]], "rowwise")


def _from_bits(bits: Array, dtype: str) -> Array:
    """Return the numbers with these 16 bits as float32."""
    if dtype == "bfloat16":
        return (bits << 16).view(np.float32)
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


@pytest.mark.parametrize("dtype", HALVES)
def test_conversions_to_halves(dtype: str) -> None:
    """Convert representable numbers, their midpoints and the neighbours of these; overflow, subnormals, zeros, NaN."""
    bits = np.random.default_rng(0).integers(0, 2**16, 3000, dtype=np.uint32)
    with np.errstate(all="ignore"):
        low, high = (_from_bits(bits + increment, dtype) for increment in (np.uint32(0), np.uint32(1)))
        middle = low / 2 + high / 2
        neighbours = [np.nextafter(middle, np.float32(end)) for end in (0, np.inf)]
    edges = np.float32(
        [0, 65504, 65519.996, 65520, 65536, 2**-24, 2**-25, 1.0000001 * 2**-25, 3 * 2**-25, 3.3961775e38, 3.4028235e38]
    )
    values = np.concatenate([low, middle, *neighbours, edges, -edges, np.float32([np.inf, -np.inf, np.nan])])
    actual = to_array(wg.tensor(values, device=SMALL).to(getattr(wg, dtype))).astype(np.float32)
    np.testing.assert_array_equal(actual, rounded(values, dtype).astype(np.float32))
    zero = values == 0
    np.testing.assert_array_equal(np.signbit(actual[zero]), np.signbit(values[zero]))


def test_float64_is_exact() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(150) * 1e3, rng.standard_normal(150)
    a, b = wg.tensor(x, device=SMALL), wg.tensor(y, device=SMALL)
    for name, actual, expected in (
        ("add", a + b, x + y), ("sub", a - b, x - y), ("mul", a * b, x * y), ("div", a / b, x / y),
        ("sqrt", a.abs().sqrt(), np.sqrt(np.abs(x))), ("rows", a[::3] * b[::3], x[::3] * y[::3]),
        ("maximum", wg.maximum(a, b), np.maximum(x, y)),
    ):  # fmt: skip
        np.testing.assert_array_equal(actual.cpu().numpy(), expected, name)
    # Integers with more bits than the mantissa of float32.
    integers = rng.integers(-(2**40), 2**40, (30, 300)).astype(np.float64)
    w = wg.tensor(integers, device=SMALL)
    np.testing.assert_array_equal(w.sum(1).cpu().numpy(), integers.sum(1))
    np.testing.assert_array_equal(w.reshape(-1).sum().cpu().numpy(), integers.sum())
    small_integers = np.round(integers / 2**20)
    s = wg.tensor(small_integers, device=SMALL)
    np.testing.assert_array_equal((s @ s.T).cpu().numpy(), small_integers @ small_integers.T)
    index = rng.integers(0, 5, 30)
    actual = wg.zeros(5, 300, dtype=wg.float64, device=SMALL).index_add(0, index_tensor(index, w), w)
    np.testing.assert_array_equal(actual.cpu().numpy(), index_add(np.zeros((5, 300)), index, integers))
    image, kernel = small_integers[:1, :60].reshape(1, 1, 6, 10), small_integers[1:2, :4].reshape(1, 1, 2, 2)
    actual = F.conv2d(wg.tensor(image, device=SMALL), wg.tensor(kernel, device=SMALL))
    np.testing.assert_array_equal(actual.cpu().numpy(), convolve(image, kernel))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integers_wrap_around(dtype: str) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    edges = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 3], dtype)
    x = np.concatenate([rng.integers(info.min, info.max, 143, dtype, endpoint=True), edges])
    y = np.concatenate([rng.integers(info.min, info.max, 143, dtype, endpoint=True), edges[::-1]])
    a, b = wg.tensor(x, device=SMALL), wg.tensor(y, device=SMALL)
    index = rng.integers(0, 7, 150)
    index_sums, long_array = np.zeros(7, dtype), np.concatenate([x] * 60)
    triple = x.astype(np.int64) * 3
    with np.errstate(over="ignore"):
        np.add.at(index_sums, index, x)
        pairs = {
            "add": (a + b, x + y), "sub": (a - b, x - y), "mul": (a * b, x * y), "square": (a * a, x * x),
            "neg": (-a, -x), "rows": (a[::2] * b[::2], x[::2] * y[::2]), "and": (a & b, x & y), "xor": (a ^ b, x ^ y),
            "invert": (~a, ~x), "maximum": (wg.maximum(a, b), np.maximum(x, y)), "less": (a < b, x < y),
            "abs": (a.abs(), np.abs(x)),
            "narrowed": (wg.tensor(triple, device=SMALL).to(a.dtype), triple.astype(dtype)),
            "sum": (a.sum(), x.sum(dtype=np.int64)), "prod": (a.prod(), x.prod(dtype=np.int64)),
            "sum of columns": (a.reshape(10, 15).sum(0), x.reshape(10, 15).sum(0, dtype=np.int64)),
            "sum in shares": (wg.tensor(long_array, device=SMALL).sum(), long_array.sum(dtype=np.int64)),
            "max": (a.max(), x.max()), "argmin": (a.argmin(), x.argmin()),
            "index_add": (wg.zeros(7, dtype=a.dtype, device=SMALL).index_add(0, index_tensor(index, a), a), index_sums),
            "take": (a[index_tensor(index, a)], x[index]),
            "matmul": (a.reshape(10, 15) @ b.reshape(15, 10), x.reshape(10, 15) @ y.reshape(15, 10)),
        }  # fmt: skip
    for name, (actual, expected) in pairs.items():
        assert actual.dtype.name == expected.dtype.name, name
        np.testing.assert_array_equal(actual.cpu().numpy(), expected, name)


def test_bool() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((9, 20)) > 0.5, rng.random((9, 20)) > 0.5
    x[3], x[4] = True, False
    a, b = wg.tensor(x, device=SMALL), wg.tensor(y, device=SMALL)
    numbers, integers = np.array([0.0, -0.0, 0.25, np.nan, -3]), np.array([256, 0, -1, 2**40])
    pairs = {
        "and": (a & b, x & y), "or": (a | b, x | y), "xor": (a ^ b, x ^ y), "not": (~a, ~x), "add": (a + b, x | y),
        "mul": (a * b, x & y), "eq": (a == b, x == y), "rows": (a.T & b.T, (x & y).T), "any": (a.any(1), x.any(1)),
        "all": (a.all(1), x.all(1)), "sum": (a.sum(0), x.sum(0)), "max": (a.amax(1), x.max(1)),
        "of numbers": (wg.tensor(numbers, device=SMALL).bool(), numbers != 0),
        "of integers": (wg.tensor(integers, device=SMALL).bool(), integers != 0),
        "to numbers": (a.float(), x.astype(np.float32)),
        "where": (wg.where(a, b, ~b), np.where(x, y, ~y)),
        "read": (a[index_tensor(np.array([3, 3, 0]), a)], x[[3, 3, 0]]),
    }  # fmt: skip
    for name, (actual, expected) in pairs.items():
        assert actual.dtype.name == expected.dtype.name, name
        np.testing.assert_array_equal(actual.cpu().numpy(), expected, name)
    # Booleans are stored as the bytes 0 and 1, which other programs may read as numbers.
    assert set(np.unique((a + a).cpu().numpy().view(np.uint8))) == {0, 1}


@pytest.mark.parametrize("cores", [1, 3])
def test_repeated_indices_are_added_in_one_order(cores: int) -> None:
    """Use more indices than a kernel scans at a time, many of them repeated, with one range of rows and several.

    Sums of slices and of few elements have NumPy's order. Many indices of single elements are sorted, and sums of long
    runs of equal ones have an order of their own, the same at every call.
    """
    device, driver = interpreter(f"block=64,cores={cores}")
    rng = np.random.default_rng(0)
    index = np.concatenate([rng.integers(0, 90, 240), [89] * 20, [0] * 10])
    source = rng.standard_normal((270, 7)) * 10.0 ** rng.integers(-8, 8, (270, 1))  # sums depend on the order
    expected = index_add(np.zeros((90, 7)), index, source)
    rows, columns = wg.tensor(source, device=device), wg.tensor(source.T.copy(), device=device)
    empty = wg.zeros(90, 7, dtype=wg.float64, device=device)
    element_index = index_tensor(np.stack([index] * 7, 1), rows)
    few_sums = index_add(np.zeros((90, 7)), index[200:], source[200:])
    for name, actual, values in (
        ("few indices of elements", empty.scatter_add(0, element_index[200:], rows[200:]), few_sums),
        ("rows", empty.index_add(0, index_tensor(index, rows), rows), expected),
        ("columns", empty.T.contiguous().index_add(1, index_tensor(index, rows), columns), expected.T),
    ):
        np.testing.assert_array_equal(actual.cpu().numpy(), values, name)
    bound = 8 * np.finfo(np.float64).eps * index_add(np.zeros((90, 7)), index, abs(source))
    for name, add, values, error in (
        (
            "numbers",
            lambda: empty[:, 0].index_add(0, index_tensor(index, rows), rows[:, 0]),
            expected[:, 0],
            bound[:, 0],
        ),
        ("an index an element", lambda: empty.scatter_add(0, element_index, rows), expected, bound),
    ):
        sums = add().cpu().numpy()
        assert (abs(sums - values) <= error).all(), name
        np.testing.assert_array_equal(sums, add().cpu().numpy(), name)
    last_rows = np.zeros((90, 7))
    last_rows[index] = source
    actual = empty.clone()
    actual[index_tensor(index, rows)] = rows
    np.testing.assert_array_equal(actual.cpu().numpy(), last_rows)
    index_pair = index_tensor(index % 9, rows), index_tensor(index // 9, rows)
    actual = empty.reshape(9, 10, 7).index_put(index_pair, rows, accumulate=True)
    pair_sums = np.zeros((9, 10, 7))
    np.add.at(pair_sums, (index % 9, index // 9), source)
    np.testing.assert_array_equal(actual.cpu().numpy(), pair_sums)
    shared_values = {dict(s.instance.defines)["SHARED"] for s in driver.launched if s.instance.entry.endswith("_write")}
    assert shared_values == {0, 1}


@pytest.mark.parametrize("block", [64, 256])
def test_transposed_operands_are_read_in_square_tiles(block: int) -> None:
    device, driver = interpreter(f"block={block},cores=2")
    rng = np.random.default_rng(0)
    for shape, order in (
        ((33, 50), (1, 0)), ((3, 40), (1, 0)), ((70, 3), (1, 0)), ((2, 17, 19), (0, 2, 1)),
        ((2, 5, 4, 6), (0, 2, 3, 1)), ((4, 32, 48), (0, 2, 1)), ((3, 4, 5, 6), (3, 2, 1, 0)),
    ):  # fmt: skip
        x = rng.standard_normal(shape)
        y = rng.standard_normal(x.transpose(order).shape)
        operand = wg.tensor(x, device=device)
        transposed, other_operand = operand.permute(*order), wg.tensor(y, device=device)
        np.testing.assert_array_equal(transposed.contiguous().cpu().numpy(), x.transpose(order))
        out = other_operand.clone()
        out += transposed
        np.testing.assert_array_equal(out.cpu().numpy(), y + x.transpose(order))
    tiles = [dict(s.instance.defines) for s in driver.launched if s.instance.entry.endswith("_rows")]
    square = [d for d in tiles if d["BESIDE0"] or d.get("BESIDE1")]
    assert len(square) >= 10
    assert max(d["ROWS"] for d in square) > 1 < max(d["COLUMNS"] for d in square)


# Reductions


@pytest.mark.parametrize("crop", [np.s_[:, :, 1:-1, 1:-1], np.s_[:, :, 1::2], np.s_[1:, :, :-1, 2:]])
def test_reductions_over_three_dimensions_that_cannot_be_merged(crop: tuple[slice, ...]) -> None:
    whole = np.random.default_rng(0).standard_normal((5, 3, 9, 11)).astype(np.float32)
    x = wg.tensor(whole, device=interpreter("block=64,cores=2")[0])[crop]
    expected = whole[crop].astype(np.float64)
    for dims in ((0, 2, 3), None):
        np.testing.assert_allclose(x.sum(dims).cpu().numpy(), expected.sum(dims), rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(x.amax(dims).cpu().numpy(), expected.max(dims))
    normalized = wg.nn.functional.batch_norm(x, None, None, training=True).cpu().numpy()
    mean, variance = expected.mean((0, 2, 3), keepdims=True), expected.var((0, 2, 3), keepdims=True)
    np.testing.assert_allclose(normalized, (expected - mean) / np.sqrt(variance + 1e-5), rtol=1e-4, atol=1e-5)
