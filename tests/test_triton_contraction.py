"""Check contractions of the Triton target: results and machine code.

Every schedule runs in Triton's interpreter and is compared with NumPy. The kernels are also compiled for several GPUs,
none of which need be present, and their machine code is searched for the expected instructions.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

import weftgrad as wg
from weftgrad.runtime import dispatch, dtypes
from weftgrad.runtime.backends.interpreter import InterpreterDriver
from weftgrad.runtime.backends.protocol import Capabilities, Step
from weftgrad.runtime.context import forget_plans, state
from weftgrad.runtime.device import Device, create_device, meta
from weftgrad.runtime.errors import ArgumentError
from weftgrad.runtime.kinds import Request
from weftgrad.runtime.kinds.triton import contraction
from weftgrad.runtime.planners import planner
from weftgrad.runtime.records import registry
from weftgrad.runtime.triton.compile import Compiled, Target, compile_for

Array = Any
Layout = tuple[tuple[int, ...], tuple[int, ...] | None]  # shape, strides (None: contiguous)
# Half a unit in the last place of a result, and of the type in which products are summed.
_ROUNDING = {"float16": 2**-11, "bfloat16": 2**-8, "float32": 2**-24, "float64": 2**-53}
_SUM_ROUNDING = {"float16": 2**-24, "bfloat16": 2**-24, "float32": 2**-24, "float64": 2**-53}


def interpreter(overrides: str) -> Device:
    """Return an interpreter device with these capabilities."""
    device = create_device("interpreter")
    device._driver = InterpreterDriver(device, overrides)
    return device


ONE_CORE = interpreter("cores=1")
MANY_CORES = interpreter("cores=64")


def plan_steps(device: Device, op: str, dtype: str, *layouts: Layout) -> tuple[Step, ...]:
    operands = tuple(meta(dtypes.BY_NAME[dtype], shape, strides, device) for shape, strides in layouts)
    return planner("contraction")(Request(registry[op], operands, (), device)).steps


def schedules_of(steps: tuple[Step, ...]) -> list[str]:
    """Return the names of the schedules of these steps."""
    return [s.instance.entry.removeprefix("contraction_") for s in steps]


def random_array(shape: tuple[int, ...], dtype: str) -> Array:
    """Return random numbers that `dtype` can represent; bfloat16 numbers are returned as float32."""
    rng = np.random.default_rng(sum(shape))
    if dtypes.BY_NAME[dtype].kind != "f":
        info = np.iinfo(dtype)
        return rng.integers(info.min, info.max, shape, dtype, endpoint=True)
    values = rng.standard_normal(shape).astype("float32" if dtype == "bfloat16" else dtype)
    return (values.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32) if dtype == "bfloat16" else values


def check_result(op: str, a: Any, b: Any, x: Array, y: Array, expected: Array) -> None:
    """Check the op of tensors `a` and `b`, whose values are `x` and `y`, against `expected`.

    Integers must be equal. Floats must lie within the error bound of a sequential sum: k roundings of the sum of the
    products' absolute values, for the result and for the reference.
    """
    result = dispatch.call(registry[op], (a, b))
    actual = (result.float() if result.dtype is wg.bfloat16 else result).cpu().numpy()
    if not result.dtype.is_floating_point:
        np.testing.assert_array_equal(actual, expected)
        return
    scale = np.matmul(np.abs(x).astype(np.float64), np.abs(y).astype(np.float64))
    assert actual.shape == expected.shape
    error = np.abs(actual.astype(np.float64) - expected)
    name = result.dtype.name
    allowed = _ROUNDING[name] * np.abs(expected) + 2 * x.shape[-1] * _SUM_ROUNDING[name] * scale
    assert (error <= allowed).all(), (error / allowed).max()


def check_product(
    device: Device, op: str, x: Array, y: Array, dtype: str, view: Any = lambda a, b: (a, b)
) -> list[str]:
    """Check the product of two matrices or batches, each passed through `view`, and return its schedules."""
    wg_dtype = getattr(wg, dtype)
    a, b = view(wg.tensor(x, dtype=wg_dtype, device=device), wg.tensor(y, dtype=wg_dtype, device=device))
    x, y = view(x, y)
    exact_dtype = np.dtype(dtype) if dtypes.BY_NAME[dtype].kind != "f" else np.dtype(np.float64)
    check_result(op, a, b, x, y, np.matmul(x.astype(exact_dtype), y.astype(exact_dtype)))
    return schedules_of(plan_steps(device, op, dtype, (a.meta.shape, a.meta.strides), (b.meta.shape, b.meta.strides)))


def transpose(a: Any) -> Any:
    return a.swapaxes(-1, -2) if isinstance(a, np.ndarray) else a.transpose(-1, -2)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "float64"])
@pytest.mark.parametrize(("m", "n", "k"), [(2, 3, 5), (17, 33, 65), (130, 20, 40), (64, 128, 96)])
def test_tiles(dtype: str, m: int, n: int, k: int) -> None:
    assert check_product(ONE_CORE, "mm", random_array((m, k), dtype), random_array((k, n), dtype), dtype) == ["tile"]


HOPPER = interpreter("sm=90,cores=132,block=4096")


@pytest.fixture
def splitting(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let small float32 products be split like large ones. Plans of other tests are not of this kind."""
    monkeypatch.setattr(contraction, "_MIN_SIZE_TO_SPLIT", 16)
    forget_plans()
    yield
    wg.set_float32_matmul_precision("highest")
    forget_plans()


