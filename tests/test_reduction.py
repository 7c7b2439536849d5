"""Check reductions against NumPy in float64, with the schedules of a CPU, of a GPU and of a GPU with few resources.

The shapes cross every boundary of a schedule: no element, one, a vector plus or minus one, several vectors, several
blocks, reductions split between work-groups.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from vendors import change_capabilities

import weftgrad as wg
import weftgrad.codegen
from weftgrad.codegen.kinds import reduction as kind
from weftgrad.codegen.loader import load_file, load_text
from weftgrad.codegen.model import SpecError, SpecErrors
from weftgrad.codegen.render import environment, record_literals, render_all
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.device import device, meta
from weftgrad.runtime.errors import DTypeError, IndexOutOfRange, ShapeError
from weftgrad.runtime.records import OpRecord, Text, make_record, registry
from weftgrad.runtime.tensor import Tensor

SPECS = Path(str(resources.files(weftgrad.codegen))) / "specs" / "reductions.yaml"
VENDORS = {
    "cpu": {},
    "gpu": {"style": "gpu", "lanes": 4, "max_group": 256},
    "poor": {"style": "gpu", "lanes": 4, "max_group": 64, "local_memory": 16384, "fp64": False, "cores": 1},
}


def records_of(ops: Any) -> dict[str, OpRecord]:
    generated = render_all(ops, 0).records
    return {
        name: make_record(
            **record_literals(data), texts={k: Text(s.text, s.functions) for k, s in data.rendered.sources.items()}
        )
        for name, data in generated.items()
    }


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


def tensor(array: np.ndarray[Any, Any], dtype: str | None = None) -> Tensor:
    """Return a tensor with the array's strides, over a copy of the memory that the array is a view of."""
    base = array
    while isinstance(base.base, np.ndarray):
        base = base.base
    element_dtype = dtypes.parse(dtype or array.dtype)
    memory = dispatch.empty(meta(element_dtype, (base.size,), None, device("cpu")))
    driver = memory.storage.device.driver
    if base.size:
        driver.write(memory.storage, 0, np.ndarray((base.size,), base.dtype, base), driver.default_stream)
    byte_offset = array.__array_interface__["data"][0] - base.__array_interface__["data"][0] if array.size else 0
    strides = tuple(s // array.itemsize for s in array.strides)
    return Tensor(memory.storage, meta(element_dtype, array.shape, strides, device("cpu")), memory.start + byte_offset)


def fetch(result: Tensor) -> np.ndarray[Any, Any]:
    layout = result.meta
    assert layout.contiguous
    array = np.empty(layout.shape, layout.dtype.numpy)
    driver = result.storage.device.driver
    if array.size:
        driver.read(result.storage, result.start - result.storage.start, array, driver.default_stream)
    return array


def statics(record: OpRecord, kwargs: dict[str, Any]) -> tuple[Any, ...]:
    return tuple(kwargs.get(s, False if s == "keepdim" else None) for s in record.statics)


def run(record: OpRecord, *operands: Any, **kwargs: Any) -> Any:
    results = dispatch.call(record, operands, statics(record, kwargs))
    return tuple(map(fetch, results)) if isinstance(results, tuple) else fetch(results)


def with_saved_outputs(record: OpRecord) -> OpRecord:
    """Return the op in the form for recorded calls: with the outputs that its gradients read."""
    return replace(record, bare="")


Case = tuple[OpRecord, tuple[Any, ...], dict[str, Any], Callable[[Any], None]]


def run_all(cases: list[Case]) -> None:
    """Run every case with and without saved outputs, after building all kernels in a few programs."""
    cases = [*cases, *((with_saved_outputs(record), *call) for record, *call in cases if record.bare)]
    driver: Any = device("cpu").driver
    plans = [dispatch.plan_for(record, operands, statics(record, kwargs)) for record, operands, kwargs, _ in cases]
    driver.build([step.instance for plan in plans for step in plan.steps])
    for record, operands, kwargs, check in cases:
        check(run(record, *operands, **kwargs))


def close(expected: Any, tolerance: float, scale: Any = 1.0) -> Callable[[Any], None]:
    def check(actual: Any) -> None:
        assert actual.shape == np.shape(expected), (actual.shape, np.shape(expected))
        actual64 = actual.astype(np.float64)
        is_equal = (actual64 == expected) | (np.isnan(actual64) & np.isnan(expected))
        with np.errstate(invalid="ignore"):
            error = np.where(is_equal, 0, np.abs(actual64 - expected))
        assert (error <= tolerance * np.maximum(scale, 1e-30)).all(), (np.max(error), np.shape(expected))

    return check


def equal(expected: Any, dtype: Any = None) -> Callable[[Any], None]:
    def check(actual: Any) -> None:
        for g, e in zip(actual, expected, strict=True) if isinstance(actual, tuple) else ((actual, expected),):
            np.testing.assert_array_equal(g, e)
            assert g.shape == np.shape(e)
            assert dtype is None or isinstance(actual, tuple) or g.dtype == dtype, g.dtype

    return check


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


def test_saved_outputs(ops: dict[str, OpRecord], vendor: str) -> None:
    def with_all_outputs(name: str) -> OpRecord:
        record = with_saved_outputs(ops[name])
        return replace(record, outputs=tuple(replace(o, saved=False) for o in record.outputs))

    x = np.array([[3, 1, 3], [0, 2, 5], [0, 4, 0]], np.float32)
    expected = {
        "amax": ([3, 5, 4], [2, 1, 1]), "amin": ([1, 0, 0], [1, 1, 2]), "prod": ([9, 0, 0], [9, 10, 4], [0, 1, 2]),
    }  # fmt: skip
    for name, values in expected.items():
        outputs = run(with_all_outputs(name), tensor(x), dim=1)
        assert len(outputs) == len(values)
        for actual, value in zip(outputs, values, strict=True):
            np.testing.assert_array_equal(actual, value, err_msg=name)
        np.testing.assert_array_equal(run(ops[name], tensor(x), dim=1), values[0], err_msg=name)


@pytest.mark.parametrize("name", ["amax", "amin"])
def test_calls_without_gradients_save_nothing(name: str) -> None:
    """Such calls, also with `out=`, run the op without saved outputs; profiles and errors show the op's own name."""
    x = np.array([[3, 1, 3], [0, 2, 5], [0, 4, 0]], np.float32)
    op = getattr(wg, name)
    x_tensor, leaf, out = wg.tensor(x), wg.tensor(x, requires_grad=True), wg.empty(3)
    with wg.profiler.profile() as profile:
        plain = op(x_tensor, 1)
        op(x_tensor, 1, out=out)
        with wg.no_grad():
            unrecorded = op(leaf, 1)
        recorded = op(leaf, 1)
    kernels = [e.name.rpartition("_")[0] for e in profile.events() if e.is_kernel and e.name.startswith(name)]
    assert kernels == [*[f"{name}_bare"] * 3, name]
    assert f"{name}_bare" not in {e.name for e in profile.events() if not e.is_kernel}
    assert [t.requires_grad for t in (plain, out, unrecorded, recorded)] == [False, False, False, True]
    for output in (plain, out, unrecorded, recorded):
        np.testing.assert_array_equal(output.detach().numpy(), getattr(np, name)(x, 1))
    recorded.sum().backward()
    assert leaf.grad is not None
    with pytest.raises(IndexOutOfRange, match=rf"^{name}\(input float32\[3, 3\]\): dimension out of range"):
        op(x_tensor, 2)


def test_variants_of_a_user_op_are_registered_once() -> None:
    """Deriving the gradients of an op that was loaded in this process must not register its variants again."""
    ops = wg.ops.load("""
- op: "loaded_peak(input, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  doc: The largest element.
  dtypes: float
  reduce:
    identity: {value: lowest, ties: 0}
    map: {value: input, ties: 1}
    combine:
      value: maximum(a_value, b_value)
      ties: where(a_value > b_value, a_ties, where(b_value > a_value, b_ties, a_ties + b_ties))
    finish: {out: value, count: ties}
    save: [count]
  grad: {input: "where(input == out, grad / count, 0)"}

- op: "loaded_softmax(input, weight: Row | None, dim: int = -1)"
  kind: rowwise
  doc: Softmax, times a weight.
  dtypes: float
  let: {powers: exp(input - max(input))}
  out: powers / sum(powers) * weight
""")
    x = wg.tensor([[1.0, 3.0, 3.0], [2.0, 0.0, 1.0]], requires_grad=True)
    ops.loaded_peak(x, 1).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), [[0, 0.5, 0.5], [1, 0, 0]])  # type: ignore[union-attr]
    (ops.loaded_softmax(x, None) ** 2).sum().backward()
    (ops.loaded_softmax(x, x[0].detach()) ** 2).sum().backward()
    names = [r.name for r in registry if r.name.startswith("loaded_")]
    assert {"loaded_peak_bare", "loaded_softmax_plain"} <= set(names)
    assert not [name for name in names if name.endswith("_v2")]


