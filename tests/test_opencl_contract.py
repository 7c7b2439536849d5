"""Check the undocumented behaviour of pyopencl that the launcher relies on."""

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
    """`Kernel._set_arg_buf(i, bytes)` sets a by-value struct; the public method is 100 times slower."""
    driver = wg.device("opencl:0").driver
    source = """
    typedef struct { long n; float scale; } Args;
    kernel void fill(global float *out, const Args args) { out[get_global_id(0)] = args.n * args.scale; }
    """
    queue = driver.default_stream.queue
    kernel = cl.Kernel(cl.Program(driver.context, source).build(), "fill")
    out = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, 16)
    assert hasattr(kernel, "_set_arg_buf"), "pyopencl has no Kernel._set_arg_buf any more: see backends/arguments.py"
    kernel.set_arg(0, out)
    kernel._set_arg_buf(1, struct.pack("@qf0q", 3, 0.5))
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    values = np.empty(4, np.float32)
    cl.enqueue_copy(queue, values, out)
    assert values.tolist() == [1.5] * 4


def test_markers_report_their_completion() -> None:
    """The `cpu` stream polls an event for completion instead of waiting for it."""
    driver = wg.device("opencl:0").driver
    mark = cl.enqueue_marker(driver.default_stream.queue)
    driver.default_stream.synchronize()
    assert mark.command_execution_status == 0


def test_errors_have_one_base() -> None:
    """The backend catches `cl.Error` only."""
    assert issubclass(cl.LogicError, cl.Error)
    assert issubclass(cl.RuntimeError, cl.Error)


# Functions of OpenCL C that header.cl does not declare.
UNDECLARED_BUILT_INS = """
acos acosh asin asinh atan atan2 atanh cbrt ceil copysign cos cosh erf erfc exp exp2 expm1 fabs fdim floor fma fmax fmin
fmod frexp hypot ilogb ldexp lgamma log log10 log1p log2 mad max min mix nextafter pow pown powr remainder rint round
rsqrt sign signbit sin sincos sinh sqrt tan tanh tgamma trunc abs abs_diff add_sat clamp clz hadd mul24 mul_hi popcount
rotate sub_sat upsample isequal isfinite isinf isnan isnormal any all select bitselect shuffle shuffle2 dot cross length
normalize prefetch printf mem_fence get_num_groups get_work_dim get_global_offset
"""


def test_kernels_call_no_function_that_the_header_does_not_declare() -> None:
    """Builds skip PoCL's own declarations. A call of any other built-in would make every build 0.1 s slower."""
    folders = (
        resources.files("weftgrad") / "_generated/kernels/opencl",
        resources.files("weftgrad.templates") / "opencl/math",
    )
    texts = [text for folder in folders for text in folder.iterdir() if text.name.endswith(".cl")]
    assert len(texts) > 500
    built_ins = set(UNDECLARED_BUILT_INS.split())
    calls = {
        text.name: sorted(
            built_ins & set(re.findall(r"\b([a-z_0-9]+)\(", re.sub(r"//.*", "", text.read_text("utf-8"))))
        )
        for text in texts
    }
    assert not {name: names for name, names in calls.items() if names}


def test_programs_build_without_the_declarations_of_built_ins() -> None:
    """PoCL's "lean" options skip its declarations. A program that needs them is built again without these options."""
    driver = wg.device("opencl:0").driver
    if "Portable" not in driver.handle.platform.name:
        pytest.skip("only PoCL can skip its declarations")
    compiler = opencl.Compiler(driver.context, driver.handle, driver.capabilities)
    header = (resources.files("weftgrad.templates") / "opencl/header.cl").read_text("utf-8")
    assert compiler._lean_options
    plain_kernel = "kernel void one(global float *out) { out[get_global_id(0)] = 1; }\n"
    compiler._build(header + plain_kernel, [*compiler._options, *compiler._lean_options])
    native_kernel = "kernel void more(global float *out) { out[0] = native_sin(out[1]); }\n"
    with pytest.raises(cl.Error):
        compiler._build(header + native_kernel, [*compiler._options, *compiler._lean_options])
    compiler.built = 1  # a build with the lean options has succeeded before: they work
    assert compiler._compile_source(header + native_kernel).kernel_names == "more"  # user code may call any built-in
    assert compiler._lean_options
    compiler.built = 0
    compiler._compile_source(header + native_kernel)
    assert not compiler._lean_options  # no build has succeeded with these options: this version may not know them


def test_compiler_logs_are_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Intel's compiler logs which kernels it vectorised, and pyopencl warns about every log."""

    class Program:
        def __init__(self, *args: object) -> None: ...

        def build(self, *args: object, **kwargs: object) -> "Program":
            warnings.warn("Kernel <one> was successfully vectorized (16)", cl.CompilerWarning, stacklevel=1)
            return self

    driver = wg.device("opencl:0").driver
    compiler = opencl.Compiler(driver.context, driver.handle, driver.capabilities)
    monkeypatch.setattr(opencl.cl, "Program", Program)
    assert isinstance(compiler._build("kernel void one() {}", []), Program)
    assert isinstance(compiler._load_binary(b"binary"), Program)
    with pytest.warns(cl.CompilerWarning):  # outside the compiler class pyopencl still warns
        Program().build()