@pytest.mark.parametrize("layout", ["NN", "NT", "TN", "TT"])
@pytest.mark.parametrize(("m", "n", "k"), [(16, 16, 16), (65, 40, 70), (129, 20, 33)])
@pytest.mark.parametrize(("precision", "sections", "rounding"), [("highest", 3, 2**-20), ("high", 1, 2**-9)])
def test_split_products(
    splitting: None, precision: str, sections: int, rounding: float, m: int, n: int, k: int, layout: str
) -> None:
    """Three products in tf32 are as exact as float32, one as tf32. Infinities and NaN come out as in float64."""
    wg.set_float32_matmul_precision(precision)
    x, y = random_array((m, k), "float32"), random_array((k, n), "float32")
    x[3, 5], x[4, :], x[6, 1], x[8, 8], x[9, 3] = np.inf, 0, np.nan, 3.4e38, 1e-40
    y[7, 2], y[:, 9], y[2, 11] = -np.inf, 0, -5e37
    a = wg.tensor(x if layout[0] == "N" else x.T.copy(), device=HOPPER)
    b = wg.tensor(y if layout[1] == "N" else y.T.copy(), device=HOPPER)
    a, b = a if layout[0] == "N" else a.T, b if layout[1] == "N" else b.T
    steps = plan_steps(HOPPER, "mm", "float32", (a.meta.shape, a.meta.strides), (b.meta.shape, b.meta.strides))
    splits = [dict(s.instance.defines)["SECTIONS"] for s in steps if s.instance.entry == "contraction_split"]
    assert schedules_of(steps)[-1] == "tile"
    contiguous_k = (layout[0] == "N") + (layout[1] == "T") if k % 4 == 0 else 0
    assert splits == [sections] * (2 if sections == 3 else 2 - contiguous_k)
    actual = (a @ b).cpu().numpy().astype(np.float64)
    with np.errstate(all="ignore"):
        expected = x.astype(np.float64) @ y.astype(np.float64)
        scale = np.abs(x).astype(np.float64) @ np.abs(y).astype(np.float64)
        overflows = np.abs(expected) > np.finfo(np.float32).max
        np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))
        np.testing.assert_array_equal(actual[overflows], np.sign(expected[overflows]) * np.inf)
        is_finite = np.isfinite(expected) & ~overflows
        assert (np.abs(actual - expected)[is_finite] <= rounding * scale[is_finite]).all()


