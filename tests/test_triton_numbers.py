"""Numbers of the Triton target: halves round to nearest even where they are stored, integers wrap around, float64 is
computed in float64. Blocks are small, so that every kernel takes several programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from op_running import rounded

pytest.importorskip("triton")

from triton_running import added, at, convolved, interpreter

import weftgrad as wg
from weftgrad.nn import functional as F

Array = Any
SMALL, _ = interpreter("block=64,cores=2")
HALVES = {"float16": 2048.0, "bfloat16": 256.0}  # whole numbers are 2 apart from here on


def stored(x: Any) -> Array:
    return (x.float() if x.dtype is wg.bfloat16 else x).detach().cpu().numpy()


@pytest.mark.parametrize("dtype", HALVES)
def test_halves_round_to_nearest_even(dtype: str) -> None:
    """Halfway cases in every kind of kernel: n + 1 is rounded down, n + 3 up."""
    kept, n = getattr(wg, dtype), HALVES[dtype]

    def made(values: Any) -> Any:
        return wg.tensor(np.asarray(values, np.float32), device=SMALL).to(kept)

    def is_(found: Any, expected: Any, what: str) -> None:
        assert found.dtype is kept, what
        np.testing.assert_array_equal(stored(found), np.asarray(expected, np.float32), what)

    pairs, sums = [[n, 1], [n, 3], [n + 2, 1], [-n, -1], [-n, -3]], [n, n + 4, n + 4, -n, -n - 4]
    x = made(pairs)
    is_(x[:, 0] + x[:, 1], sums, "pointwise rows")
    is_(made([p[0] for p in pairs]) + made([p[1] for p in pairs]), sums, "pointwise flat")
    is_(x.sum(1), sums, "reduction")
    is_(x.T.sum(0), sums, "reduction of columns")
    is_(made([n, 1, 1] + [0] * 9000).sum(), n + 2, "reduction in shares, rounded once")
    is_(made([n, 1] + [0] * 9000).sum(), n, "reduction in shares")
    is_(x @ made([[1, 2], [1, 2]]), [[s, 2 * s] for s in sums], "contraction")
    is_(made([n, 3]) @ made([1, 1]), n + 4, "contraction to a number")
    is_(F.conv2d(x.reshape(5, 2, 1, 1), made(np.ones((1, 2, 1, 1)))).flatten(), sums, "convolution")
    rows = wg.tensor(np.zeros(3, np.int64), device=SMALL)
    is_(made([n]).index_add(0, rows[:1], made([1])), [n], "index")
    is_(made([n]).index_add(0, rows, made([1, 1, 1])), [n + 4], "index, rounded once")
    # With eps the root of the variance is 2, so that 1 and -1 are added to what cannot hold them.
    normalized = F.layer_norm(made([[1, -1]]), (2,), made([2, 2]), made([n, n + 4]), eps=3.0)
    is_(normalized, [[n, n + 4]], "rowwise")


def _of_bits(bits: Array, dtype: str) -> Array:
    """The numbers of these 16 bits, in float32."""
    if dtype == "bfloat16":
        return (bits << 16).view(np.float32)
    return bits.astype(np.uint16).view(np.float16).astype(np.float32)


@pytest.mark.parametrize("dtype", HALVES)
def test_conversions_to_halves(dtype: str) -> None:
    """Neighbouring halves, their middles, and what lies next to the middles; overflow, subnormals, zeros, NaN."""
    bits = np.random.default_rng(0).integers(0, 2**16, 3000, dtype=np.uint32)
    with np.errstate(all="ignore"):
        low, high = (_of_bits(bits + one, dtype) for one in (np.uint32(0), np.uint32(1)))
        middle = low / 2 + high / 2
        beside = [np.nextafter(middle, np.float32(end)) for end in (0, np.inf)]
    edges = np.float32(
        [0, 65504, 65519.996, 65520, 65536, 2**-24, 2**-25, 1.0000001 * 2**-25, 3 * 2**-25, 3.3961775e38, 3.4028235e38]
    )
    values = np.concatenate([low, middle, *beside, edges, -edges, np.float32([np.inf, -np.inf, np.nan])])
    found = stored(wg.tensor(values, device=SMALL).to(getattr(wg, dtype))).astype(np.float32)
    np.testing.assert_array_equal(found, rounded(values, dtype).astype(np.float32))
    zero = values == 0
    np.testing.assert_array_equal(np.signbit(found[zero]), np.signbit(values[zero]))


def test_float64_is_exact() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.standard_normal(150) * 1e3, rng.standard_normal(150)
    a, b = wg.tensor(x, device=SMALL), wg.tensor(y, device=SMALL)
    for name, found, expected in (
        ("add", a + b, x + y), ("sub", a - b, x - y), ("mul", a * b, x * y), ("div", a / b, x / y),
        ("sqrt", a.abs().sqrt(), np.sqrt(np.abs(x))), ("rows", a[::3] * b[::3], x[::3] * y[::3]),
        ("maximum", wg.maximum(a, b), np.maximum(x, y)),
    ):  # fmt: skip
        np.testing.assert_array_equal(found.cpu().numpy(), expected, name)
    # Whole numbers of more bits than float32 has.
    whole = rng.integers(-(2**40), 2**40, (30, 300)).astype(np.float64)
    w = wg.tensor(whole, device=SMALL)
    np.testing.assert_array_equal(w.sum(1).cpu().numpy(), whole.sum(1))
    np.testing.assert_array_equal(w.reshape(-1).sum().cpu().numpy(), whole.sum())
    small = np.round(whole / 2**20)
    s = wg.tensor(small, device=SMALL)
    np.testing.assert_array_equal((s @ s.T).cpu().numpy(), small @ small.T)
    index = rng.integers(0, 5, 30)
    found = wg.zeros(5, 300, dtype=wg.float64, device=SMALL).index_add(0, at(index, w), w)
    np.testing.assert_array_equal(found.cpu().numpy(), added(np.zeros((5, 300)), index, whole))
    image, kernel = small[:1, :60].reshape(1, 1, 6, 10), small[1:2, :4].reshape(1, 1, 2, 2)
    found = F.conv2d(wg.tensor(image, device=SMALL), wg.tensor(kernel, device=SMALL))
    np.testing.assert_array_equal(found.cpu().numpy(), convolved(image, kernel))


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_integers_wrap_around(dtype: str) -> None:
    info, rng = np.iinfo(dtype), np.random.default_rng(0)
    edges = np.array([info.min, info.min + 1, info.max, info.max - 1, 0, 1, 3], dtype)
    x = np.concatenate([rng.integers(info.min, info.max, 143, dtype, endpoint=True), edges])
    y = np.concatenate([rng.integers(info.min, info.max, 143, dtype, endpoint=True), edges[::-1]])
    a, b = wg.tensor(x, device=SMALL), wg.tensor(y, device=SMALL)
    index = rng.integers(0, 7, 150)
    counted, long = np.zeros(7, dtype), np.concatenate([x] * 60)
    triple = x.astype(np.int64) * 3
    with np.errstate(over="ignore"):
        np.add.at(counted, index, x)
        pairs = {
            "add": (a + b, x + y), "sub": (a - b, x - y), "mul": (a * b, x * y), "square": (a * a, x * x),
            "neg": (-a, -x), "rows": (a[::2] * b[::2], x[::2] * y[::2]), "and": (a & b, x & y), "xor": (a ^ b, x ^ y),
            "invert": (~a, ~x), "maximum": (wg.maximum(a, b), np.maximum(x, y)), "less": (a < b, x < y),
            "abs": (a.abs(), np.abs(x)),
            "narrowed": (wg.tensor(triple, device=SMALL).to(a.dtype), triple.astype(dtype)),
            "sum": (a.sum(), x.sum(dtype=np.int64)), "prod": (a.prod(), x.prod(dtype=np.int64)),
            "sum of columns": (a.reshape(10, 15).sum(0), x.reshape(10, 15).sum(0, dtype=np.int64)),
            "sum in shares": (wg.tensor(long, device=SMALL).sum(), long.sum(dtype=np.int64)),
            "max": (a.max(), x.max()), "argmin": (a.argmin(), x.argmin()),
            "index_add": (wg.zeros(7, dtype=a.dtype, device=SMALL).index_add(0, at(index, a), a), counted),
            "take": (a[at(index, a)], x[index]),
            "matmul": (a.reshape(10, 15) @ b.reshape(15, 10), x.reshape(10, 15) @ y.reshape(15, 10)),
        }  # fmt: skip
    for name, (found, expected) in pairs.items():
        assert found.dtype.name == expected.dtype.name, name
        np.testing.assert_array_equal(found.cpu().numpy(), expected, name)


def test_bool() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.random((9, 20)) > 0.5, rng.random((9, 20)) > 0.5
    x[3], x[4] = True, False
    a, b = wg.tensor(x, device=SMALL), wg.tensor(y, device=SMALL)
    numbers, whole = np.array([0.0, -0.0, 0.25, np.nan, -3]), np.array([256, 0, -1, 2**40])
    pairs = {
        "and": (a & b, x & y), "or": (a | b, x | y), "xor": (a ^ b, x ^ y), "not": (~a, ~x), "add": (a + b, x | y),
        "mul": (a * b, x & y), "eq": (a == b, x == y), "rows": (a.T & b.T, (x & y).T), "any": (a.any(1), x.any(1)),
        "all": (a.all(1), x.all(1)), "sum": (a.sum(0), x.sum(0)), "max": (a.amax(1), x.max(1)),
        "of numbers": (wg.tensor(numbers, device=SMALL).bool(), numbers != 0),
        "of integers": (wg.tensor(whole, device=SMALL).bool(), whole != 0),
        "to numbers": (a.float(), x.astype(np.float32)),
        "where": (wg.where(a, b, ~b), np.where(x, y, ~y)),
        "read": (a[at(np.array([3, 3, 0]), a)], x[[3, 3, 0]]),
    }  # fmt: skip
    for name, (found, expected) in pairs.items():
        assert found.dtype.name == expected.dtype.name, name
        np.testing.assert_array_equal(found.cpu().numpy(), expected, name)
    # The bytes 0 and 1, for whoever reads them as numbers.
    assert set(np.unique((a + a).cpu().numpy().view(np.uint8))) == {0, 1}


@pytest.mark.parametrize("cores", [1, 3])
def test_many_indices_are_added_in_their_order(cores: int) -> None:
    """More indices than are looked through at a time, each named often; in one share of the positions and in many."""
    place, driver = interpreter(f"block=64,cores={cores}")
    rng = np.random.default_rng(0)
    index = np.concatenate([rng.integers(0, 90, 240), [89] * 20, [0] * 10])
    source = rng.standard_normal((270, 7)) * 10.0 ** rng.integers(-8, 8, (270, 1))  # sums depend on the order
    expected = added(np.zeros((90, 7)), index, source)
    rows, lines = wg.tensor(source, device=place), wg.tensor(source.T.copy(), device=place)
    empty = wg.zeros(90, 7, dtype=wg.float64, device=place)
    for name, found, values in (
        ("rows", empty.index_add(0, at(index, rows), rows), expected),
        ("columns", empty.T.contiguous().index_add(1, at(index, rows), lines), expected.T),
        ("numbers", empty[:, 0].index_add(0, at(index, rows), rows[:, 0]), expected[:, 0]),
        ("an index an element", empty.scatter_add(0, at(np.stack([index] * 7, 1), rows), rows), expected),
    ):
        np.testing.assert_array_equal(found.cpu().numpy(), values, name)
    last = np.zeros((90, 7))
    last[index] = source
    found = empty.clone()
    found[at(index, rows)] = rows
    np.testing.assert_array_equal(found.cpu().numpy(), last)
    two = at(index % 9, rows), at(index // 9, rows)
    found = empty.reshape(9, 10, 7).index_put(two, rows, accumulate=True)
    across = np.zeros((9, 10, 7))
    np.add.at(across, (index % 9, index // 9), source)
    np.testing.assert_array_equal(found.cpu().numpy(), across)
    shared = {dict(s.instance.defines)["SHARED"] for s in driver.launched if s.instance.entry.endswith("_write")}
    assert shared == {0, 1}


@pytest.mark.parametrize("block", [64, 256])
def test_transposed_operands_are_read_in_square_tiles(block: int) -> None:
    place, driver = interpreter(f"block={block},cores=2")
    rng = np.random.default_rng(0)
    for shape, order in (
        ((33, 50), (1, 0)), ((3, 40), (1, 0)), ((70, 3), (1, 0)), ((2, 17, 19), (0, 2, 1)),
        ((2, 5, 4, 6), (0, 2, 3, 1)), ((4, 32, 48), (0, 2, 1)), ((3, 4, 5, 6), (3, 2, 1, 0)),
    ):  # fmt: skip
        x = rng.standard_normal(shape)
        y = rng.standard_normal(x.transpose(order).shape)
        given = wg.tensor(x, device=place)
        turned, beside = given.permute(*order), wg.tensor(y, device=place)
        np.testing.assert_array_equal(turned.contiguous().cpu().numpy(), x.transpose(order))
        out = beside.clone()
        out += turned
        np.testing.assert_array_equal(out.cpu().numpy(), y + x.transpose(order))
    tiles = [dict(s.instance.defines) for s in driver.launched if s.instance.entry.endswith("_rows")]
    square = [d for d in tiles if d["BESIDE0"] or d.get("BESIDE1")]
    assert len(square) >= 10
    assert max(d["ROWS"] for d in square) > 1 < max(d["COLUMNS"] for d in square)
