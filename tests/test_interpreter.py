"""Check the `interpreter` device: Triton's interpreter with its faults corrected, and with checks that no GPU makes."""

import dataclasses
import inspect
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("triton")

import triton
import triton.language as tl
from interpreter_running import BLOCK, arithmetic, run
from triton.language.extra import libdevice

import weftgrad as wg
from weftgrad.runtime.backends import available, best_device
from weftgrad.runtime.backends.interpreter import InterpreterDriver, check_version
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import DriverNotFound, LaunchError
from weftgrad.runtime.triton import language
from weftgrad.runtime.triton.builder import Builder

# --- Private names of Triton that we use ------------------------------------------------------------------------------


def test_private_names_of_triton_exist():
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
    mask = np.array([True, False, True])
    values_for_masked = np.full(3, 7, np.float32)
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


def test_triton_is_unchanged_after_a_launch():
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


PROGRAM = """
import numpy as np, triton, triton.language as tl
import test_interpreter as t
x, y = np.arange(64, dtype=np.float32), np.zeros(1, np.float32)
t.run(t.reduce_and_scan, x, y, BLOCK=64)
print(y[0])
"""


@pytest.mark.parametrize("value", ["", "1"])
def test_the_variable_triton_interpret_changes_nothing(tmp_path, value):
    environment = {**os.environ, "TRITON_INTERPRET": value, "PYTHONPATH": str(Path(__file__).parent)}
    command = [sys.executable, "-W", "error", "-c", PROGRAM]
    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    x = np.arange(64)
    expected = x.sum() + x.max() + x.min() + x.sum() + x.argmax() + x.cumsum().sum()
    assert float(process.stdout) == expected


@triton.jit
def reduce_and_scan(x, y, BLOCK: tl.constexpr):
    v = tl.load(x + tl.arange(0, BLOCK))
    scanned = tl.sum(tl.cumsum(v, 0), 0)
    tl.store(y, tl.sum(v, 0) + tl.max(v, 0) + tl.min(v, 0) + v.sum() + tl.argmax(v, 0) + scanned)


# --- The language -----------------------------------------------------------------------------------------------------


@triton.jit
def double(x):
    return x * 2


@triton.jit
def double_and_shift(x, by: tl.constexpr):
    return double(x) + by, x


@triton.jit
def call_functions(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    a, b = double_and_shift(tl.load(x + i), 3)
    tl.store(out + i, a + b)
    tl.store(out + i, 1.0, mask=(i > 2) and (i < 6) and not (i == 4 or BLOCK == 0))
    tl.store(out + BLOCK + i, tl.sigmoid(tl.zeros((BLOCK,), tl.float32)) + tl.cdiv(7, 2))


def test_functions_call_functions():
    x, out = np.arange(8, dtype=np.float32), np.zeros(16, np.float32)
    run(call_functions, x, out, BLOCK=8)
    expected = 3 * x + 3
    expected[[3, 5]] = 1
    assert out.tolist() == [*expected, *[4.5] * 8]


@triton.jit
def run_loops(out, n, step):
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
    run(run_loops, out, types=("i32", "i32"), values=(10, 3))
    assert out.tolist() == [12 + 0 + 3 + 6 + 9, 9]


@triton.jit
def larger_with_index(value, index, other_value, other_index):
    is_better = (other_value > value) | ((other_value == value) & (other_index < index))
    return tl.where(is_better, other_value, value), tl.where(is_better, other_index, index)


@triton.jit
def reduce_with_functions(x, values, indices, scans, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
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
    run(reduce_with_functions, x, values, indices, scans, ROWS=4, COLUMNS=8)
    assert values.tolist() == [*x.max(1), *x.max(0)]
    assert indices.tolist() == [*(x.argmax(1) + 8 * np.arange(4)), *x.argmax(0)]
    np.testing.assert_array_equal(scans[0], np.cumsum(x, 1))
    np.testing.assert_array_equal(scans[1], np.cumprod(x, 0))
    np.testing.assert_array_equal(scans[2], np.cumsum(x[:, ::-1], 1)[:, ::-1])


@triton.jit
def store_tanh(x, out, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    tl.store(out + i, libdevice.tanh(tl.load(x + i)))


@triton.jit
def call_unknown_function(x):
    tl.store(x, libdevice.no_such_function(tl.load(x)))


def test_libdevice_has_numpy_bodies():
    x, out = np.linspace(-3, 3, 16, dtype=np.float32), np.zeros(16, np.float32)
    run(store_tanh, x, out, BLOCK=16)
    np.testing.assert_allclose(out, np.tanh(x.astype(np.float64)), rtol=1e-6)
    with pytest.raises(LaunchError, match=r"libdevice\.no_such_function has no NumPy body"):
        run(call_unknown_function, x)


@triton.jit
def branch_on_block(x, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    if i > 2:
        tl.store(x + i, 1.0)


def test_a_failing_kernel_names_itself_and_its_program():
    message = r"branch_on_block: program \(0, 0, 0\) failed .* a block has no truth value"
    with pytest.raises(LaunchError, match=message) as caught:
        run(branch_on_block, np.zeros(8, np.float32), BLOCK=8)
    assert isinstance(caught.value.__cause__, TypeError)
    first_line = inspect.getsourcelines(branch_on_block.fn)[1]
    lines = [f.lineno for f in inspect.getinnerframes(caught.value.__cause__.__traceback__) if f.filename == __file__]
    assert lines == [first_line + 3]  # the traceback shows the line of the `if` in this file


def test_overflow_and_division_by_zero_do_not_warn():
    x, y = np.full(BLOCK, 3e38, np.float32), np.zeros(BLOCK, np.float32)
    out = np.zeros(BLOCK, np.float32)
    run(arithmetic, x, x, out, OP="mul", BLOCK=BLOCK)
    assert np.isinf(out).all()
    run(arithmetic, x, y, out, OP="div", BLOCK=BLOCK)
    assert np.isinf(out).all()


@triton.jit
def copy(x, out, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i))


def test_several_threads_launch_kernels():
    outputs = {}

    def fill(number):
        x, out = np.full(256, number, np.float32), np.zeros(256, np.float32)
        for _ in range(3):
            run(copy, x, out, grid=(4,), BLOCK=BLOCK)
        outputs[number] = out

    threads = [threading.Thread(target=fill, args=(k,)) for k in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {k: set(v.tolist()) for k, v in outputs.items()} == {k: {float(k)} for k in range(6)}


# --- The device -------------------------------------------------------------------------------------------------------


def test_the_device_is_available_but_never_the_default():
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
    del storage  # before the array whose memory it uses


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
