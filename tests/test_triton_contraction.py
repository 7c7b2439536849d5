"""Contractions of the Triton target: every schedule against NumPy in Triton's interpreter, and what compilers make of
them for GPUs that need not be there."""

from __future__ import annotations

import re
import threading
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import weftgrad as wg
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.backends.interpreter import InterpreterDriver
from weftgrad.runtime.backends.protocol import Capabilities, Step
from weftgrad.runtime.context import state
from weftgrad.runtime.device import Device, meta
from weftgrad.runtime.errors import ArgumentError
from weftgrad.runtime.kinds import Request, planner
from weftgrad.runtime.records import registry
from weftgrad.runtime.triton.compile import Compiled, Target, compile_for

Array = Any
Layout = tuple[tuple[int, ...], tuple[int, ...] | None]  # shape, strides (None: contiguous)
# Half a unit in the last place of a result, and of what is summed.
_ROUNDING = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
_SUMMED = {"float16": 2**-24, "bfloat16": 2**-24, "float32": 2**-24, "float64": 2**-53}


def interpreter(overrides: str) -> Device:
    """The interpreter, claiming capabilities of its own."""
    place = Device("interpreter", None)
    place._driver = InterpreterDriver(place, overrides)
    return place


ONE = interpreter("cores=1")
MANY = interpreter("cores=64")


def planned(place: Device, op: str, dtype: str, *layouts: Layout) -> tuple[Step, ...]:
    operands = tuple(meta(dtypes.BY_NAME[dtype], shape, strides, place) for shape, strides in layouts)
    return planner("contraction")(Request(registry[op], operands, (), place)).steps


def entries(steps: tuple[Step, ...]) -> list[str]:
    """The schedules of steps."""
    return [s.instance.entry.removeprefix("contraction_") for s in steps]


def drawn(shape: tuple[int, ...], dtype: str) -> Array:
    """Random numbers that `dtype` holds (bfloat16: in float32)."""
    rng = np.random.default_rng(sum(shape))
    if dtypes.BY_NAME[dtype].kind != "f":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape).astype("float32" if dtype == "bfloat16" else dtype)
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) if dtype == "bfloat16" else values


def check(op: str, a: Any, b: Any, x: Array, y: Array, expected: Array) -> None:
    """The op of `a` and `b`, whose values are `x` and `y`: exact for integers, else within the bound of a sum in order,
    k roundings of the sum of the products' sizes, that of the reference included."""
    result = dispatch.call(registry[op], (a, b))
    found = (result.float() if result.dtype is wg.bfloat16 else result).cpu().numpy()
    if not result.dtype.is_floating_point:
        np.testing.assert_array_equal(found, expected)
        return
    scale = np.matmul(np.abs(x).astype(np.float64), np.abs(y).astype(np.float64))
    assert found.shape == expected.shape
    error = np.abs(found.astype(np.float64) - expected)
    name = result.dtype.name
    allowed = _ROUNDING[name] * np.abs(expected) + 2 * x.shape[-1] * _SUMMED[name] * scale
    assert (error <= allowed).all(), (error / allowed).max()


def product(place: Device, op: str, x: Array, y: Array, dtype: str, view: Any = lambda a, b: (a, b)) -> list[str]:
    """Check the product of two matrices or batches after `view` (of arrays, and of tensors); its schedules."""
    kept = getattr(wg, dtype)
    a, b = view(wg.tensor(x, dtype=kept, device=place), wg.tensor(y, dtype=kept, device=place))
    x, y = view(x, y)
    wide = np.dtype(dtype) if dtypes.BY_NAME[dtype].kind != "f" else np.dtype(np.float64)
    check(op, a, b, x, y, np.matmul(x.astype(wide), y.astype(wide)))
    return entries(planned(place, op, dtype, (a.meta.shape, a.meta.strides), (b.meta.shape, b.meta.strides)))


def turned(a: Any) -> Any:
    return a.swapaxes(-1, -2) if isinstance(a, np.ndarray) else a.transpose(-1, -2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(2, 3, 5), (17, 33, 65), (130, 20, 40), (64, 128, 96)])
def test_tiles(dtype: str, m: int, n: int, k: int) -> None:
    assert product(ONE, "mm", drawn((m, k), dtype), drawn((k, n), dtype), dtype) == ["tile"]


