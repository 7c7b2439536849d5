"""Check the files of the Triton target's math functions, and that every function compiles."""

import ast
import py_compile
import re
from importlib import resources

import numpy as np
import pytest
from triton_math_running import (
    FLOATS,
    INTEGER_BINARY,
    INTEGER_UNARY,
    INTEGERS,
    MASKS,
    SPECIAL,
    TARGETS,
    UNARY,
    compile_kernel,
    kernel_text,
)

from weftgrad.codegen import expr
from weftgrad.runtime.triton import source

pytest.importorskip("triton")
FOLDER = resources.files("weftgrad.templates") / "triton" / "math"
BINARY = ["div", "floor_div", "mod", "fmod", "maximum", "minimum", "copysign", "hypot", "atan2", "pow"]
ITERATED = ["polygamma", "gammainc", "gammaincc", "gamma_density"]


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# Files


def test_byte_code_beside_the_files_is_ignored(tmp_path):
    """`pip install` compiles every .py file of a wheel, also the source of math functions."""
    folder = tmp_path / "math"
    with resources.as_file(resources.files("weftgrad.templates") / "triton" / "math") as ours:
        folder.mkdir()
        for file in ours.glob("*.py"):
            (folder / file.name).write_bytes(file.read_bytes())
    assert py_compile.compile(str(folder / "exp.py"), doraise=True).startswith(str(folder / "__pycache__"))
    assert source._texts(folder) == source._math()


def test_every_function_has_its_file_and_names_what_it_calls():
    paths = [f for f in FOLDER.iterdir() if f.name.endswith(".py")]
    files = {f.name.removesuffix(".py"): f.read_text(encoding="utf-8") for f in paths}
    for name, function in expr.functions().items():
        printed_name = function.spelling.get("triton", f"wg_{name}")
        if printed_name == f"wg_{name}" and not function.row and name != "to_mask":
            assert name in files, f"{name} is printed as wg_{name}, which no file defines"
    for name, text in files.items():
        head, _, body = text.partition("\n")
        needed = [n.strip() for n in head.removeprefix("# needs:").split(",") if n.strip()]
        assert head.startswith("# needs:")
        name = name.removesuffix(".half")
        assert [f.name for f in ast.parse(body).body if isinstance(f, ast.FunctionDef)] == [f"wg_{name}"]
        called = set(re.findall(r"\bwg_(\w+)\(", body)) - {name}
        assert set(needed) == called, f"{name} needs {sorted(called)}"


def coefficients(text: str) -> list[str]:
    """Return the numbers of at least 13 characters in the code of a math function, sorted."""
    code = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
    lines = [line for line in code.splitlines() if not line.strip().startswith(("#", "//"))]
    numbers = re.findall(r"(?<![\w.])\d+\.\d*(?:e[+-]?\d+)?", "\n".join(lines))
    return sorted(number for number in numbers if len(number) >= 13)


def test_both_targets_have_one_table_of_coefficients():
    """Polynomials are written out in both languages, so an edit of one file could be forgotten in the other."""
    compared = set()
    for file in FOLDER.iterdir():
        opencl_file = FOLDER.parent.parent / "opencl" / "math" / f"{file.name.removesuffix('.py')}.cl"
        if not (file.name.endswith(".py") and opencl_file.is_file()):
            continue
        ours, theirs = (coefficients(f.read_text(encoding="utf-8")) for f in (file, opencl_file))
        if min(len(ours), len(theirs)) >= 5:  # others are computed in another way, such as by libdevice
            assert ours == theirs, file.name
            compared.add(file.name)
    assert {"airy_ai.py", "gamma_ratio.py", "gamma_uniform.py", "ndtri.py"} <= compared


# The compiler


def groups(dtype):
    """Return calls of every function in groups of ten: compile time grows faster than the length of a kernel."""
    if np.dtype(dtype).kind == "f":
        calls = [f"wg_{f}(a)" for f in [*UNARY, *SPECIAL, "sign"]] + [f"wg_{f}(a, b)" for f in [*BINARY, *ITERATED]]
        calls += [f"wg_{f}(i, i.to(tl.int64) + 5, i.to(tl.int64), C)" for f in ("uniform", "normal")]
    else:
        calls = [f"wg_{f}(a)" for f in INTEGER_UNARY] + [f"wg_{f}(a, b)" for f in INTEGER_BINARY]
    calls += [f"wg_{f}(a).to(C)" for f in MASKS]
    return [calls[k : k + 10] for k in range(0, len(calls), 10)]


def target_parameter(target, dtype):
    fast = target == "sm_90" or np.dtype(dtype).kind != "f"
    return pytest.param(target, dtype, marks=() if fast else pytest.mark.slow, id=f"{target}-{np.dtype(dtype).name}")


@pytest.mark.parametrize(("target", "dtype"), [target_parameter(t, d) for t in TARGETS for d in (*FLOATS, *INTEGERS)])
def test_every_function_compiles(target, dtype):
    for calls in groups(dtype):
        text = kernel_text([], ["a", "b"], calls)
        machine = compile_kernel(text, dtype, [dtype] * (2 + len(calls)), TARGETS[target])
        if target.startswith("sm_"):
            # Instructions that approximate or flush subnormal numbers. Only libdevice's tan uses one.
            inexact = set(re.findall(r"\b\S+\.(?:approx|full|ftz)\S*", machine))
            allowed = {"rcp.approx.ftz.f32", "rcp.approx.ftz.f64"} if "wg_tan(a)" in calls else set()
            assert inexact <= allowed, f"{calls}: {sorted(inexact)}"
