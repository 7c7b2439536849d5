"""Check reductions against NumPy in float64, with the schedules of a CPU, of a GPU and of a GPU with few resources.

The shapes cross every boundary of a schedule: no element, one, a vector plus or minus one, several vectors, several
work-groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from reduction_running import (
    SPECS,
    VENDORS,
    Case,
    close,
    equal,
    fetch,
    records_of,
    run,
    run_all,
    statics,
    tensor,
)
from vendors import change_capabilities

from weftgrad.codegen.loader import load_file
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.errors import DTypeError, IndexOutOfRange, ShapeError
from weftgrad.runtime.records import OpRecord
from weftgrad.runtime.tensor import Tensor


@pytest.fixture(scope="module")
def ops() -> dict[str, OpRecord]:
    return records_of(load_file(SPECS))


@pytest.fixture(params=("cpu", pytest.param("poor", marks=pytest.mark.thorough)))
def vendor(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The CPU device with the capabilities of the named vendor."""
    for _ in change_capabilities(VENDORS[request.param], monkeypatch):
        yield request.param


@pytest.fixture
def cpu() -> None:
    forget_plans()


@pytest.fixture
def wide_vectors(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The CPU device with vectors of 16 elements, independent of its processor."""
    yield from change_capabilities({"lanes": 16, "registers": 32}, monkeypatch)


def first_largest(x: np.ndarray[Any, Any], axis: int) -> tuple[Any, Any]:
    """Return maximum and index. `numpy.argmax` returns the first of ties, and the first NaN before any number."""
    position = np.argmax(x, axis=axis)
    return np.take_along_axis(x, np.expand_dims(position, axis), axis).squeeze(axis), position


def subsets(rank: int) -> list[tuple[int, ...]]:
    return [s for n in range(1, rank + 1) for s in itertools.combinations(range(rank), n)]


SHAPES = [
    (), (1,), (15,), (16,), (17,), (63,), (64,), (65,), (4095,), (4096,), (4113,), (33000,), (70001,), (600011,),
    (1, 1), (3, 5), (5, 17), (17, 5), (16, 16), (33, 129), (129, 33), (300, 200), (40, 1001), (1001, 40), (6000, 130),
    (2, 70000), (70000, 2), (6000, 10), (7, 1, 9), (2, 3, 4), (5, 16, 17), (16, 3, 40), (20, 30, 40),
    (0,), (0, 3), (3, 0), (2, 0, 17),
]  # fmt: skip


@pytest.mark.parametrize("vendor", VENDORS, indirect=True)
def test_sums_of_all_shapes_and_dims(ops: dict[str, OpRecord], vendor: str) -> None:
    rng = np.random.default_rng(1)
    cases: list[Case] = []
    for shape in SHAPES:
        x = rng.standard_normal(shape).astype(np.float32)
        operand, x64 = tensor(np.asarray(x)), x.astype(np.float64)
        for dim in [None, *subsets(len(shape))]:
            for keepdim in (False, True) if len(shape) == 2 else (False,):
                check = close(x64.sum(dim, keepdims=keepdim), 1e-6, np.abs(x64).sum(dim, keepdims=keepdim))
                cases.append((ops["sum"], (operand,), {"dim": dim, "keepdim": keepdim}, check))
    run_all(cases)


def test_forms_of_dim(ops: dict[str, OpRecord], cpu: None) -> None:
    x = np.arange(24, dtype=np.int64).reshape(2, 3, 4)
    operand = tensor(x)
    for dim, expected in [(-1, x.sum(-1)), ((-1, 0), x.sum((0, 2))), ((), x.sum()), ((1, -3), x.sum((0, 1)))]:
        np.testing.assert_array_equal(
            run(ops["sum"], operand, dim=tuple(dim) if isinstance(dim, list) else dim), expected
        )
    assert run(ops["sum"], operand, dim=None, keepdim=True).shape == (1, 1, 1)
    assert run(ops["sum"], tensor(np.array(3.0, np.float32)), dim=-1) == 3
    with pytest.raises(IndexOutOfRange, match=r"sum\(input int64\[2, 3, 4\]\): dimension out of range"):
        run(ops["sum"], operand, dim=3)
    with pytest.raises(ShapeError, match="appears twice"):
        run(ops["sum"], operand, dim=(0, -3))


def layouts(rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    """Return arrays with many kinds of strides, each over its own memory."""

    def base(*shape: int) -> np.ndarray[Any, Any]:
        return rng.standard_normal(shape).astype(np.float32)

    return [
        base(40, 70).T,
        base(70, 40)[3:, 1:],
        base(70, 80)[::2, ::3],
        base(37, 600)[:, 5::2],
        np.broadcast_to(base(40, 1), (40, 50)),
        np.broadcast_to(base(50), (40, 50)),
        np.broadcast_to(base(1), (9, 20)),
        base(6, 20, 33).transpose(2, 0, 1),
        base(6, 20, 33).transpose(1, 2, 0)[:, 1:, ::2],
        base(2, 3, 4, 5, 6)[:, :, 1:, :, ::2].transpose(4, 2, 0, 1, 3),
    ]


def test_strides(ops: dict[str, OpRecord], vendor: str) -> None:
    rng = np.random.default_rng(2)
    cases: list[Case] = []
    for x in layouts(rng):
        operand, x64 = tensor(x), x.astype(np.float64)
        for dim in [None, *((d,) for d in range(x.ndim))] if x.ndim < 5 else [(1, 3), (0, 2, 4)]:
            check = close(x64.sum(dim), 1e-6, np.abs(x64).sum(dim))
            cases.append((ops["sum"], (operand,), {"dim": dim}, check))
        if x.ndim == 3:
            cases.append((ops["argmax"], (operand,), {}, equal(np.argmax(x), np.int64)))
            cases.append((ops["max_dim"], (operand,), {"dim": 1}, equal(first_largest(x, 1))))
    run_all(cases)


def test_out_with_strides_is_written(ops: dict[str, OpRecord], vendor: str) -> None:
    rng = np.random.default_rng(3)
    for shape, dim in (((50, 40), 1), ((50, 40), 0), ((3000, 40), 0)):
        x = rng.standard_normal(shape).astype(np.float32)
        width = shape[1 - dim]
        buffer = tensor(np.zeros((width, 3), np.float32))
        out = Tensor(buffer.storage, meta(dtypes.float32, (width,), (3,), device("cpu")), buffer.start + 4)
        dispatch.call_into(ops["sum"], (tensor(x),), (dim, False, None), (out,), in_place=False)
        written = fetch(buffer)
        np.testing.assert_allclose(written[:, 1], x.sum(dim), rtol=1e-4, atol=1e-4)
        assert not written[:, [0, 2]].any()
    with pytest.raises(ShapeError, match=r"the result has shape \[40\], out has \[3\]"):
        dispatch.call_into(
            ops["sum"], (tensor(x),), (0, False, None), (tensor(np.zeros(3, np.float32)),), in_place=False
        )


SIZES = [(), (5,), (3, 5), (40,), (37, 129), (129, 37)]

TYPES = {
    "bool": ("sum", "amax", "any"), "uint8": ("sum", "argmin"), "int8": ("amax", "max_dim"), "int16": ("sum", "argmin"),
    "int32": ("sum", "argmin"), "int64": ("amax", "argmin"),
}  # fmt: skip


@pytest.mark.parametrize("dtype", TYPES)
def test_integers(ops: dict[str, OpRecord], vendor: str, dtype: str) -> None:
    rng = np.random.default_rng(4)
    cases: list[Case] = []
    for shape in SIZES:
        if dtype == "bool":
            x = np.asarray(rng.random(shape) > 0.3)
        else:
            info = np.iinfo(dtype)
            x = np.asarray(rng.integers(info.min, info.max, shape, dtype, endpoint=True))
        operand = tensor(x)
        for dim in (None, *range(len(shape))):
            with np.errstate(over="ignore"):
                expected = {
                    "sum": lambda x=x, d=dim: equal(x.sum(d, dtype=np.int64), np.int64),
                    "amax": lambda x=x, d=dim: equal(x.max(d), dtype),
                    "argmin": lambda x=x, d=dim: equal(np.argmin(x, d), np.int64),
                    "max_dim": lambda x=x, d=dim: equal(first_largest(x, d)),
                    "any": lambda x=x, d=dim: equal(x.any(d), bool),
                }
                for op in TYPES[dtype][: 3 if vendor == "cpu" else 1]:
                    if op != "max_dim" or dim is not None:
                        cases.append((ops[op], (operand,), {"dim": dim}, expected[op]()))
    run_all(cases)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64"])
def test_other_floats(ops: dict[str, OpRecord], vendor: str, dtype: str) -> None:
    if vendor == "poor" and dtype == "float64":
        pytest.skip("this device has no float64")
    rng = np.random.default_rng(5)
    tolerance = {"float16": 1e-3, "bfloat16": 8e-3, "float64": 1e-14}[dtype]
    cases: list[Case] = []
    for shape in SIZES:
        x = np.asarray(rng.standard_normal(shape))
        if dtype == "bfloat16":
            bits = np.asarray((x.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16))
            operand, x = tensor(bits, dtype), (bits.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
        else:
            x = x.astype(dtype)
            operand, x = tensor(x), x.astype(np.float64)
        for dim in (None, *range(len(shape))):
            check = close(x.mean(dim), tolerance, np.abs(x).mean(dim))
            cases.append(
                (ops["mean"], (operand,), {"dim": dim}, _from_bfloat16_bits(check) if dtype == "bfloat16" else check)
            )
            if dtype != "bfloat16" and vendor == "cpu":
                cases.append((ops["argmax"], (operand,), {"dim": dim}, equal(np.argmax(x, dim))))
    run_all(cases)


def _from_bfloat16_bits(check: Callable[[Any], None]) -> Callable[[Any], None]:
    return lambda actual: check((actual.astype(np.uint32) << 16).view(np.float32))


def test_every_op(ops: dict[str, OpRecord], vendor: str) -> None:
    rng = np.random.default_rng(6)
    cases: list[Case] = []
    for shape in ((33, 150), (120, 133), (300, 3), (257, 15), (260, 37)):
        x = rng.standard_normal(shape).astype(np.float32)
        integers = np.round(x).astype(np.float32)  # has ties and zeros
        operand, integer_tensor, near_one = tensor(x), tensor(integers), tensor(1 + x / 64)
        x64 = x.astype(np.float64)
        for dim in (0, 1):
            kwargs: dict[str, Any] = {"dim": dim}
            abs_sum = np.abs(x64).sum(dim)
            cases += [
                (ops["mean"], (operand,), kwargs, close(x64.mean(dim), 1e-6, np.abs(x64).mean(dim))),
                (ops["sum_squares"], (operand,), kwargs, close((x64**2).sum(dim), 1e-6, (x64**2).sum(dim))),
                (ops["euclidean_norm"], (operand,), kwargs, close(np.sqrt((x64**2).sum(dim)), 1e-6, abs_sum)),
                (ops["amax"], (operand,), kwargs, equal(x.max(dim), np.float32)),
                (ops["amin"], (operand,), kwargs, equal(x.min(dim), np.float32)),
                (ops["argmax"], (integer_tensor,), kwargs, equal(np.argmax(integers, dim), np.int64)),
                (ops["argmin"], (integer_tensor,), kwargs, equal(np.argmin(integers, dim), np.int64)),
                (ops["any"], (integer_tensor,), kwargs, equal(integers.any(dim), bool)),
                (ops["all"], (integer_tensor,), kwargs, equal(integers.all(dim), bool)),
                (ops["count_nonzero"], (integer_tensor,), kwargs, equal(np.count_nonzero(integers, dim), np.int64)),
            ]
            products = np.prod((1 + x / 64).astype(np.float64), dim)
            cases.append((ops["prod"], (near_one,), kwargs, close(products, 3e-5, products)))
            cases.append((ops["max_dim"], (integer_tensor,), kwargs, equal(first_largest(integers, dim))))
            lowest, position = first_largest(-integers, dim)
            cases.append((ops["min_dim"], (integer_tensor,), kwargs, equal((-lowest, position))))
    run_all(cases)


def test_short_rows_have_their_own_kernel(ops: dict[str, OpRecord], cpu: None) -> None:
    """It needs contiguous rows of few elements: not rows with gaps, not few rows, not reductions down the columns."""
    x = np.zeros((600, 3), np.float32)
    padded = np.zeros((600, 4), np.float32)[:, :3]
    rows = {"short": [x, x[::1], x.reshape(20, 30, 3)], "other": [x[:255], x[::2], padded, padded.T]}
    for expected, arrays in rows.items():
        for array in arrays:
            dim = array.shape.index(3)
            plan = dispatch.plan_for(ops["amax"], (tensor(array),), statics(ops["amax"], {"dim": dim}))
            entry = plan.steps[0].instance.entry
            assert entry.endswith("_short") == (expected == "short"), (array.shape, array.strides, entry)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "bfloat16"])
def test_interleaved_rows(ops: dict[str, OpRecord], wide_vectors: None, dtype: str) -> None:
    """Check many rows of one to eight vectors: with and without a partial vector, with and without rows left over after
    the last full set of lanes, with gaps between rows, and with NaN in the first element, in the last element and in
    the elements that an overlapping last vector loads again."""
    rng = np.random.default_rng(11)
    lanes = 8 if dtype in ("float64", "int32") else 16  # integers are summed in int64
    cases: list[Case] = []
    for rows, n, gap in ((256, 16, 0), (271, 17, 0), (300, 3 * lanes - 1, 3), (1000, 5 * lanes, 1),
                         (4099, 3 * lanes + 5, 0), (257, 8 * lanes, 0)):  # fmt: skip
        padded = rng.standard_normal((rows, n + gap)) if dtype != "int32" else rng.integers(-99, 99, (rows, n + gap))
        if dtype == "bfloat16":
            bits = (padded.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)
            operand, x = tensor(bits[:, :n], dtype), (bits[:, :n].astype(np.uint32) << 16).view(np.float32)
        else:
            padded = padded.astype(dtype)
            for row, column in ((1, 0), (2, n - 1), (rows - 1, n - lanes // 2)) if dtype != "int32" else ():
                padded[row, column] = np.nan
            operand, x = tensor(padded[:, :n]), padded[:, :n]
        x64 = x.astype(np.float64)
        abs_sum = np.nansum(np.abs(x64), 1)
        entry = dispatch.plan_for(ops["sum"], (operand,), statics(ops["sum"], {"dim": 1})).steps[0].instance.entry
        assert entry == "sum_interleaved", (rows, n, gap)
        tolerance = 1e-6 if dtype != "bfloat16" else 2**-8
        unpack = _from_bfloat16_bits if dtype == "bfloat16" else lambda check: check
        cases.append((ops["sum"], (operand,), {"dim": 1}, unpack(close(x64.sum(1), tolerance, abs_sum))))
        cases.append((ops["amax"], (operand,), {"dim": 1}, unpack(close(x64.max(1), 0))))
        if dtype != "int32":
            cases.append((ops["mean"], (operand,), {"dim": 1}, unpack(close(x64.mean(1), tolerance, abs_sum / n))))
    run_all(cases)


def test_which_rows_are_interleaved(ops: dict[str, OpRecord], wide_vectors: None) -> None:
    x = np.zeros((600, 40), np.float32)
    cases = [
        (x, 1, True), (x.reshape(20, 30, 40), 2, True), (x[:, 3:30], 1, True), (x[::2], 1, True), (x.T, 0, True),
        (x, 0, False), (x[:255], 1, False), (x[:, ::2], 1, False), (np.zeros((600, 129), np.float32), 1, False),
        (np.zeros((600, 20, 20), np.float32)[:, :, :19], (1, 2), False), (np.zeros((20, 30, 41))[:, :29], 2, False),
    ]  # fmt: skip
    for array, dim, expected in cases:
        plan = dispatch.plan_for(ops["sum"], (tensor(array),), statics(ops["sum"], {"dim": dim}))
        entry = plan.steps[0].instance.entry
        assert (entry == "sum_interleaved") is expected, (array.shape, array.strides, dim, entry)


def test_any_and_count_nonzero_of_small_numbers(ops: dict[str, OpRecord], cpu: None) -> None:
    x = np.zeros((4, 40), np.float32)
    x[1, 3], x[2, 17], x[3, 39], x[0, 2] = 0.25, np.nan, -1e-40, -0.0
    for dim in (0, 1, None):
        np.testing.assert_array_equal(run(ops["any"], tensor(x), dim=dim), x.any(dim))
        np.testing.assert_array_equal(run(ops["count_nonzero"], tensor(x), dim=dim), np.count_nonzero(x, dim))


def test_nan_infinity_and_ties(ops: dict[str, OpRecord], vendor: str) -> None:
    rng = np.random.default_rng(7)
    cases: list[Case] = []
    for shape in ((30, 40), (40, 1000), (300, 7)):
        x = rng.integers(-2, 3, shape).astype(np.float32)
        x[1, 2] = x[1, 5] = x[3, 3] = np.nan
        x[2] = -np.inf
        x[4, 1], x[5, 2], x[0, 6], x[0, 4] = np.inf, -np.inf, np.inf, -np.inf
        operand = tensor(x)
        for dim in (0, 1, None):
            kwargs: dict[str, Any] = {"dim": dim}
            with np.errstate(invalid="ignore"):
                cases.append((ops["sum"], (operand,), kwargs, close(x.sum(dim, dtype=np.float64), 1e-6)))
                cases.append((ops["amax"], (operand,), kwargs, equal(x.max(dim))))
            cases.append((ops["argmax"], (operand,), kwargs, equal(np.argmax(x, dim))))
            if dim is not None:
                cases.append((ops["max_dim"], (operand,), kwargs, equal(first_largest(x, dim))))
    flat = np.zeros(50_000, np.float32)
    cases.append((ops["argmax"], (tensor(flat),), {}, equal(np.int64(0))))
    flat[[40_000, 30_000]] = 1
    cases.append((ops["argmax"], (tensor(flat),), {}, equal(np.int64(30_000))))
    flat[45_000] = np.nan
    cases.append((ops["argmax"], (tensor(flat),), {}, equal(np.int64(45_000))))
    run_all(cases)


def test_nothing_to_reduce(ops: dict[str, OpRecord], vendor: str) -> None:
    x = tensor(np.zeros((0, 3), np.float32))
    np.testing.assert_array_equal(run(ops["sum"], x, dim=0), np.zeros(3))
    np.testing.assert_array_equal(run(ops["prod"], x), 1)
    np.testing.assert_array_equal(run(ops["mean"], x, dim=0, keepdim=True), np.full((1, 3), np.nan))
    np.testing.assert_array_equal(run(ops["any"], x, dim=0), [False] * 3)
    np.testing.assert_array_equal(run(ops["all"], x, dim=0), [True] * 3)
    assert run(ops["amax"], x, dim=1).shape == (0,)
    with pytest.raises(ShapeError, match=r"amax\(input float32\[0, 3\]\): nothing to reduce: dimension 0 has no elem"):
        run(ops["amax"], x, dim=0)
    with pytest.raises(ShapeError, match="argmax has no value for none"):
        run(ops["argmax"], x)


def test_dtype_of_the_result(ops: dict[str, OpRecord], cpu: None) -> None:
    x = tensor(np.array([1, 2, 250], np.uint8))
    assert run(ops["sum"], x, dtype=dtypes.float32).dtype == np.float32
    assert run(ops["sum"], x, dtype="int32").dtype == np.int32
    assert run(ops["sum"], x, dtype="uint8") == 253
    assert run(ops["mean"], x, dtype="float64") == 253 / 3
    with pytest.raises(DTypeError, match="cannot give int32"):
        run(ops["mean"], x, dtype="int32")
    half = tensor(np.full(5000, 30, np.float16))
    assert run(ops["sum"], half, dtype=dtypes.float32) == 150_000
    assert run(ops["mean"], half) == 30  # although the sum overflows float16


def test_long_sums_are_accurate_and_reproducible(ops: dict[str, OpRecord], vendor: str) -> None:
    """Sum many positive numbers. A single running sum in float32 would exceed this tolerance by far."""
    rng = np.random.default_rng(8)
    x = rng.random((1 << 20, 2), np.float32)
    x64 = x.astype(np.float64)
    x_tensor = tensor(x)
    for array, operand in ((x, x_tensor), (x.T.copy(), tensor(x.T.copy()))):
        for dim in (None, *range(2)):
            actual = run(ops["sum"], operand, dim=dim)
            np.testing.assert_allclose(actual, array.astype(np.float64).sum(dim), rtol=1e-6)
            assert actual.tobytes() == run(ops["sum"], operand, dim=dim).tobytes()
    if vendor == "cpu":
        tall = np.repeat(x[:, :1], 16, 1)
        np.testing.assert_allclose(run(ops["sum"], tensor(tall), dim=0), [x64[:, 0].sum()] * 16, rtol=1e-6)