@pytest.mark.parametrize("which", ["a", "b", "ab"])
def test_transposed_operands_are_read_in_place(which: str) -> None:
    def view(a: Any, b: Any) -> Any:
        return turned(a) if "a" in which else a, turned(b) if "b" in which else b

    x = drawn((40, 70) if "a" in which else (70, 40), "float32")
    y = drawn((90, 40) if "b" in which else (40, 90), "float32")
    assert product(ONE, "mm", x, y, "float32", view) == ["tile"]


def test_a_batch_of_any_strides() -> None:
    x, y = drawn((3, 2, 20, 30), "float32"), drawn((1, 2, 30, 25), "float32")
    assert product(ONE, "matmul_batched", x, y, "float32") == ["tile"]

    def view(a: Any, b: Any) -> Any:
        swapped = a.swapaxes(0, 1) if isinstance(a, np.ndarray) else a.transpose(0, 1)
        return swapped[:, ::2], b

    assert product(ONE, "matmul_batched", drawn((3, 2, 20, 30), "float32"), y[0, :, None], "float32", view) == ["tile"]


def test_what_is_contiguous_neither_way_is_copied_where_it_is_read_often() -> None:
    def view(a: Any, b: Any) -> Any:
        return a[::2, ::2], b[:, 1::3]

    assert product(ONE, "mm", drawn((140, 60), "float32"), drawn((30, 210), "float32"), "float32", view) == [
        "move", "move", "tile",
    ]  # fmt: skip
    few = product(ONE, "mm", drawn((20, 60), "float32"), drawn((30, 60), "float32"), "float32", view)
    assert few == ["tile"]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_wrap_around(dtype: str) -> None:
    assert product(ONE, "mm", drawn((35, 21), dtype), drawn((21, 70), dtype), dtype) == ["multiply"]
    assert product(MANY, "mm", drawn((4, 400), dtype), drawn((400, 3), dtype), dtype) == ["multiply", "finish"]
    assert product(ONE, "mm", drawn((1, 50), dtype), drawn((50, 9), dtype), dtype) == ["dots"]


def test_one_product_is_exact() -> None:
    x, y = drawn((37, 1), "float32"), drawn((1, 41), "float32")
    found = wg.mm(wg.tensor(x, device=ONE), wg.tensor(y, device=ONE)).cpu().numpy()
    np.testing.assert_array_equal(found, x * y)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_long_sums_are_cut_in_parts(dtype: str) -> None:
    k = 4000 if dtype == "float16" else 2000
    x, y = drawn((20, k), dtype), drawn((k, 30), dtype)
    assert product(MANY, "mm", x, y, dtype) == ["tile", "finish"]
    first = wg.mm(wg.tensor(x, device=MANY), wg.tensor(y, device=MANY)).cpu().numpy()
    again = wg.mm(wg.tensor(x, device=MANY), wg.tensor(y, device=MANY)).cpu().numpy()
    np.testing.assert_array_equal(first, again)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_rows_and_columns(dtype: str) -> None:
    for place in (ONE, MANY):
        for n, k in ((70, 33), (1, 40000), (5, 9000)):
            schedules = product(place, "mm", drawn((1, k), dtype), drawn((k, n), dtype), dtype)
            assert schedules[0] == "dots"
            assert (schedules[1:] == ["finish"]) == (k > 64)
            assert product(place, "mm", drawn((n, k), dtype), drawn((k, 1), dtype), dtype)[0] == "dots"
        assert product(place, "bmm", drawn((6, 1, 40), dtype), drawn((6, 40, 7), dtype), dtype) == ["dots"]


def test_nothing_to_sum_is_zero() -> None:
    empty = wg.mm(wg.zeros(3, 0, device=ONE), wg.zeros(0, 4, device=ONE))
    np.testing.assert_array_equal(empty.cpu().numpy(), np.zeros((3, 4), np.float32))