def test_bare_ops_drop_the_fields_of_saved_outputs() -> None:
    text = """
- op: "spread(input, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  doc: Largest element minus the smallest; also the number of elements and the index of the largest.
  dtypes: float
  reduce:
    identity: {high: lowest, low: highest, place: 0, several: 0}
    map: {high: input, low: input, place: index, several: 1}
    let: {later: (b_high > a_high) or (b_high == a_high and b_place < a_place)}
    combine:
      high: maximum(a_high, b_high)
      low: minimum(a_low, b_low)
      place: where(later, b_place, a_place)
      several: a_several + b_several
    finish: {out: high - low, top: place, all: several}
    save: [SAVED]
  grad: none
"""
    records = {k: render_all(load_text(text.replace("SAVED", k)), 0).records for k in ("all", "top, all")}
    assert [(o.name, o.saved) for o in records["all"]["spread"].rendered.outputs] == [
        ("out", False), ("top", False), ("all", True),
    ]  # fmt: skip
    assert list(records["all"]) == ["spread"]  # without `place` the result bits could change
    assert set(records["top, all"]) == {"spread", "spread_bare"}
    bare = records["top, all"]["spread_bare"]
    assert list(bare.op.fields["reduce"]["map"]) == ["high", "low"]
    assert [o.name for o in bare.rendered.outputs] == ["out"]