def test_products_are_split_only_where_tensor_cores_need_it(splitting: None) -> None:
    """Neither other architectures, nor half or batched operands, nor exact float32."""
    square = ((64, 64), None)
    for device in (interpreter("sm=80,cores=108"), interpreter("sm=100,cores=148")):
        assert schedules_of(plan_steps(device, "mm", "float32", square, square)) == ["tile"]
    assert schedules_of(plan_steps(HOPPER, "mm", "bfloat16", square, square)) == ["tile"]
    assert schedules_of(plan_steps(HOPPER, "bmm", "float32", ((2, 64, 64), None), ((2, 64, 64), None))) == ["tile"]
    assert schedules_of(plan_steps(HOPPER, "mm", "float32", ((15, 64), None), square)) == ["tile"]
    # The copies of both operands, three sections each, have 98,304 bytes.
    for nbytes, schedules in ((16 * 98304, ["split", "split", "tile"]), (16 * 98304 - 16, ["tile"])):
        device = interpreter(f"sm=90,cores=132,memory={nbytes}")
        assert schedules_of(plan_steps(device, "mm", "float32", square, square)) == schedules


@pytest.mark.parametrize("transposed_operands", ["a", "b", "ab"])
def test_transposed_operands_are_read_in_place(transposed_operands: str) -> None:
    def view(a: Any, b: Any) -> Any:
        return transpose(a) if "a" in transposed_operands else a, transpose(b) if "b" in transposed_operands else b

    x = random_array((40, 70) if "a" in transposed_operands else (70, 40), "float32")
    y = random_array((90, 40) if "b" in transposed_operands else (40, 90), "float32")
    assert check_product(ONE_CORE, "mm", x, y, "float32", view) == ["tile"]


def test_a_batch_of_any_strides() -> None:
    x, y = random_array((3, 2, 20, 30), "float32"), random_array((1, 2, 30, 25), "float32")
    assert check_product(ONE_CORE, "matmul_batched", x, y, "float32") == ["tile"]

    def view(a: Any, b: Any) -> Any:
        swapped = a.swapaxes(0, 1) if isinstance(a, np.ndarray) else a.transpose(0, 1)
        return swapped[:, ::2], b

    assert check_product(
        ONE_CORE, "matmul_batched", random_array((3, 2, 20, 30), "float32"), y[0, :, None], "float32", view
    ) == ["tile"]


def test_operands_without_a_contiguous_dimension_are_copied_if_read_often() -> None:
    def view(a: Any, b: Any) -> Any:
        return a[::2, ::2], b[:, 1::3]

    assert check_product(
        ONE_CORE, "mm", random_array((140, 60), "float32"), random_array((30, 210), "float32"), "float32", view
    ) == ["move", "move", "tile"]
    few_rows = check_product(
        ONE_CORE, "mm", random_array((20, 60), "float32"), random_array((30, 60), "float32"), "float32", view
    )
    assert few_rows == ["tile"]


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_wrap_around(dtype: str) -> None:
    assert check_product(ONE_CORE, "mm", random_array((35, 21), dtype), random_array((21, 70), dtype), dtype) == [
        "multiply"
    ]
    assert check_product(MANY_CORES, "mm", random_array((4, 400), dtype), random_array((400, 3), dtype), dtype) == [
        "multiply",
        "finish",
    ]
    assert check_product(ONE_CORE, "mm", random_array((1, 50), dtype), random_array((50, 9), dtype), dtype) == ["dots"]


def test_outer_products_are_exact() -> None:
    x, y = random_array((37, 1), "float32"), random_array((1, 41), "float32")
    actual = wg.mm(wg.tensor(x, device=ONE_CORE), wg.tensor(y, device=ONE_CORE)).cpu().numpy()
    np.testing.assert_array_equal(actual, x * y)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
def test_long_sums_are_split(dtype: str) -> None:
    k = 4000 if dtype == "float16" else 2000
    x, y = random_array((20, k), dtype), random_array((k, 30), dtype)
    assert check_product(MANY_CORES, "mm", x, y, dtype) == ["tile", "finish"]
    first = wg.mm(wg.tensor(x, device=MANY_CORES), wg.tensor(y, device=MANY_CORES)).cpu().numpy()
    second = wg.mm(wg.tensor(x, device=MANY_CORES), wg.tensor(y, device=MANY_CORES)).cpu().numpy()
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float64"])
def test_vectors_by_matrices(dtype: str) -> None:
    for device in (ONE_CORE, MANY_CORES):
        for n, k in ((70, 33), (1, 40000), (5, 9000)):
            schedules = check_product(device, "mm", random_array((1, k), dtype), random_array((k, n), dtype), dtype)
            assert schedules[0] == "dots"
            assert (schedules[1:] == ["finish"]) == (k > 64)
            assert (
                check_product(device, "mm", random_array((n, k), dtype), random_array((k, 1), dtype), dtype)[0]
                == "dots"
            )
        assert check_product(
            device, "bmm", random_array((6, 1, 40), dtype), random_array((6, 40, 7), dtype), dtype
        ) == ["dots"]


