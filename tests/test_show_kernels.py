"""Check that the kernels which `weftgrad show --kernel` prints are those that run.

Printed text is compiled in place of the text that the runtime compiles: for the device `cpu` both must give the same
LLVM code, for OpenCL devices the same results, and for Triton the same intermediate code.
"""

import argparse
import re
import subprocess
from dataclasses import replace
from zlib import crc32

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.cli.described_devices import find_device
from weftgrad.cli.kernel_text import first_launches, kernel_text, opencl_text, planned_steps, sample_call, schedules_of
from weftgrad.cli.show import kernel_sections
from weftgrad.cli.terminal import Style
from weftgrad.codegen.math_library import ANY_LANE_MACROS
from weftgrad.codegen.preprocessor import Preprocessor, macros_of
from weftgrad.codegen.triton_branches import resolve
from weftgrad.runtime import dtypes, program
from weftgrad.runtime.context import current_stream
from weftgrad.runtime.dispatch import empty, plan_for
from weftgrad.runtime.records import registry

OPS = (
    ("sigmoid", "float32", ""), ("sigmoid", "float64", "rows"), ("add", "float16", ""), ("add", "int32", "rows"),
    ("where", "bfloat16", ""), ("gelu_erf", "float32", ""), ("mul", "float32", "tiles"), ("logical_not", "bool", ""),
    ("softmax", "float32", ""), ("softmax", "float16", "columns"), ("layer_norm", "float32", ""),
    ("softmax_grad_input", "float32", ""), ("sum", "float32", ""), ("sum", "float32", "columns"),
    ("amax", "bfloat16", ""), ("argmax", "float32", ""), ("mean", "float64", ""), ("mm", "float32", ""),
    ("cumsum", "float32", ""),
    ("gather", "float32", ""), ("dropout_draw", "float32", ""), ("convolution", "float32", ""),
    ("attention", "float32", ""), ("max_windows", "float32", ""), ("adam_step", "float32", ""),
    ("search_sorted", "float32", ""),  # a comment of the kernel has its name as a word
)  # fmt: skip
"""Op, dtype and schedule ("" for that of a call) of kernels that are compared: every kind, every class of dtypes."""


def steps_of(name, dtype, schedule, device):
    if name not in registry:
        pytest.fail(f"no op {name}")
    return first_launches(planned_steps(registry[name], device, dtypes.parse(dtype), schedule))


def llvm_code(source, store):
    """Return the optimised LLVM code of a C source, without the digests in names."""
    command = [*store.compiler.compile, *store._flags, "-S", "-emit-llvm", "-o", "-", "-"]
    process = subprocess.run(command, input=source, capture_output=True, text=True, check=False)
    assert process.returncode == 0, process.stderr[:2000]
    lines = re.sub(r"_[0-9a-f]{12}\b", "", process.stdout).split("\n")
    return [re.sub(r"\s*;.*", "", line) for line in lines if not line.startswith((";", "source_filename"))]


@pytest.fixture(scope="module")
def store():
    driver = wg.device("cpu").driver
    driver.require()
    kernels = getattr(driver.executor, "kernels", None)
    if kernels is None:
        pytest.skip("no clang")
    return kernels.store


def compare_code(step, store):
    """Assert that the printed text of a launch compiles for `cpu` to the code that the launch runs."""
    printed = kernel_text(step, wg.device("cpu"))
    text = printed.kernel.replace(f"kernel void {printed.name}(", f"kernel void NAME({printed.name})(")
    # No macro of the instance is defined for the printed text, and its functions are the printed ones.
    instance = replace(step.instance, text=text, defines=())
    parts = program.sections([instance], as_c=True)
    printed_source = "\n".join((*parts.header, ANY_LANE_MACROS, printed.functions, *parts.kernels))
    printed_source = re.sub(r"#define NAME\(x\) .*", "#define NAME(x) x", printed_source)
    original = llvm_code(program.source([step.instance], as_c=True), store)
    assert llvm_code(printed_source, store) == original
    assert not re.search(r"#(?:if|el|endif)", printed.kernel)