@pytest.mark.parametrize(
    ("signature", "finish"),
    [("acc", "{out: value, count: ties}"), ("input, eps: float", "{out: value, count: ties + eps}"),
     ("input", "{out: n, count: ties}"), ("input, acc: float", "{out: value + acc, count: ties}")],
)  # fmt: skip
def test_ops_that_cannot_be_bare(signature: str, finish: str) -> None:
    """An op has no bare form where a name would clash or a parameter would be unused. It is correct without one."""
    source = signature.partition(",")[0]
    text = f"""
- op: "peak({signature}, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  doc: The largest element.
  dtypes: float
  reduce:
    identity: {{value: lowest, ties: 0}}
    map: {{value: {source}, ties: 1}}
    combine: {{value: "maximum(a_value, b_value)", ties: a_ties + b_ties}}
    finish: {finish}
    save: [count]
  grad: none
"""
    assert list(render_all(load_text(text), 0).records) == ["peak"]


@pytest.mark.parametrize("name", ["amax", "amin", "prod", "max", "std"])
def test_bits_are_the_same_with_a_gradient_and_without(name: str) -> None:
    rng = np.random.default_rng(1)
    for shape in ((64, 3000), (3000, 64), (5000, 3), (600, 40)):
        x = (1 + 0.02 * rng.standard_normal(shape)).astype(np.float32)
        for dim in (0, 1):
            results = [getattr(wg.tensor(x, requires_grad=grad), name)(dim) for grad in (False, True)]
            plain, recorded = (r.values if name == "max" else r for r in results)
            np.testing.assert_array_equal(plain.numpy(), recorded.detach().numpy(), err_msg=f"{name} {shape} {dim}")


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