def test_an_empty_sum_is_zero() -> None:
    empty = wg.mm(wg.zeros(3, 0, device=ONE_CORE), wg.zeros(0, 4, device=ONE_CORE))
    np.testing.assert_array_equal(empty.cpu().numpy(), np.zeros((3, 4), np.float32))


def test_infinities_stay_in_their_rows() -> None:
    x, y = random_array((19, 37), "float32"), random_array((37, 23), "float32")
    x[18, 36], y[36, 22] = np.inf, np.nan
    actual = wg.mm(wg.tensor(x, device=ONE_CORE), wg.tensor(y, device=ONE_CORE)).cpu().numpy()
    with np.errstate(invalid="ignore"):
        expected = x @ y
    np.testing.assert_array_equal(np.isfinite(actual), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(actual), np.isnan(expected))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("transposed_operands", ["", "a", "b"])
def test_the_copy_engine_moves_large_operands(dtype: str, transposed_operands: str) -> None:
    def view(a: Any, b: Any) -> Any:
        return transpose(a) if "a" in transposed_operands else a, transpose(b) if "b" in transposed_operands else b

    x = random_array((264, 200) if "a" in transposed_operands else (200, 264), dtype)
    y = random_array((152, 264) if "b" in transposed_operands else (264, 152), dtype)
    assert check_product(ONE_CORE, "mm", x, y, dtype, view) == ["tma"]


def test_the_copy_engine_and_batches() -> None:
    x, y = random_array((3, 136, 264), "float16"), random_array((3, 264, 144), "float16")
    assert check_product(ONE_CORE, "bmm", x, y, "float16") == ["tma"]
    assert check_product(ONE_CORE, "matmul_batched", x, y[:1], "float16") == ["tma"]
    assert check_product(ONE_CORE, "matmul_batched", x[:1], y, "float16") == ["tma"]


def test_limits_of_the_copy_engine() -> None:
    """The copy engine cannot write rows of odd length; a buffer not aligned to 16 bytes is known only at the launch."""
    x, y = random_array((201, 264), "float16"), random_array((264, 152), "float16")

    def crop(a: Any, b: Any) -> Any:
        return a[1:, :-8], b[:-8, 1:]

    steps = plan_steps(ONE_CORE, "mm", "float16", ((200, 256), (264, 1)), ((256, 151), (152, 1)))
    assert schedules_of(steps) == ["tma"]
    assert dict(steps[0].instance.defines)["WRITES"] == 0
    assert check_product(ONE_CORE, "mm", x, y, "float16", crop) == ["tma"]
    steps = plan_steps(ONE_CORE, "mm", "float16", ((200, 264), None), ((264, 152), None))
    assert dict(steps[0].instance.defines)["WRITES"] == 1
    padded = np.concatenate([np.zeros(1, np.float16), x[:200].reshape(-1)])
    a = wg.tensor(padded, device=ONE_CORE)[1:].reshape(200, 264)
    assert a.start % 16
    check_result("mm", a, wg.tensor(y, device=ONE_CORE), x[:200], y, x[:200].astype(np.float64) @ y.astype(np.float64))


def test_odd_rows_are_copied_for_the_copy_engine() -> None:
    def schedules_for(k: int, n: int) -> list[str]:
        return schedules_of(plan_steps(MANY_CORES, "mm", "bfloat16", ((1024, k), None), ((k, n), None)))

    assert schedules_for(1024, 1024) == ["tma"]
    assert schedules_for(1021, 1024) == ["move", "tma"]
    assert schedules_for(1024, 1021) == ["move", "tma"]
    assert schedules_for(1021, 1021) == ["move", "move", "tma"]