@pytest.mark.parametrize(("name", "dtype", "schedule"), OPS)
def test_printed_kernels_compile_to_the_same_code_for_cpu(name, dtype, schedule, store):
    for step in steps_of(name, dtype, schedule, wg.device("cpu")):
        compare_code(step, store)


@pytest.mark.thorough
def test_a_third_of_the_ops_print_kernels_that_compile_to_the_same_code_for_cpu(store):
    cpu = wg.device("cpu")
    failures = {}
    records = [r for r in registry if r.texts and r.name.count("_grad_") < 2 and crc32(r.name.encode()) % 3 == 0]
    # clang takes two minutes for all. By checksum, ops that other tests add do not change which ones are compared.
    for record in sorted(records, key=lambda r: r.name):
        dtype = {"bool": "bool", "integer": "int32", "integral": "int32"}.get(record.dtypes, "float32")
        try:
            steps = steps_of(record.name, dtype, "", cpu)
        except wg.runtime.errors.ArgumentError:
            continue  # no sample call
        for step in steps:
            try:
                compare_code(step, store)
            except AssertionError as error:
                failures[step.instance.entry] = str(error)[:200]
    assert not failures


@pytest.mark.parametrize("name", ["sigmoid", "softmax", "sum", "mm", "cumsum", "layer_norm"])
@pytest.mark.parametrize("capabilities", ["", "style=gpu,lanes=4,optimize=0"], ids=["cpu", "gpu"])
def test_printed_kernels_compute_the_same_on_opencl_devices(name, capabilities):
    try:
        device = wg.testing.synthetic_device(915 if capabilities else 914, capabilities)
    except wg.runtime.errors.DriverNotFound as error:
        pytest.skip(str(error))
    record = registry[name]
    operands, statics = sample_call(record, device, dtypes.float32, (20, 70))
    planned = plan_for(record, operands, statics)
    printed_steps = []
    for step in planned.steps:
        printed = opencl_text(step.instance, device.driver.capabilities, as_c=False)
        text = printed.kernel.replace(f"kernel void {printed.name}(", f"kernel void NAME({printed.name})(")
        printed_steps.append(replace(step, instance=replace(step.instance, text=text, defines=())))
    tensors = [o for o in operands if isinstance(o, wg.Tensor)]
    numbers = [o for o in operands if o is not None and not isinstance(o, wg.Tensor)]
    results = []
    for step in printed_steps:  # one program each, as their functions may have the same names
        device.driver.build([step.instance])
    for steps in (planned.steps, printed_steps):
        outputs = [empty(layout) for layout in planned.outputs]
        launch = device.driver.launcher(steps, planned.scratch)
        launch([*tensors, *outputs], numbers, current_stream(device))
        results.append([output.cpu().numpy() for output in outputs])
    for original, shown in zip(*results, strict=True):
        np.testing.assert_array_equal(original, shown)


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("sigmoid", "float16"), ("where", "float32"), ("softmax", "float32"), ("sum", "float32"), ("mm", "float16"),
     ("cumsum", "float32"), ("convolution", "float32"), ("attention", "float16")],
)  # fmt: skip
def test_printed_kernels_compile_to_the_same_code_for_triton(name, dtype):
    pytest.importorskip("triton")
    from weftgrad.runtime.triton.compile import Target, compile_for

    device, _ = find_device("sm_90")
    for step in steps_of(name, dtype, "", device):
        printed = kernel_text(step, device)
        shown_step = replace(step, instance=replace(step.instance, text=printed.kernel))
        codes = [compile_for(s, True, Target.named("sm_90")).asm["ttir"] for s in (step, shown_step)]
        original, shown = [re.sub(r" ?loc\(.*|#loc.*|_[0-9a-f]{12}\b", "", code).strip() for code in codes]
        assert shown == original