def test_infinities_stay_in_their_rows() -> None:
    x, y = drawn((19, 37), "float32"), drawn((37, 23), "float32")
    x[18, 36], y[36, 22] = np.inf, np.nan
    found = wg.mm(wg.tensor(x, device=ONE), wg.tensor(y, device=ONE)).cpu().numpy()
    with np.errstate(invalid="ignore"):
        expected = x @ y
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(found), np.isnan(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("which", ["", "a", "b"])
def test_the_copy_engine_moves_large_operands(dtype: str, which: str) -> None:
    def view(a: Any, b: Any) -> Any:
        return turned(a) if "a" in which else a, turned(b) if "b" in which else b

    x = drawn((264, 200) if "a" in which else (200, 264), dtype)
    y = drawn((152, 264) if "b" in which else (264, 152), dtype)
    assert product(ONE, "mm", x, y, dtype, view) == ["tma"]


def test_the_copy_engine_and_batches() -> None:
    x, y = drawn((3, 136, 264), "float16"), drawn((3, 264, 144), "float16")
    assert product(ONE, "bmm", x, y, "float16") == ["tma"]
    assert product(ONE, "matmul_batched", x, y[:1], "float16") == ["tma"]
    assert product(ONE, "matmul_batched", x[:1], y, "float16") == ["tma"]


def test_where_the_copy_engine_does_not_reach() -> None:
    """Results of odd rows, and buffers that begin between multiples of 16 bytes, which a plan does not know."""
    x, y = drawn((201, 264), "float16"), drawn((264, 152), "float16")

    def cut(a: Any, b: Any) -> Any:
        return a[1:, :-8], b[:-8, 1:]

    steps = planned(ONE, "mm", "float16", ((200, 256), (264, 1)), ((256, 151), (152, 1)))
    assert entries(steps) == ["tma"]
    assert dict(steps[0].instance.defines)["WRITES"] == 0
    assert product(ONE, "mm", x, y, "float16", cut) == ["tma"]
    steps = planned(ONE, "mm", "float16", ((200, 264), None), ((264, 152), None))
    assert dict(steps[0].instance.defines)["WRITES"] == 1
    aside = np.concatenate([np.zeros(1, np.float16), x[:200].reshape(-1)])
    a = wg.tensor(aside, device=ONE)[1:].reshape(200, 264)
    assert a.start % 16
    check("mm", a, wg.tensor(y, device=ONE), x[:200], y, x[:200].astype(np.float64) @ y.astype(np.float64))


def test_odd_rows_are_copied_for_the_copy_engine() -> None:
    def copies(k: int, n: int) -> list[str]:
        return entries(planned(MANY, "mm", "bfloat16", ((1024, k), None), ((k, n), None)))

    assert copies(1024, 1024) == ["tma"]
    assert copies(1021, 1024) == ["move", "tma"]
    assert copies(1024, 1021) == ["move", "tma"]
    assert copies(1021, 1021) == ["move", "move", "tma"]


def test_gradients_of_a_batch() -> None:
    x, y = drawn((4, 9, 17), "float64"), drawn((17, 11), "float64")
    a = wg.tensor(x, device=ONE, requires_grad=True)
    b = wg.tensor(y, device=ONE, requires_grad=True)
    seed = drawn((4, 9, 11), "float64")
    (a @ b).backward(wg.tensor(seed, device=ONE))
    np.testing.assert_allclose(a.grad.cpu().numpy(), seed @ y.T, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(b.grad.cpu().numpy(), np.einsum("bmk,bmn->kn", x, seed), rtol=1e-13, atol=1e-13)


# The setting


@pytest.fixture
def precision() -> Any:
    yield
    wg.set_float32_matmul_precision("highest")


def chosen(sm: int) -> str:
    step = planned(gpu(f"sm_{sm}"), "mm", "float32", ((256, 256), None), ((256, 256), None))[0]
    return str(dict(step.instance.defines)["PRECISION"])


def test_float32_precision_is_a_setting(precision: Any) -> None:
    assert wg.get_float32_matmul_precision() == "highest"
    assert [chosen(sm) for sm in (75, 80, 86, 90, 100, 120)] == ["ieee", "tf32x3", "ieee", "tf32x3", "tf32x3", "ieee"]
    for setting in ("high", "medium"):
        wg.set_float32_matmul_precision(setting)
        assert wg.get_float32_matmul_precision() == setting
        assert [chosen(sm) for sm in (75, 80, 86, 90)] == ["ieee", "tf32", "tf32", "tf32"]
    with pytest.raises(ArgumentError, match="highest, high, medium, not 'low'"):
        wg.set_float32_matmul_precision("low")


def test_a_new_precision_is_for_all_threads(precision: Any) -> None:
    begun, go_on, left = threading.Event(), threading.Event(), []

    def work() -> None:
        wg.mm(wg.ones(2, 2, device=ONE), wg.ones(2, 2, device=ONE))
        left.append(len(state().plans))
        begun.set()
        go_on.wait(60)
        left.append(len(state().plans))

    other = threading.Thread(target=work)
    other.start()
    assert begun.wait(60)
    wg.mm(wg.ones(2, 2, device=ONE), wg.ones(2, 2, device=ONE))
    assert state().plans
    wg.set_float32_matmul_precision("high")
    assert not state().plans
    go_on.set()
    other.join(60)
    assert left[0] > 0
    assert left[1] == 0


# Compiled

_SHARED = {80: 163, 90: 227, 100: 227, 0: 64}
_CORES = {80: 108, 90: 132, 100: 148, 0: 304}


def gpu(target: str) -> Device:
    """A device of that architecture that plans, and does nothing else."""
    sm = int(target[3:]) if target.startswith("sm_") else 0
    able = Capabilities(
        "triton", _CORES.get(sm, 80), 4, fp16=True, local_memory=_SHARED.get(sm, 99) * 1024, sm=sm, block=1024
    )
    place = Device("cuda", 0)
    place._driver = SimpleNamespace(target="triton", capabilities=able)  # type: ignore[assignment]
    return place


def compiled(target: str, dtype: str, *layouts: Layout, op: str = "mm", aligned: bool = True) -> tuple[str, Compiled]:
    """The schedule and machine code of a product's last kernel but `finish`, which must fit the registers and the
    shared memory."""
    steps = [s for s in planned(gpu(target), op, dtype, *layouts) if not s.instance.entry.endswith("finish")]
    made = compile_for(steps[-1], aligned, Target.named(target))
    assert made.spills == 0
    assert made.binary.shared <= gpu(target).driver.capabilities.local_memory
    return entries((steps[-1],))[0], made


def count(pattern: str, made: Compiled) -> int:
    return len(re.findall(pattern, made.asm["ptx"]))


SQUARE: Layout = ((4096, 4096), None)


def test_sm_90_half() -> None:
    schedule, made = compiled("sm_90", "bfloat16", SQUARE, ((4096, 4096), (1, 4096)))
    assert schedule == "tma"
    assert made.binary.scratch  # where descriptors are made
    assert count("wgmma.mma_async", made)
    assert count("cp.async.bulk.tensor", made)
    assert not count("ld.global", made)
    assert not count("st.global", made)
    schedule, made = compiled("sm_90", "float16", ((512, 512), None), ((512, 512), None))
    assert schedule == "tile"
    assert count("mma", made)
    assert count(r"cp.async.cg.shared.global \[ .* 0x10", made)
    assert not count("ld.global", made)


def test_sm_90_float32(precision: Any) -> None:
    schedule, made = compiled("sm_90", "float32", SQUARE, SQUARE)
    assert schedule == "tile"
    assert count("wgmma.mma_async.*tf32", made)
    assert count("cp.async.cg", made)
    assert not count("ld.global", made)
    assert count("st.global.v4", made)
    adds = [line for line in made.asm["ttgir"].splitlines() if "arith.addf" in line and "128x128" in line]
    assert adds  # blocks of k are added outside of tensor cores, as `runtime.precision` says
    wg.set_float32_matmul_precision("high")
    schedule, fast = compiled("sm_90", "float32", SQUARE, SQUARE)
    assert 0 < 3 * count("wgmma.mma_async.*tf32", fast) <= count("wgmma.mma_async.*tf32", made)


def test_sm_80() -> None:
    for dtype in ("float16", "float32"):
        schedule, made = compiled("sm_80", dtype, SQUARE, SQUARE)
        assert schedule == "tile"
        assert count("mma.sync", made)
        assert count("cp.async.cg", made)
        assert not count("ld.global", made)
        assert count("st.global.v4", made)
    assert count("mma.sync.*f64", compiled("sm_80", "float64", SQUARE, SQUARE)[1])


def test_sm_100() -> None:
    schedule, made = compiled("sm_100", "bfloat16", SQUARE, SQUARE)
    assert schedule == "tma"
    assert count("tcgen05.mma", made)
    assert count("cp.async.bulk.tensor", made)


def test_exact_products_use_no_tensor_cores() -> None:
    for dtype in ("int32", "int64"):
        schedule, made = compiled("sm_90", dtype, SQUARE, SQUARE)
        assert schedule == "multiply"
        assert not count("mma", made)
    schedule, made = compiled("sm_90", "float32", ((4096, 1), None), ((1, 4096), None))
    assert schedule == "multiply"
    assert not count("mma", made)


def test_rows_are_read_in_vectors() -> None:
    for strides in (None, (1, 4096)):
        schedule, made = compiled("sm_90", "float32", ((1, 4096), None), ((4096, 4096), strides))
        assert schedule == "dots"
        assert count("ld.global.v4", made) * 4 * made.binary.threads >= 4096  # all that a program has of the matrix


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_amd(dtype: str) -> None:
    made = compiled("gfx942", dtype, SQUARE, SQUARE)[1]
    assert ("mfma" in made.asm["amdgcn"]) == (dtype != "int32")