USER = """
- op: "dot_all(input, other, scale: Scalar = 1, dim: int | None = None, keepdim: bool = False)"
  kind: reduction
  dtypes: float
  reduce: {identity: 0, map: input * other * scale, combine: a + b, finish: acc}
- op: "root_mean(input, power: float, dim: int | None = None)"
  kind: reduction
  dtypes: float
  result: float
  reduce: {identity: 0, map: abs(input) * power, combine: a + b, finish: sqrt(acc / n)}
- op: "last_true(input, mask: Mask, dim: int)"
  kind: reduction
  dtypes: all
  reduce:
    identity: {value: 0, place: -1}
    map: {value: input, place: "where(mask, index, -1)"}
    let: {later: b_place > a_place}
    combine: {value: "where(later, b_value, a_value)", place: "where(later, b_place, a_place)"}
    finish: {out: value, place_found: place, found: place >= 0}
  grad: none
"""


def test_user_ops(vendor: str) -> None:
    records = records_of(load_text(USER))
    rng = np.random.default_rng(9)
    a, b = rng.standard_normal((37, 50)).astype(np.float32), rng.standard_normal((50,)).astype(np.float32)
    column = rng.standard_normal((37, 1)).astype(np.float32)
    mask = rng.random((37, 50)) > 0.8
    mask[3] = False
    last_column = np.where(mask.any(1), 49 - np.argmax(mask[:, ::-1], 1), -1)
    last_row = np.where(mask.any(0), 36 - np.argmax(mask[::-1], 0), -1)
    cases: list[Case] = []
    for other in (b, column, a.T.copy().T):
        for dim in (0, 1):
            product = a.astype(np.float64) * other * 2.5
            check = close(product.sum(dim), 1e-6, np.abs(product).sum(dim))
            cases.append((records["dot_all"], (tensor(a), tensor(other), 2.5), {"dim": dim}, check))
    for dim in (0, 1):
        value = np.sqrt((np.abs(a).astype(np.float64) * 1.5).mean(dim))
        cases.append((records["root_mean"], (tensor(a), 1.5), {"dim": dim}, close(value, 1e-6, value)))
    picked = np.where(mask.any(1), a[np.arange(37), last_column], 0)
    cases.append(
        (records["last_true"], (tensor(a), tensor(mask)), {"dim": 1}, equal((picked, last_column, last_column >= 0)))
    )
    picked = np.where(mask.any(0), a[last_row, np.arange(50)], 0)
    cases.append(
        (records["last_true"], (tensor(a), tensor(mask)), {"dim": 0}, equal((picked, last_row, last_row >= 0)))
    )
    run_all(cases)
    with pytest.raises(ShapeError, match="do not broadcast"):
        run(records["dot_all"], tensor(a), tensor(a[:, :7].copy()), 1.0)


# The spec


def entry(**fields: Any) -> str:
    lines = ['- op: "mix(input, dim: int | None = None)"', "  kind: reduction"]
    return "\n".join([*lines, *(f"  {k}: {v}" for k, v in fields.items())])


@pytest.mark.parametrize(
    ("reduce", "field", "message"),
    [
        ("{identity: 0, map: input}", "reduce", "needs `reduce:`"),
        ("{identity: 0, map: input, combine: a + c}", "reduce.combine", "unknown name 'c'"),
        ("{identity: 0, map: input, combine: a + b, extra: 1}", "reduce", "unknown fields extra"),
        ("{identity: low, map: input, combine: a + b}", "reduce.identity", "unknown name 'low'"),
        ("{identity: 0, map: input > 0, combine: a or b}", "reduce.identity", "0 is no mask"),
        ("{identity: false, map: input > 0, combine: a + b}", "reduce.combine", "gives a value, but map gives a mask"),
        ("{identity: {x: 0}, map: {y: input}, combine: {y: a_y}}", "reduce.identity", "map has"),
        ("{identity: 0, map: {y: input}, combine: {y: a_y}}", "reduce.identity", "all mappings"),
        ("{identity: lowest, map: index + 0 * index, combine: a + b}", "reduce.identity", "lowest is for values"),
        ("{identity: 0, map: 'where(input > 0, index, 0)', combine: 'maximum(a, b)'}", "", "of an index"),
        ("{identity: {input: 0}, map: {input: input}, combine: {input: a_input}}", "reduce.map", "name of a parameter"),
        ("{identity: 0, map: input, combine: a + b, finish: {input: acc}}", "reduce.finish", "name of a parameter"),
        ("{identity: 0, map: input, combine: a + b, finish: {out: acc}, save: [out]}", "reduce.save", "after one"),
        ("{identity: 0, map: 1, combine: a + b}", "reduce", "'input' is used by no expression"),
        ("{identity: 1, map: input, combine: a * b}", "", "only `combine: a \\+ b` is derived"),
    ],
)
def test_errors_name_the_field(reduce: str, field: str, message: str) -> None:
    if not field:
        (op,) = load_text(entry(reduce=reduce, dtypes="all"))
        with pytest.raises(SpecError, match=message):
            kind.render(op, environment()) if "index" in reduce else kind.derive(op)
        return
    with pytest.raises(SpecErrors) as excinfo:
        load_text(entry(reduce=reduce, dtypes="all"))
    assert message in str(excinfo.value)
    assert any(e.field == field for e in excinfo.value.errors), [e.field for e in excinfo.value.errors]