def test_gradients_of_a_batch() -> None:
    x, y = random_array((4, 9, 17), "float64"), random_array((17, 11), "float64")
    a = wg.tensor(x, device=ONE_CORE, requires_grad=True)
    b = wg.tensor(y, device=ONE_CORE, requires_grad=True)
    seed = random_array((4, 9, 11), "float64")
    (a @ b).backward(wg.tensor(seed, device=ONE_CORE))
    np.testing.assert_allclose(a.grad.cpu().numpy(), seed @ y.T, rtol=1e-13, atol=1e-14)
    np.testing.assert_allclose(b.grad.cpu().numpy(), np.einsum("bmk,bmn->kn", x, seed), rtol=1e-13, atol=1e-13)


# The precision of float32 products


@pytest.fixture
def precision() -> Any:
    yield
    wg.set_float32_matmul_precision("highest")


def precision_for(sm: int) -> str:
    step = plan_steps(gpu(f"sm_{sm}"), "mm", "float32", ((256, 256), None), ((256, 256), None))[0]
    return str(dict(step.instance.defines)["PRECISION"])


def test_float32_precision_is_a_setting(precision: Any) -> None:
    assert wg.get_float32_matmul_precision() == "highest"
    assert [precision_for(sm) for sm in (75, 80, 86, 90, 100, 120)] == [
        "ieee",
        "tf32x3",
        "ieee",
        "tf32x3",
        "tf32x3",
        "ieee",
    ]
    for precision_name in ("high", "medium"):
        wg.set_float32_matmul_precision(precision_name)
        assert wg.get_float32_matmul_precision() == precision_name
        assert [precision_for(sm) for sm in (75, 80, 86, 90)] == ["ieee", "tf32", "tf32", "tf32"]
    with pytest.raises(ArgumentError, match="highest, high, medium, not 'low'"):
        wg.set_float32_matmul_precision("low")


def test_a_new_precision_reaches_all_threads(precision: Any) -> None:
    has_planned, may_continue, plan_counts = threading.Event(), threading.Event(), []

    def work() -> None:
        wg.mm(wg.ones(2, 2, device=ONE_CORE), wg.ones(2, 2, device=ONE_CORE))
        plan_counts.append(len(state().plans))
        has_planned.set()
        may_continue.wait(60)
        plan_counts.append(len(state().plans))

    thread = threading.Thread(target=work)
    thread.start()
    assert has_planned.wait(60)
    wg.mm(wg.ones(2, 2, device=ONE_CORE), wg.ones(2, 2, device=ONE_CORE))
    assert state().plans
    wg.set_float32_matmul_precision("high")
    assert not state().plans
    may_continue.set()
    thread.join(60)
    assert plan_counts[0] > 0
    assert plan_counts[1] == 0


# Machine code

# KiB of shared memory, and multiprocessors, by architecture; 0 stands for AMD's gfx942.
_SHARED = {80: 163, 90: 227, 100: 227, 0: 64}
_CORES = {80: 108, 90: 132, 100: 148, 0: 304}


def gpu(target: str) -> Device:
    """Return a device of this architecture that can only plan."""
    sm = int(target[3:]) if target.startswith("sm_") else 0
    caps = Capabilities(
        "triton", _CORES.get(sm, 80), 4, fp16=True, local_memory=_SHARED.get(sm, 99) * 1024, sm=sm, block=1024
    )
    device = create_device("cuda", 0)
    device._driver = SimpleNamespace(target="triton", capabilities=caps)  # type: ignore[assignment]
    return device


def compile_last_kernel(
    target: str, dtype: str, *layouts: Layout, op: str = "mm", aligned: bool = True
) -> tuple[str, Compiled]:
    """Compile the last kernel of a product, `finish` excepted, and return its schedule and machine code.

    The kernel must fit the registers and the shared memory of the target.
    """
    steps = [s for s in plan_steps(gpu(target), op, dtype, *layouts) if not s.instance.entry.endswith("finish")]
    kernel = compile_for(steps[-1], aligned, Target.named(target))
    assert kernel.spills == 0
    assert kernel.binary.shared <= gpu(target).driver.capabilities.local_memory
    return schedules_of((steps[-1],))[0], kernel