@pytest.mark.parametrize("device", ["cpu", "opencl-gpu", "sm_90", "gfx942"])
@pytest.mark.parametrize(
    ("name", "most"), [("sigmoid", 40), ("add", 40), ("where", 40), ("gelu_erf", 40), ("softmax", 80)]
)
def test_printed_kernels_are_short(name, most, device):
    options = argparse.Namespace(
        device=device, dtype="float32", schedule="", shape=(64, 1000), functions=False, source=False
    )
    text = "\n".join(kernel_sections(registry[name], options, Style()))
    code = [line for line in text.split("\n") if line.strip() and not line.startswith(("//", "#"))]
    assert len(code) <= most
    assert "SCHEDULE" not in text


def test_a_schedule_is_printed_from_a_call_that_uses_it():
    cpu = wg.device("cpu")
    for schedule in ("contiguous", "rows", "tiles"):
        (step,) = planned_steps(registry["add"], cpu, dtypes.float32, schedule)
        assert step.instance.entry == f"add_{schedule}"
        assert f"add_{schedule}(" in kernel_text(step, cpu).kernel
    with pytest.raises(wg.runtime.errors.ArgumentError, match="uses a schedule 'nope'; used are contiguous"):
        planned_steps(registry["add"], cpu, dtypes.float32, "nope")
    assert schedules_of(registry["softmax"], "triton") == ["whole", "swept"]


# The preprocessor

HEADER = "#define WG_AT(S, p, bytes) ((global S *)((global char *)(p) + (bytes)))\n#define WG_WIDE(x) ((x) * LANES)\n"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("#define A 1\n#if A == 1 && !defined(B)\nyes\n#else\nno\n#endif\n", "yes\n"),
        ("#ifdef B\nyes\n#elif defined(C) || 3 > 2\nelse_if\n#else\nno\n#endif\n", "else_if\n"),
        ("#define F(x, y) x##y + (x)\nF(a, 1);\n", "a1 + (a);\n"),
        ("#define T(k) S##k\n#define S0 float\nT(0) y;\n", "float y;\n"),
        ("#define F(x) G(x)\n#define G(x) x + F(1)\nF(2);\n", "2 + F(1);\n"),  # a macro in its own expansion stays
        ("#define NAME(x) x##_1\n#define CALL NAME\nCALL(f)(2);\n", "f_1(2);\n"),
        ("#define S float\nWG_AT(S, p, 4);\n", "WG_AT(float, p, 4);\n"),
        ("// LANES stay in comments\n#define LANES 8\nLANES;\n", "// LANES stay in comments\n8;\n"),
        ("// of nothing\n#ifdef B\nno\n#endif\nx;\n", "x;\n"),
        ("#ifndef B // why\n    x;\n#endif\n", "    // why\n    x;\n"),
        ("#if defined(__AVX512F__)\na;\n#else\nb;\n#endif\n", "#if defined(__AVX512F__)\na;\n#else\nb;\n#endif\n"),
        ("#define W 1\n#if W == 16 && defined(__AVX512F__)\na;\n#else\nb;\n#endif\n", "b;\n"),
        (
            "#if __clang_major__ >= 15\na;\n#else\nb;\n#endif\n",  # neither 0 nor 1 decides it
            "#if __clang_major__ >= 15\na;\n#else\nb;\n#endif\n",
        ),
        ("#define W 1\n#if W == 16 && __clang_major__ >= 15\na;\n#else\nb;\n#endif\n", "b;\n"),
        (
            "#define W 16\n#if defined(__A__) && W == 16\na;\n#elif W == 16\nb;\n#endif\n",  # W is defined no more
            "#if defined(__A__) && 16 == 16\na;\n#elif 16 == 16\nb;\n#endif\n",
        ),
        ("#define NONE\nx;\nNONE\ny;\n", "x;\ny;\n"),
        ("#define A 1\n#undef A\n#ifdef A\nno\n#endif\nA;\n", "A;\n"),
        ("#define BODY(x) { \\\n    x; \\\n}\nBODY(f(1, 2))\n", "{\n    f(1, 2);\n}\n"),
    ],
)
def test_the_preprocessor(source, expected):
    assert Preprocessor(macros_of(HEADER)).run(source) == expected


