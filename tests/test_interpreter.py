"""Check the `interpreter` device: Triton's interpreter with its faults corrected, and with checks that no GPU makes."""

import dataclasses
import inspect
import os
import subprocess
import sys
import threading
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.language.extra import libdevice

import weftgrad as wg
from weftgrad.runtime.backends import available, best_device
from weftgrad.runtime.backends.interpreter import InterpreterDriver, check_version
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import DriverNotFound, LaunchError
from weftgrad.runtime.triton import language
from weftgrad.runtime.triton.builder import Builder, narrow, widen
from weftgrad.runtime.triton.interpret import Region, launch

BLOCK = 64
_NAMES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bool": "i1"}


def region(array):
    return Region("", array.ctypes.data, array.ctypes.data, array.ctypes.data + array.nbytes)


def pointer_type(array, bf16):
    name = array.dtype.name
    if bf16 and array.dtype == np.uint16:
        return "*bf16"
    return "*" + _NAMES.get(name, name.replace("uint", "u").replace("int", "i"))


def run(kernel, *arrays, grid=(1,), bf16=True, types=(), values=(), **constants):
    """Launch with `arrays` for the first parameters (uint16 is bfloat16), then `values` of `types`, then constants."""
    names = list(inspect.signature(getattr(kernel, "fn", kernel)).parameters)
    declared = [pointer_type(a, bf16) for a in arrays] + list(types)
    declared += ["constexpr"] * (len(names) - len(declared))
    launch(kernel, grid, dict(zip(names, declared, strict=True)), [*map(region, arrays), *values], constants=constants)


# --- Private names of Triton that we use ------------------------------------------------------------------------------


def test_the_contract_with_triton():
    """Triton still has the private names that `runtime.triton.builder` and `.language` use."""
    from triton.language import core, semantic
    from triton.runtime import interpreter as stock
    from triton.runtime.jit import JITFunction

    builder = stock.InterpreterBuilder()
    fields = {f.name for f in dataclasses.fields(builder.options)}
    required = {"sanitize_overflow", "debug", "default_dot_input_precision", "allowed_dot_input_precisions"}
    assert required <= fields
    assert [f.name for f in dataclasses.fields(stock.TensorHandle)] == ["data", "dtype", "attr"]
    own_methods = [name for name in vars(Builder) if name.startswith("create_")]
    assert len(own_methods) > 20
    for name in (
        *own_methods,
        "binary_op",
        "unary_op",
        "cast_impl",
        "get_all_ones_value",
        "set_grid_dim",
        "set_grid_idx",
    ):
        assert callable(getattr(builder, name)), name
    assert stock._get_np_dtype(tl.bfloat16) == np.uint16
    assert stock._get_np_dtype(tl.pointer_type(tl.int8)) == np.uint64
    assert stock._ir.ATOMIC_OP.FADD is not None
    assert stock._ir.INPUT_PRECISION.TF32 != stock._ir.INPUT_PRECISION.IEEE
    assert stock._ir.ROUNDING_MODE.RTNE is not None
    values = np.arange(3, dtype=np.float32)
    addresses = values.ctypes.data + 4 * np.arange(3, dtype=np.uint64)
    mask, values_for_masked = np.array([True, False, True]), np.full(3, 7, np.float32)
    assert stock._interpreter.load(addresses, mask, values_for_masked, np.dtype(np.float32)).tolist() == [0, 7, 2]
    stock._interpreter.store(addresses, values_for_masked, mask)
    assert values.tolist() == [7, 1, 7]
    assert core.is_builtin(core.load)
    assert core.is_builtin(core.tensor.__add__)
    assert callable(core._reduce_with_indices)
    tensor = core.tensor(None, tl.int32)
    tensor.__class__ = language.Value  # __class__ can be assigned only if both object layouts agree
    for name in ("to_tensor", "binary_op_type_checking_impl", "integer_promote_impl", "splat"):
        assert callable(getattr(semantic.TritonSemantic(builder), name))
    assert isinstance(tl.sum, (JITFunction, stock.InterpretedFunction))
    assert callable(tl.sum.fn)


def test_static_ranges_take_one_bound_or_two_and_a_step():
    for args, options in (((8,), {}), ((8,), {"step": 2}), ((2, 8), {"step": 3}), ((8, 2, -2), {})):
        bounds = args if len(args) > 1 else (0, *args)
        assert list(language._static_range(*args, **options)) == list(range(*bounds, *options.values()))