def count_matches(pattern: str, kernel: Compiled) -> int:
    return len(re.findall(pattern, kernel.asm["ptx"]))


SQUARE: Layout = ((4096, 4096), None)


def test_sm_90_half() -> None:
    schedule, kernel = compile_last_kernel("sm_90", "bfloat16", SQUARE, ((4096, 4096), (1, 4096)))
    assert schedule == "tma"
    assert kernel.binary.scratch  # scratch memory for the descriptors of the copy engine
    assert count_matches("wgmma.mma_async", kernel)
    assert count_matches("cp.async.bulk.tensor", kernel)
    assert not count_matches("ld.global", kernel)
    assert not count_matches("st.global", kernel)
    schedule, kernel = compile_last_kernel("sm_90", "float16", ((512, 512), None), ((512, 512), None))
    assert schedule == "tile"
    assert count_matches("mma", kernel)
    assert count_matches(r"cp.async.cg.shared.global \[ .* 0x10", kernel)
    assert not count_matches("ld.global", kernel)


def test_sm_90_float32(precision: Any) -> None:
    schedule, kernel = compile_last_kernel("sm_90", "float32", SQUARE, SQUARE)
    assert schedule == "tile"
    assert count_matches("wgmma.mma_async.*tf32", kernel)
    assert count_matches("cp.async.cg", kernel)
    assert not count_matches("ld.global", kernel)
    assert count_matches("st.global.v4", kernel)
    adds = [line for line in kernel.asm["ttgir"].splitlines() if "arith.subf" in line and "128x128" in line]
    assert adds  # sums of k blocks are added outside of tensor cores, see `runtime.precision`
    wg.set_float32_matmul_precision("high")
    schedule, fast_kernel = compile_last_kernel("sm_90", "float32", SQUARE, SQUARE)
    assert count_matches("wgmma.mma_async.*tf32", fast_kernel)
    assert not [line for line in fast_kernel.asm["ttgir"].splitlines() if "arith.addf" in line]


def test_sm_80() -> None:
    for dtype in ("float16", "float32"):
        schedule, kernel = compile_last_kernel("sm_80", dtype, SQUARE, SQUARE)
        assert schedule == "tile"
        assert count_matches("mma.sync", kernel)
        assert count_matches("cp.async.cg", kernel)
        assert not count_matches("ld.global", kernel)
        assert count_matches("st.global.v4", kernel)
    assert count_matches("mma.sync.*f64", compile_last_kernel("sm_80", "float64", SQUARE, SQUARE)[1])


def test_sm_100() -> None:
    schedule, kernel = compile_last_kernel("sm_100", "bfloat16", SQUARE, SQUARE)
    assert schedule == "tma"
    assert count_matches("tcgen05.mma", kernel)
    assert count_matches("cp.async.bulk.tensor", kernel)


def test_exact_products_use_no_tensor_cores() -> None:
    for dtype in ("int32", "int64"):
        schedule, kernel = compile_last_kernel("sm_90", dtype, SQUARE, SQUARE)
        assert schedule == "multiply"
        assert not count_matches("mma", kernel)
    schedule, kernel = compile_last_kernel("sm_90", "float32", ((4096, 1), None), ((1, 4096), None))
    assert schedule == "multiply"
    assert not count_matches("mma", kernel)


def test_rows_are_read_in_vectors() -> None:
    for strides in (None, (1, 4096)):
        schedule, kernel = compile_last_kernel("sm_90", "float32", ((1, 4096), None), ((4096, 4096), strides))
        assert schedule == "dots"
        # All elements of the matrix that a program reads.
        assert count_matches("ld.global.v4", kernel) * 4 * kernel.binary.threads >= 4096


@pytest.mark.parametrize("dtype", ["float16", "float32", "int32"])
def test_amd(dtype: str) -> None:
    kernel = compile_last_kernel("gfx942", dtype, SQUARE, SQUARE)[1]
    assert ("mfma" in kernel.asm["amdgcn"]) == (dtype != "int32")