@pytest.mark.parametrize("condition", ["!A == 2", "1 < 2 == 1", "3 & 1 == 0", "A ? 1 : 0", "0x"])
def test_conditions_that_python_would_read_otherwise_than_c_are_refused(condition):
    with pytest.raises(ValueError, match="#if "):
        Preprocessor({}).run(f"#if {condition}\na;\n#endif\n")


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("a;\n#else // b\nc;\n", "#else // b: no #if before it is open"),
        ("#elif 1\na;\n", "#elif 1: no #if before it is open"),
        ("#if 1\na;\n#endif\n#endif\n", "#endif: no #if before it is open"),
        ("#if 1\n#ifdef __AVX512F__\na;\n#endif\n", "#endif: 1 fewer than #if"),
        ("#if 0\na;\n#else\nb;\n#elif 1\nc;\n#endif\n", "#elif 1: it follows the #else"),
        ("#if __AVX__\na;\n#else\nb;\n#else\nc;\n#endif\n", "#else: it follows the #else"),
    ],
)
def test_the_preprocessor_rejects_conditionals_without_a_match(source, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        Preprocessor(macros_of(HEADER)).run(source)


def test_the_preprocessor_knows_what_kept_macros_read():
    preprocessor = Preprocessor(macros_of(HEADER), {"LANES": "16"})
    assert preprocessor.run("WG_WIDE(x);\n") == "WG_WIDE(x);\n"
    assert preprocessor.required == {"LANES": "16"}


def test_kept_macros_that_read_macros_with_arguments():
    """A macro that is defined in an undecided branch is printed, and the macros that it uses are required in full."""
    source = """\
#define WIDTH 4
#define CAST(x, T) __builtin_astype(x, T) + WIDTH
#if __has_builtin(f)
#define LOAD(p) f(CAST(p, int))
#else
#define LOAD(p) *(p)
#endif
v = LOAD(q);
"""
    preprocessor = Preprocessor({})
    assert "#if __has_builtin(f)" in preprocessor.run(source)
    assert preprocessor.required == {"CAST(x, T)": "__builtin_astype(x, T) + 4"}
    compiled = Preprocessor({}, {"__has_builtin(name)": "1"}).run(source)
    assert compiled == "v = f(__builtin_astype(q, int) + 4);\n"


# Triton's branches

BRANCHES = """
@triton.jit
def helper(x):
    return x


@triton.jit
def unused(x):
    return x


# The kernel.
@triton.jit
def kernel(x, n, KIND: tl.constexpr, WIDE: tl.constexpr):
    y = 0
    if KIND == 1:
        y = 1
    elif KIND == 2:
        # two
        y = helper(2)
    else:
        y = 3
    if WIDE:
        y += 1
    for i in range(n):
        if n > 3 and WIDE:
            y += i
        if KIND == 2 or n > 3:
            y -= i
    return y
"""


def test_branches_of_constants_are_resolved():
    text = resolve(BRANCHES, "kernel", {"KIND": 2, "WIDE": False})
    assert (
        text
        == """\
@triton.jit
def helper(x):
    return x


# The kernel.
@triton.jit
def kernel(x, n, KIND: tl.constexpr, WIDE: tl.constexpr):
    y = 0
    # two
    y = helper(2)
    for i in range(n):
        y -= i
    return y
"""
    )


def test_a_parameter_that_is_assigned_decides_nothing():
    source = "def kernel(K):\n    K = f(K)\n    if K:\n        a()\n"
    assert resolve(source, "kernel", {"K": True}) == source
