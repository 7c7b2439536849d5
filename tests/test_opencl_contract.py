"""What the launcher needs of pyopencl beyond its documented interface."""

import re
import struct
import warnings
from importlib import resources

import numpy as np
import pyopencl as cl
import pytest

import weftgrad as wg
from weftgrad.runtime.backends import opencl


def test_a_struct_is_set_as_bytes() -> None:
    """`Kernel._set_arg_buf(i, bytes)` sets a by-value struct; the public way costs a hundred times as much."""
    driver = wg.device("opencl:0").driver
    source = """
    typedef struct { long n; float scale; } Given;
    kernel void fill(global float *out, const Given given) { out[get_global_id(0)] = given.n * given.scale; }
    """
    queue = driver.default_stream.queue
    kernel = cl.Kernel(cl.Program(driver.context, source).build(), "fill")
    out = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, 16)
    assert hasattr(kernel, "_set_arg_buf"), "pyopencl has no Kernel._set_arg_buf any more: see backends/arguments.py"
    kernel.set_arg(0, out)
    kernel._set_arg_buf(1, struct.pack("@qf0q", 3, 0.5))
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    found = np.empty(4, np.float32)
    cl.enqueue_copy(queue, found, out)
    assert found.tolist() == [1.5] * 4


def test_a_queue_returns_events_that_know_their_state() -> None:
    """The `cpu` stream asks an event whether it is complete instead of waiting for it."""
    driver = wg.device("opencl:0").driver
    mark = cl.enqueue_marker(driver.default_stream.queue)
    driver.default_stream.synchronize()
    assert mark.command_execution_status == 0


def test_errors_have_one_base() -> None:
    assert issubclass(cl.LogicError, cl.Error)
    assert issubclass(cl.RuntimeError, cl.Error)


BUILT_INS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin
fmod frexp hypot ilogb ldexp lgamma log log10 log1p log2 mad max min mix nextafter pow pown powr remainder rint round
rsqrt sign signbit sin sincos sinh sqrt tan tanh tgamma trunc abs abs_diff add_sat clamp clz hadd mul24 mul_hi popcount
rotate sub_sat upsample isequal isfinite isinf isnan isnormal any all select bitselect shuffle shuffle2 dot cross length
normalize prefetch printf mem_fence get_num_groups get_work_dim get_global_offset
"""


def test_kernels_call_no_function_that_the_header_does_not_declare() -> None:
    """PoCL is told to leave its own declarations out: a call of another built-in would cost every build 0.1 s more."""
    folders = (
        resources.files("weftgrad") / "_generated/kernels/opencl",
        resources.files("weftgrad.templates") / "opencl/math",
    )
    texts = [text for folder in folders for text in folder.iterdir()]
    assert len(texts) > 500
    known = set(BUILT_INS.split())
    called = {
        text.name: sorted(known & set(re.findall(r"\b([a-z_0-9]+)\(", re.sub(r"//.*", "", text.read_text("utf-8")))))
        for text in texts
    }
    assert not {name: found for name, found in called.items() if found}


def test_programs_build_without_the_declarations_of_built_ins() -> None:
    driver = wg.device("opencl:0").driver
    if "Portable" not in driver.handle.platform.name:
        pytest.skip("only PoCL is told to")
    compiler = opencl.Compiler(driver.context, driver.handle, driver.capabilities)
    header = (resources.files("weftgrad.templates") / "opencl/header.cl").read_text("utf-8")
    assert compiler._lean
    one = "kernel void one(global float *out) { out[get_global_id(0)] = 1; }\n"
    compiler._build(header + one, [*compiler._options, *compiler._lean])
    more = "kernel void more(global float *out) { out[0] = native_sin(out[1]); }\n"
    with pytest.raises(cl.Error):
        compiler._build(header + more, [*compiler._options, *compiler._lean])
    compiler.built = 1
    assert compiler._compiled(header + more).kernel_names == "more"  # a user's own text may call anything
    assert compiler._lean
    compiler.built = 0
    compiler._compiled(header + more)
    assert not compiler._lean  # nothing has been built so: this version may not know the way


def test_what_a_compiler_logs_is_no_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's writes what it vectorised, and pyopencl warns whenever a compiler wrote something."""

    class Program:
        def __init__(self, *given: object) -> None: ...

        def build(self, *given: object, **named: object) -> "Program":
            warnings.warn("Kernel <one> was successfully vectorized (16)", cl.CompilerWarning, stacklevel=1)
            return self

    driver = wg.device("opencl:0").driver
    compiler = opencl.Compiler(driver.context, driver.handle, driver.capabilities)
    monkeypatch.setattr(opencl.cl, "Program", Program)
    assert isinstance(compiler._build("kernel void one() {}", []), Program)
    assert isinstance(compiler._finished(b"binary"), Program)
    with pytest.warns(cl.CompilerWarning):  # elsewhere it is one
        Program().build()