def test_nothing_of_triton_stays_replaced():
    modules = (tl, tl.core, tl.math, tl.standard)
    classes = (tl.tensor, tl.tensor_descriptor)
    vars_before = [dict(vars(m)) for m in (*modules, *classes)]
    x, y = np.ones(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
    run(arithmetic, x, x, y, OP="add", BLOCK=BLOCK)
    assert y.tolist() == [2] * BLOCK
    for owner, saved in zip((*modules, *classes), vars_before, strict=True):
        assert {k: v for k, v in vars(owner).items() if saved.get(k) is not v} == {}, owner


def test_kernels_compile_while_others_are_interpreted():
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    if triton.knobs.runtime.interpret:
        pytest.skip("TRITON_INTERPRET leaves nothing to compile")
    signature = {"x": "*fp32", "y": "*fp32", "out": "*fp32", "OP": "constexpr", "BLOCK": "constexpr"}
    stop = threading.Event()

    def interpret():
        x, y = np.ones(BLOCK, np.float32), np.zeros(BLOCK, np.float32)
        while not stop.wait(0.001):  # lets the other thread take the lock
            run(arithmetic, x, x, y, OP="mul", BLOCK=BLOCK)

    thread = threading.Thread(target=interpret)
    thread.start()
    try:
        source = ASTSource(fn=arithmetic, signature=signature, constexprs={"OP": "add", "BLOCK": 64})
        compiled = triton.compile(source, target=GPUTarget("cuda", 80, 32), options={"enable_fp_fusion": True})
    finally:
        stop.set()
        thread.join()
    assert "add.f32" in compiled.asm["ptx"] or "add.rn.f32" in compiled.asm["ptx"]


INTERPRETED = """
import numpy as np, triton, triton.language as tl
import test_interpreter as t
x, y = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
t.run(t.totals, x, y, BLOCK=64)
print(y[0])
"""


@pytest.mark.parametrize("value", ["", "1"])
def test_it_does_not_matter_whether_triton_was_told_to_interpret(tmp_path, value):
    environment = {**os.environ, "TRITON_INTERPRET": value, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-W", "error", "-c", INTERPRETED]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    expected = 2016 + 63 + 0 + 2016 + 63 + sum(k * (k + 1) // 2 for k in range(64))
    assert float(process.stdout) == expected


@triton.jit
def totals(x, y, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    scanned = tl.sum(tl.cumsum(v, 0), 0)
    tl.store(y, tl.sum(v, 0) + tl.max(v, 0) + tl.min(v, 0) + v.sum() + tl.argmax(v, 0) + scanned)


# --- bfloat16 ---------------------------------------------------------------------------------------------------------


def nearest_bfloat16(exact):
    """Return the bfloat16 nearest to a rational number, ties to even, as a float; computed without bit operations."""
    if exact == 0:
        return 0.0
    magnitude = abs(exact)
    exponent = 0
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** (max(exponent, -126) - 7)
    rounded = float(round(magnitude / unit) * unit)  # round() rounds ties to even
    rounded = float("inf") if rounded >= 2.0**128 else rounded
    return rounded if exact > 0 else -rounded


def bits(values):
    return np.array([nearest_bfloat16(Fraction(float(v))) for v in np.ravel(values)], np.float32).view(np.uint32) >> 16


def bfloat16(rng, n=BLOCK):
    """Return the bits of random bfloat16 values of many magnitudes."""
    return bits(rng.standard_normal(n) * 2.0 ** rng.integers(-6, 7, n)).astype(np.uint16)


@triton.jit
def arithmetic(x, y, out, OP: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    if OP == "add":
        c = a + b
    elif OP == "sub":
        c = a - b
    elif OP == "mul":
        c = a * b
    elif OP == "neg":
        c = -a
    elif OP == "abs":
        c = tl.abs(a)
    elif OP == "div":
        c = (a / b).to(out.dtype.element_ty)
    elif OP == "maximum":
        c = tl.maximum(a, b)
    elif OP == "minimum":
        c = tl.minimum(a, b)
    elif OP == "where":
        c = tl.where(a < b, a, b + 1)
    elif OP == "fma":
        c = tl.fma(a, b, a)
    tl.store(out + i, c)


EXACT = {
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


@pytest.mark.parametrize("op", [*EXACT])
def test_bfloat16_is_rounded_to_nearest_even(op):
    rng = np.random.default_rng(1)
    x, y, out = bfloat16(rng), bfloat16(rng), np.zeros(BLOCK, np.uint16)
    run(arithmetic, x, y, out, OP=op, BLOCK=BLOCK)
    exact = [EXACT[op](Fraction(float(a)), Fraction(float(b))) for a, b in zip(widen(x), widen(y), strict=True)]
    assert widen(out).tolist() == [nearest_bfloat16(e) for e in exact]


def test_bfloat16_quotients_are_calculated_in_float32():
    rng = np.random.default_rng(2)
    x, y, out = bfloat16(rng), bfloat16(rng), np.zeros(BLOCK, np.uint16)
    run(arithmetic, x, y, out, OP="div", BLOCK=BLOCK)
    quotients = np.divide(widen(x), widen(y), dtype=np.float32)
    assert widen(out).tolist() == [nearest_bfloat16(Fraction(float(q))) for q in quotients]


@triton.jit
def convert(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i).to(out.dtype.element_ty))


def test_conversions_to_and_from_bfloat16():
    rng = np.random.default_rng(3)
    tie = 1 + np.array([1, 3, 5, 7, 2, 4]) * 2.0**-8
    edges = [0.0, 1e-40, 3.3895314e38, 3.4028235e38, 2.0**-133, 2.0**-134, *tie]
    source = np.concatenate([edges, rng.standard_normal(BLOCK - len(edges)) * 100]).astype(np.float32)
    out = np.zeros(BLOCK, np.uint16)
    run(convert, source, out, BLOCK=BLOCK)
    assert widen(out).tolist() == [nearest_bfloat16(Fraction(float(v))) for v in source]
    half = source[12:].astype(np.float16)[:32]
    run(convert, half, out, BLOCK=32)
    assert widen(out[:32]).tolist() == [nearest_bfloat16(Fraction(float(v))) for v in half]
    counts = rng.integers(-100000, 100000, BLOCK).astype(np.int32)
    run(convert, counts, out, BLOCK=BLOCK)
    assert widen(out).tolist() == [nearest_bfloat16(Fraction(int(v))) for v in counts]
    integers = np.zeros(BLOCK, np.int32)
    run(convert, out, integers, BLOCK=BLOCK)
    assert integers.tolist() == [int(v) for v in widen(out)]
    half = np.zeros(BLOCK, np.float16)
    run(convert, bits(source[12:44]).astype(np.uint16), half, BLOCK=32)
    assert half[:32].tolist() == widen(bits(source[12:44]).astype(np.uint16)).astype(np.float16).tolist()


def test_nan_and_infinity_stay_in_bfloat16():
    source = np.array([np.nan, np.inf, -np.inf, -np.nan] * 16, np.float32)
    out = np.zeros(BLOCK, np.uint16)
    run(convert, source, out, BLOCK=BLOCK)
    np.testing.assert_array_equal(widen(out), source)


@triton.jit
def reductions(x, out, flags, BLOCK: tl.constexpr):
    a = tl.load(x + tl.arange(0, BLOCK))
    tl.store(out, tl.sum(a.to(tl.float32), 0))
    tl.store(out + 1, tl.max(a, 0))
    tl.store(out + 2, tl.min(a, 0))
    half = tl.reshape(a.to(tl.float32), (2, BLOCK // 2))
    tl.store(out + 3 + tl.arange(0, 2), tl.sum(half, 1))
    tl.store(out + 5, tl.sum(a, 0))
    equals_itself = tl.broadcast_to(a[:, None], (BLOCK, 2)) == a[:, None]
    tl.store(flags, tl.min(tl.min(equals_itself.to(tl.int32), 1), 0))


def test_bfloat16_reductions():
    x = bfloat16(np.random.default_rng(4))
    out, flags = np.zeros(6, np.float32), np.zeros(1, np.int32)
    run(reductions, x, out, flags, BLOCK=BLOCK)
    a = widen(x).astype(np.float64)
    np.testing.assert_allclose(out[[0, 3, 4]], [a.sum(), a[:32].sum(), a[32:].sum()], atol=1e-6 * np.abs(a).sum())
    np.testing.assert_allclose(out[5], a.sum(), atol=1e-2 * np.abs(a).sum())  # Triton accumulates in bfloat16
    assert widen(bits(out[5]).astype(np.uint16)) == out[5]
    assert out[1:3].tolist() == [a.max(), a.min()]
    assert flags[0] == 1


@triton.jit
def accumulate(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.atomic_add(out + i % 2, tl.load(x + i), mask=i < BLOCK - 2)


@pytest.mark.parametrize("dtype", [np.float32, np.uint16])
def test_atomics_add_every_lane(dtype):
    x = np.arange(BLOCK, dtype=np.float32)
    source, out = (bits(x).astype(np.uint16), np.zeros(2, np.uint16)) if dtype == np.uint16 else (x, np.zeros(2, dtype))
    run(accumulate, source, out, BLOCK=BLOCK)
    expected = [0.0, 0.0]
    for k in range(BLOCK - 2):
        total = expected[k % 2] + k
        expected[k % 2] = nearest_bfloat16(Fraction(total)) if dtype == np.uint16 else total
    assert (widen(out) if dtype == np.uint16 else out).tolist() == expected


# --- Memory -----------------------------------------------------------------------------------------------------------


@triton.jit
def shift(x, out, n, by, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i + by, mask=i < n, other=-1), mask=i < n)


def launch_shift(x, out, n, by, grid=(1,)):
    run(shift, x, out, grid=grid, types=("i32", "i32"), values=(n, by), BLOCK=BLOCK)


def test_lanes_that_are_masked_off_may_point_anywhere():
    x, out = np.arange(10, dtype=np.float32), np.zeros(10, np.float32)
    launch_shift(x, out, 10, 0)
    assert out.tolist() == x.tolist()


@pytest.mark.parametrize(("n", "by", "byte"), [(10, 1, 40), (10, -3, -12), (20, 0, 40)])
def test_a_read_outside_of_an_argument_is_an_error(n, by, byte):
    memory = np.arange(100, dtype=np.float32)  # the memory exists, but does not belong to this argument
    out = np.zeros(20, np.float32)
    outside = rf"shift: program \(0, 0, 0\) reads outside the memory of x: at byte {byte} of 40"
    with pytest.raises(LaunchError, match=outside):
        launch_shift(memory[50:60], out, n, by)


def test_a_write_outside_of_an_argument_is_an_error():
    x, memory = np.arange(70, dtype=np.float32), np.zeros(100, np.float32)
    outside = r"program \(1, 0, 0\) writes outside the memory of out: at byte 264 of 264 \(4 "
    with pytest.raises(LaunchError, match=outside):
        launch_shift(x, memory[:66], 70, 0, grid=(2,))
    assert not memory[66:].any()


@triton.jit
def between(x, y, out):
    tl.store(out, tl.load(x + 4))


def test_memory_of_another_argument_is_outside():
    """x and y are adjacent in memory: a pointer computed from x must not reach y."""
    memory, out = np.arange(8, dtype=np.float32), np.zeros(1, np.float32)
    with pytest.raises(LaunchError, match="outside the memory of x: at byte 16 of 16"):
        run(between, memory[:4], memory[4:], out)


@triton.jit
def move_pointer(x, out, BLOCK: tl.constexpr, WAY: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if WAY == "broadcast":
        p = tl.trans(tl.broadcast_to((x + i)[:, None], (BLOCK, 2)))
        v = tl.sum(tl.load(p), 0)
    elif WAY == "reshape":
        v = tl.load(tl.reshape(tl.reshape(x + i, (2, BLOCK // 2)), (BLOCK,)))
    elif WAY == "select":
        v = tl.load(tl.where(i < 4, x + i, x + i * 2))
    elif WAY == "bytes":
        v = tl.load(x.to(tl.pointer_type(tl.int8)) + i * 4)
    tl.store(out + i, v)


@pytest.mark.parametrize("way", ["broadcast", "reshape", "select", "bytes"])
def test_a_pointer_keeps_its_argument_through(way):
    memory, out = np.arange(2 * BLOCK, dtype=np.float32), np.zeros(2 * BLOCK, np.float32)
    run(move_pointer, memory, memory, BLOCK=BLOCK, WAY=way)
    with pytest.raises(LaunchError, match="reads outside the memory of x"):
        run(move_pointer, memory[: BLOCK - 1], out, BLOCK=BLOCK, WAY=way)


@triton.jit
def bump(x, BLOCK: tl.constexpr):
    tl.atomic_add(x + tl.arange(0, BLOCK), 1.0)


def test_atomics_are_checked():
    with pytest.raises(LaunchError, match=r"bump: .* writes outside the memory of x: at byte 252 of 252"):
        run(bump, np.zeros(BLOCK, np.float32)[:63], BLOCK=BLOCK)


@triton.jit
def tile(x, out, rows, columns, R: tl.constexpr, K: tl.constexpr):
    source = tl.make_tensor_descriptor(x, [rows, columns], [columns, 1], [R, K])
    target = tl.make_tensor_descriptor(out, [rows, columns], [columns, 1], [R, K])
    target.store([0, 0], source.load([0, 0]) * 2)


def launch_tile(x, out, rows, columns):
    run(tile, x, out, types=("i32", "i32"), values=(rows, columns), R=16, K=16)


def aligned(shape):
    memory = np.zeros(int(np.prod(shape)) + 4, np.float32)
    start = -memory.ctypes.data // 4 % 4
    return memory[start : start + int(np.prod(shape))].reshape(shape)


def test_descriptors_load_store_and_are_checked():
    x, out = aligned((10, 16)), aligned((10, 16))
    x[:] = np.arange(160).reshape(10, 16)
    launch_tile(x, out, 10, 16)
    np.testing.assert_array_equal(out, 2 * x)
    with pytest.raises(LaunchError, match=r"tile: .* reads outside the memory of x: at byte 640 of 640"):
        launch_tile(x, out, 11, 16)


@triton.jit
def undefined(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < 2))


def test_undefined_lanes_are_poisoned():
    out = np.zeros(4, np.float32)
    run(undefined, np.ones(4, np.float32), out, BLOCK=4)
    assert out[:2].tolist() == [1, 1]
    assert np.isnan(out[2:]).all()
    out = np.zeros(4, np.int64)
    run(undefined, np.ones(4, np.int64), out, BLOCK=4)
    assert (out[2:] < -(2**60)).all()


# --- Promises ---------------------------------------------------------------------------------------------------------


@triton.jit
def promised(x, n, sizes):
    tl.store(x, n + sizes[1])


def launch_promised(x, n, sizes, divisible):
    launch(promised, (1,), {"x": "*i32", "n": "i32", "sizes": ("i32", "i32")}, [x, n, sizes], divisible=divisible)


def test_promises_of_alignment_are_checked():
    memory = aligned(4).view(np.int32)
    launch_promised(region(memory), 32, (16, 48), ("x", "n", "sizes"))
    assert memory[0] == 80
    with pytest.raises(LaunchError, match=r"promised: x was promised to be .* 16, and is address .* \(4 more"):
        launch_promised(region(memory[1:]), 32, (16, 48), ("x",))
    launch_promised(region(memory[1:]), 32, (16, 48), ("n", "sizes"))
    with pytest.raises(LaunchError, match="n was promised to be a multiple of 16, and is 33"):
        launch_promised(region(memory), 33, (16, 48), ("n",))
    with pytest.raises(LaunchError, match="sizes was promised to be a multiple of 16, and is 49"):
        launch_promised(region(memory), 32, (16, 49), ("sizes",))


def test_a_pointer_is_a_multiple_of_its_elements():
    memory = np.zeros(9, np.uint8)
    with pytest.raises(LaunchError, match=r"promised: x points to address .* no multiple of its elements' 4 bytes"):
        launch_promised(region(memory[1 + -memory.ctypes.data % 4 :]), 32, (16, 48), ())


@triton.jit
def hinted(x, n):
    tl.store(x, tl.multiple_of(n, 8))


def test_hints_are_checked():
    out = np.zeros(1, np.int32)
    run(hinted, out, types=("i32",), values=(24,))
    assert out[0] == 24
    with pytest.raises(LaunchError, match="hinted: 20 was said to be a multiple of 8"):
        run(hinted, out, types=("i32",), values=(20,))


# --- Integers ---------------------------------------------------------------------------------------------------------


@triton.jit
def product(out, a, b, integers):
    tl.store(out, (a * b).to(tl.int64))
    tl.store(out + 1, (integers[0] * integers[1]).to(tl.int64))
    tl.store(out + 2, (integers[0] * integers[2]).to(tl.int64))
    tl.store(out + 3, (integers[1] + 2147483647).to(tl.int64))


def test_int32_overflows_as_on_a_device():
    out = np.zeros(4, np.int64)
    run(product, out, types=("i32", "i32", ("i32", "i32", "i64")), values=(65536, 65537, (65536, 65537, 65537)))
    assert out.tolist() == [65536, 65536, 65536 * 65537, 65537 - 2147483649]


def test_a_number_has_to_fit_its_type():
    with pytest.raises(LaunchError, match="product: a is 2147483648, which i32 does not hold"):
        run(product, np.zeros(4, np.int64), types=("i32",) * 3, values=(2**31, 1, 1))
    with pytest.raises(LaunchError, match="product: takes 4 arguments apart from constants, was given 3"):
        run(product, np.zeros(4, np.int64), types=("i32",) * 3, values=(1, 1))


@triton.jit
def typed(out, integers, numbers, flag):
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
    run(typed, out, types=types, values=((7, 2**40), (0.1, 0.1, 0.1), flag))
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
def bitwise(x, y, out, BLOCK: tl.constexpr):
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
    run(bitwise, x, y, out, BLOCK=16)
    unsigned = [(int(a) % 2**size) * (int(b) % 2**size) >> size for a, b in zip(x, y, strict=True)]
    assert [int(v) % 2**size for v in out[:16]] == unsigned
    assert out[16:32].tolist() == [int(a) >> 3 for a in x]
    assert [int(v) % 2**size for v in out[32:]] == [~int(a) % 2**size for a in x]


def test_floats_that_no_integer_holds_saturate():
    source = np.array([1e20, -1e20, np.inf, -np.inf, np.nan, 2.9, -2.9, 300.0], np.float32)
    out = np.zeros(8, np.int32)
    run(convert, source, out, BLOCK=8)
    assert out.tolist() == [2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 0, 2, -2, 300]
    small = np.zeros(8, np.uint8)
    run(convert, source, small, BLOCK=8)
    assert small[5:].tolist() == [2, 0, 44]


@triton.jit
def flags(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i) != 0
    tl.store(out + i, (a ^ True) | (~a & (i < 4)))
    tl.store(out + BLOCK + i, (a + a).to(tl.int8))
    tl.store(out + 2 * BLOCK + i, tl.cumsum(a.to(tl.int8), 0))


def test_booleans():
    x = np.array([1, 0, 1, 1, 0, 0, 1, 0], np.bool_)
    out = np.zeros(24, np.int8)
    run(flags, x, out, BLOCK=8)
    assert out[:8].tolist() == (~x).astype(int).tolist()
    assert not out[8:16].any()  # one-bit addition wraps
    assert out[16:].tolist() == np.cumsum(x).tolist()


# --- Floats -----------------------------------------------------------------------------------------------------------


@triton.jit
def extremes(x, y, out, BLOCK: tl.constexpr):
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
    operands = [narrow(x), narrow(y)] if dtype == np.uint16 else [x.astype(dtype), y.astype(dtype)]
    out = np.zeros(25, dtype)
    run(extremes, *operands, out, BLOCK=4)
    actual = (widen(out) if dtype == np.uint16 else out).astype(np.float64)
    expected = [2, 2, 3, nan, 2, nan, nan, nan, 1, 2, 3, nan, 1, nan, nan, nan, 1, 0, 2, 0, 1, nan, 2, nan, 3]
    np.testing.assert_array_equal(actual, expected)


@triton.jit
def rounding(x, y, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a = tl.load(x + i)
    b = tl.load(y + i)
    product = a * b
    tl.store(out + i, tl.fma(a, b, -product))
    if a.dtype == tl.float32:
        tl.store(out + BLOCK + i, tl.div_rn(a, b))
        tl.store(out + 2 * BLOCK + i, tl.sqrt_rn(tl.abs(a)))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fma_rounds_once_and_rn_is_exact(dtype):
    rng = np.random.default_rng(6)
    x, y = rng.standard_normal(16).astype(dtype), rng.standard_normal(16).astype(dtype)
    out = np.zeros(48, dtype)
    run(rounding, x, y, out, BLOCK=16)
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


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.uint16, np.int8])
def test_dot_accumulates_in_float32(dtype):
    rng = np.random.default_rng(7)
    if dtype == np.int8:
        x, y = (rng.integers(-128, 128, (32, 32)).astype(np.int8) for _ in "xy")
        out = np.zeros((32, 32), np.int32)
        run(matmul, x, y, out, N=32, PRECISION="ieee")
        assert (out == x.astype(np.int64) @ y.astype(np.int64)).all()
        return
    x, y = (rng.standard_normal((32, 32)).astype(np.float32) for _ in "xy")
    operands = [narrow(x), narrow(y)] if dtype == np.uint16 else [x.astype(dtype), y.astype(dtype)]
    x, y = (widen(g) if dtype == np.uint16 else g for g in operands)
    out = np.zeros((32, 32), np.float32)
    run(matmul, *operands, out, N=32, PRECISION="ieee")
    np.testing.assert_allclose(out, x.astype(np.float64) @ y.astype(np.float64), rtol=1e-5, atol=1e-5)


def test_tf32_has_ten_bits_and_three_of_them_have_float32s():
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


# --- The language -----------------------------------------------------------------------------------------------------


@triton.jit
def doubled(x):
    return x * 2


@triton.jit
def shifted(x, by: tl.constexpr):
    return doubled(x) + by, x


@triton.jit
def chain(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = shifted(tl.load(x + i), 3)
    tl.store(out + i, a + b)
    tl.store(out + i, 1.0, mask=(i > 2) and (i < 6) and not (i == 4 or BLOCK == 0))
    tl.store(out + BLOCK + i, tl.sigmoid(tl.zeros((BLOCK,), tl.float32)) + tl.cdiv(7, 2))


def test_functions_call_functions():
    x, out = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
    run(chain, x, out, BLOCK=8)
    expected = 3 * x + 3
    expected[[3, 5]] = 1
    assert out.tolist() == [*expected, *[4.5] * 8]


@triton.jit
def loops(out, n, step):
    count = 0
    total = 0.0
    last = step * 0
    for k in range(0, n, step):
        tl.static_assert(k.dtype == tl.int32)
        count += 1
        total += k
        last = k
    while count < 10:
        count += 4
    for _ in range(0):
        total = 100.0
    tl.store(out, count.to(tl.float32) + total)
    tl.store(out + 1, last.to(tl.float32))


def test_loops():
    out = np.zeros(2, np.float32)
    run(loops, out, types=("i32", "i32"), values=(10, 3))
    assert out.tolist() == [12 + 0 + 3 + 6 + 9, 9]


@triton.jit
def larger_with_index(value, index, other_value, other_index):
    is_better = (other_value > value) | ((other_value == value) & (other_index < index))
    return tl.where(is_better, other_value, value), tl.where(is_better, other_index, index)


@triton.jit
def append(a, b):
    return a * 3 + b


@triton.jit
def combined(x, values, indices, scans, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    i = tl.arange(0, ROWS)[:, None] * COLUMNS + tl.arange(0, COLUMNS)[None, :]
    a = tl.load(x + i)
    value, index = tl.reduce((a, i), 1, larger_with_index)
    tl.store(values + tl.arange(0, ROWS), value)
    tl.store(indices + tl.arange(0, ROWS), index)
    value, index = tl.max(a, 0, return_indices=True)
    tl.store(values + ROWS + tl.arange(0, COLUMNS), value)
    tl.store(indices + ROWS + tl.arange(0, COLUMNS), index)
    tl.store(scans + i, tl.cumsum(a, 1))
    tl.store(scans + ROWS * COLUMNS + i, tl.cumprod(a, 0))
    tl.store(scans + 2 * ROWS * COLUMNS + i, tl.cumsum(a, 1, reverse=True))


def test_reductions_and_scans_by_functions_of_the_kernel():
    rng = np.random.default_rng(9)
    x = rng.integers(-3, 4, (4, 8)).astype(np.float32)
    values, indices, scans = np.zeros(12, np.float32), np.zeros(12, np.int32), np.zeros((3, 4, 8), np.float32)
    run(combined, x, values, indices, scans, ROWS=4, COLUMNS=8)
    assert values.tolist() == [*x.max(1), *x.max(0)]
    assert indices.tolist() == [*(x.argmax(1) + 8 * np.arange(4)), *x.argmax(0)]
    np.testing.assert_array_equal(scans[0], np.cumsum(x, 1))
    np.testing.assert_array_equal(scans[1], np.cumprod(x, 0))
    np.testing.assert_array_equal(scans[2], np.cumsum(x[:, ::-1], 1)[:, ::-1])


@triton.jit
def transcendental(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, libdevice.tanh(tl.load(x + i)))


@triton.jit
def unknown(x):
    tl.store(x, libdevice.no_such_function(tl.load(x)))


def test_libdevice_has_numpy_bodies():
    x, out = np.linspace(-3, 3, 16, dtype=np.float32), np.zeros(16, np.float32)
    run(transcendental, x, out, BLOCK=16)
    np.testing.assert_allclose(out, np.tanh(x.astype(np.float64)), rtol=1e-6)
    with pytest.raises(LaunchError, match=r"libdevice\.no_such_function has no NumPy body"):
        run(unknown, x)


@triton.jit
def truth(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if i > 2:
        tl.store(x + i, 1.0)


def test_a_failing_kernel_names_itself_and_its_program():
    with pytest.raises(LaunchError, match=r"truth: program \(0, 0, 0\) failed .* a block has no truth value") as caught:
        run(truth, np.zeros(8, np.float32), BLOCK=8)
    assert isinstance(caught.value.__cause__, TypeError)
    first_line = inspect.getsourcelines(truth.fn)[1]
    lines = [f.lineno for f in inspect.getinnerframes(caught.value.__cause__.__traceback__) if f.filename == __file__]
    assert lines == [first_line + 3]  # the traceback shows the line of the `if` in this file


def test_overflow_and_division_by_zero_do_not_warn():
    x, y = np.full(BLOCK, 3e38, np.float32), np.zeros(BLOCK, np.float32)
    out = np.zeros(BLOCK, np.float32)
    run(arithmetic, x, x, out, OP="mul", BLOCK=BLOCK)
    assert np.isinf(out).all()
    run(arithmetic, x, y, out, OP="div", BLOCK=BLOCK)
    assert np.isinf(out).all()


def test_several_threads_launch_kernels():
    outputs = {}

    def work(number):
        x, out = np.full(256, number, np.float32), np.zeros(256, np.float32)
        for _ in range(3):
            launch_shift(x, out, 256, 0, grid=(4,))
        outputs[number] = out

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {k: set(v.tolist()) for k, v in outputs.items()} == {k: {float(k)} for k in range(6)}


# --- The device -------------------------------------------------------------------------------------------------------


def test_the_device_is_there_and_never_the_best():
    assert device("interpreter") in available()
    assert best_device() is not device("interpreter")
    caps = device("interpreter").driver.capabilities
    assert (caps.style, caps.sm, caps.local_memory) == ("triton", 90, 227 * 1024)


def test_capabilities_are_overridden(monkeypatch):
    monkeypatch.setenv("WEFTGRAD_INTERPRETER", "block=64,sm=80")
    caps = InterpreterDriver(device("interpreter")).capabilities
    assert (caps.block, caps.sm, caps.fp64) == (64, 80, True)
    assert InterpreterDriver(device("interpreter"), "fp64=0").capabilities.fp64 is False


@pytest.mark.parametrize("version", ["", "3.5.1", "2.1.0", "3.10.0", "4.0.0"])
def test_missing_or_unsupported_triton_versions_are_named(version):
    with pytest.raises(DriverNotFound, match=r"pip install 'weftgrad\[cuda\]'"):
        check_version(version)


@pytest.mark.parametrize("version", ["3.6.0", "3.7.1", "3.8.0", "3.9.0+git1234"])
def test_supported_triton_versions(version):
    check_version(version)


def test_a_call_runs_a_kernel():
    x = wg.tensor([[1.0, 2.0], [3.0, 4.0]], device="interpreter")
    launches_before = device("interpreter").driver.launches
    assert (x + x.t()).cpu().numpy().tolist() == [[2, 5], [5, 8]]
    assert device("interpreter").driver.launches > launches_before


def test_memory_is_adopted_without_copying():
    driver = device("interpreter").driver
    array = np.arange(8, dtype=np.float32)
    storage = driver.adopt(array)
    assert np.shares_memory(driver.host_view(storage), array)
    driver.write(storage, 8, np.array([9.0], np.float32), driver.default_stream)
    assert array.tolist() == [0, 1, 9, 3, 4, 5, 6, 7]
    read_back = np.zeros(2, np.float32)
    driver.read(storage, 4, read_back, driver.default_stream)
    assert read_back.tolist() == [1, 9]
    del storage


def test_streams_and_events():
    driver = device("interpreter").driver
    stream, start, end = driver.new_stream(), driver.new_event(True), driver.new_event(True)
    start.record(stream)
    stream.wait_stream(driver.default_stream)
    stream.record_event(end)
    stream.wait_event(end)
    assert stream.query()
    assert end.query()
    assert 0 <= start.elapsed_time(end) < 1e4
    with pytest.raises(LaunchError, match="two recorded events"):
        start.elapsed_time(driver.new_event(False))
    storage = driver.allocate(1000, stream)
    assert storage.buffer + storage.start == driver.host_view(storage).ctypes.data
    assert stream.pool.stats().allocated >= 1000