def test_gradients_are_pointwise() -> None:
    ops = {op.name: kind.derive(op) for op in [*load_file(SPECS), *load_text(USER)]}
    assert ops["sum"]["input"].spec is None
    assert ops["mean"]["input"].operands == ("grad", "n_reduced")
    assert ops["mean"]["input"].spec["out"] == "grad / n_reduced"  # type: ignore[index]
    assert ops["sum_squares"]["input"].operands == ("grad", "input")
    assert ops["amax"]["input"].operands == ("grad", "input", "out", "count")
    assert ops["max_dim"]["input"].operands == ("grad_values", "indices", "index_reduced")
    assert set(ops["dot_all"]) == {"input", "other"}
    assert ops["root_mean"]["input"].operands == ("grad", "input", "power", "out", "n_reduced")
    assert not ops["argmax"]
    assert not ops["all"]


def test_gradients_by_hand() -> None:
    """Call the derived ops with the operands that autograd would pass: outputs that keep the reduced dimension."""
    generated = render_all(
        [o for o in load_file(SPECS) if o.name in ("mean", "amax", "prod", "max_dim", "euclidean_norm")], 1
    )
    x = np.array([[2, 5, 5, 1], [3, 0, 2, 4], [0, 0, 7, 1], [1, 2, 3, 9]], np.float32)
    grad = np.array([[1], [10], [100], [1000]], np.float32)
    norm = np.sqrt((x**2).sum(1, keepdims=True))
    products_of_others = [[25, 10, 10, 50], [0, 24, 0, 0], [0, 0, 0, 0], [54, 27, 18, 6]]
    values: dict[str, dict[str, Any]] = {
        "mean": {"n_reduced": 4.0},
        "amax": {"out": x.max(1, keepdims=True), "count": np.array([[2], [1], [1], [1]], np.float32)},
        "prod": {"out": x.prod(1, keepdims=True), "nonzero": [[50], [24], [7], [54]], "zeros": [[0], [1], [2], [0]]},
        "max_dim": {"index_reduced": np.arange(4), "indices": np.array([[1], [3], [2], [3]])},
        "euclidean_norm": {"out": norm},
    }
    expected = {
        "mean": np.full((4, 1), 0.25),
        "amax": [[0, 0.5, 0.5, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]],
        "prod": np.array(products_of_others),
        "max_dim": [[0, 1, 0, 0], [0, 0, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]],
        "euclidean_norm": x / norm,
    }
    for name, arguments in values.items():
        rules = generated.records[name].rules
        assert rules is not None
        arguments = {"input": x, "grad": grad, "grad_values": grad, **arguments}
        data = generated.records[str(rules["input"].target)]
        texts = {k: Text(s.text, s.functions) for k, s in data.rendered.sources.items()}
        operands = [arguments[n] for n in rules["input"].operands]
        operands = [o if isinstance(o, float) else tensor(_floats(o)) for o in operands]
        actual = dispatch.call(make_record(**record_literals(data), texts=texts), operands)
        np.testing.assert_allclose(fetch(actual), np.asarray(expected[name]) * grad, rtol=1e-6, err_msg=name)


def _floats(values: Any) -> np.ndarray[Any, Any]:
    array = np.asarray(values)
    return array if isinstance(values, np.ndarray) else array.astype(np.float32)
