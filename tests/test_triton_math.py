"""Check the math functions and the expression printer of the Triton target, without a GPU.

Values come from the interpreter, machine code from the compiler. Errors are counted in units in the last place (ULP),
as in test_opencl_math.py.
"""

import ast
import math
import py_compile
import re
from functools import cache
from importlib import resources

import numpy as np
import pytest
import scipy.special
from math_points import EDGES, INCOMPLETE_GAMMA, POLYGAMMA, RECORDED, ZETA, inputs, ulps

pytest.importorskip("triton")

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from weftgrad.codegen import expr
from weftgrad.runtime.backends.protocol import Instance
from weftgrad.runtime.triton import compile as compiling
from weftgrad.runtime.triton import source
from weftgrad.runtime.triton.interpret import Region, launch

LONG_DOUBLE = np.longdouble
LONG_DOUBLE_IS_WIDER = np.finfo(LONG_DOUBLE).nmant >= 63
"""Whether NumPy's long double is precise enough to check float64."""
FOLDER = resources.files("weftgrad.templates") / "triton" / "math"
POINTERS = {
    "bool": "*i1", "int8": "*i8", "uint8": "*u8", "int16": "*i16", "int32": "*i32", "int64": "*i64",
    "float16": "*fp16", "float32": "*fp32", "float64": "*fp64", "uint32": "*u32",
}  # fmt: skip
FLOATS = [np.float32, np.float64]
INTEGERS = [np.int8, np.uint8, np.int16, np.int32, np.int64]
TARGETS = {
    "sm_80": GPUTarget("cuda", 80, 32), "sm_90": GPUTarget("cuda", 90, 32), "sm_100": GPUTarget("cuda", 100, 32),
    "gfx942": GPUTarget("hip", "gfx942", 64),
}  # fmt: skip

# name: (ULP allowed in the interpreter, where nothing is fused; reference in long double)
UNARY = {
    "neg": (0, np.negative), "abs": (0, np.abs), "square": (0.5, np.square), "reciprocal": (0.5, lambda x: 1 / x),
    "floor": (0, np.floor), "ceil": (0, np.ceil), "trunc": (0, np.trunc), "round": (0, np.rint),
    "exp": (1.2, np.exp), "exp2": (1.2, np.exp2), "expm1": (2, np.expm1), "log": (1, np.log), "log2": (1.8, np.log2),
    "log10": (2, np.log10), "log1p": (1.5, np.log1p), "sqrt": (0.5, np.sqrt), "rsqrt": (1.5, lambda x: 1 / np.sqrt(x)),
    "asin": (2.5, np.arcsin), "acos": (1.5, np.arccos), "atan": (2, np.arctan), "sinh": (2, np.sinh),
    "cosh": (1.6, np.cosh), "tanh": (2.7, np.tanh), "asinh": (2.2, np.arcsinh), "acosh": (2.3, np.arccosh),
    "atanh": (2.3, np.arctanh), "sin": (1, np.sin), "cos": (1, np.cos), "tan": (1, np.tan),
    "logistic": (2.4, lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x)))),
    "softplus": (2, lambda x: np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))),
}  # fmt: skip
SPECIAL = {
    "erf": (1.3, scipy.special.erf), "erfc": (4, scipy.special.erfc), "erfinv": (4, scipy.special.erfinv),
    "lgamma": (1, scipy.special.gammaln), "digamma": (1, scipy.special.digamma),
    "trigamma": (1, lambda x: scipy.special.polygamma(1, x)),
}  # fmt: skip
BINARY = ["div", "floor_div", "mod", "fmod", "maximum", "minimum", "copysign", "hypot", "atan2", "pow"]
ITERATED = ["polygamma", "gammainc", "gammaincc", "gamma_density"]
MASKS = {"isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite, "signbit": np.signbit}
INTEGER_UNARY = ["neg", "abs", "sign", "square", "floor", "ceil", "trunc", "round"]
INTEGER_BINARY = ["div", "floor_div", "mod", "fmod", "pow", "maximum", "minimum", "lshift", "rshift", "gcd"]


def dtype_of(dtype):
    return getattr(tl, {"bool": "int1"}.get(np.dtype(dtype).name, np.dtype(dtype).name))


def kernel_text(lines, inputs, results):
    """Return a kernel that loads `inputs` as type C, runs `lines`, and stores the expressions `results`."""
    pointers = [f"p{k}" for k in range(len(inputs) + len(results))]
    body = ["i = tl.arange(0, BLOCK)", "m = i < n"]
    body += [f"{name} = wg_load(p{k} + i, m, C)" for k, name in enumerate(inputs)]
    body += [*lines, *(f"wg_store(p{len(inputs) + k} + i, {text}, m)" for k, text in enumerate(results))]
    head = f"@triton.jit\ndef run({', '.join(pointers)}, n, BLOCK: tl.constexpr, C: tl.constexpr):\n"
    return head + "".join(f"    {line}\n" for line in body)


@cache
def kernel_of(text):
    return source.functions(source.module_text(Instance("test", text, "run", "float", 1, ())))["run"]


def interpret(text, C, arrays, outputs):
    """Run a kernel of `kernel_text` in the interpreter on one block; `outputs` are the dtypes of its results."""
    n = len(arrays[0])
    results = [np.zeros(n, dtype) for dtype in outputs]
    buffers = [*(np.ascontiguousarray(a) for a in arrays), *results]
    types = {f"p{k}": POINTERS[a.dtype.name] for k, a in enumerate(buffers)}
    types |= {"n": "i32", "BLOCK": "constexpr", "C": "constexpr"}
    regions = [Region("", a.ctypes.data, a.ctypes.data, a.ctypes.data + a.nbytes) for a in buffers]
    constants = {"BLOCK": 1 << (n - 1).bit_length(), "C": dtype_of(C)}
    launch(kernel_of(text), (1,), types, [*regions, n], constants=constants)
    return results


def call(name, *arrays):
    """Return `wg_NAME` of arrays in their dtype, or in bool if the function returns a mask."""
    dtype = arrays[0].dtype
    names = ["a", "b"][: len(arrays)]
    text = kernel_text([], names, [f"wg_{name}({', '.join(names)})"])
    return interpret(text, dtype, arrays, [np.bool_ if name in MASKS else dtype])[0]


def check_errors(name, allowed, actual, expected, *arguments):
    errors = ulps(actual, expected)
    worst = int(errors.argmax())
    point = [a[worst] for a in arguments]
    assert errors[worst] <= allowed, (
        f"{name}{point} = {actual[worst]!r}, not {expected[worst]!r}: {errors[worst]:.2f} ULP"
    )


def assert_same_bits(name, actual, expected, *arguments):
    """Check that arrays have equal bits, except for the bits of NaN."""
    mismatches = (actual != expected) & ~((actual != actual) & (expected != expected))
    if actual.dtype.kind == "f":
        mismatches |= (actual == 0) & (expected == 0) & (np.signbit(actual) != np.signbit(expected))
    indices = np.flatnonzero(mismatches)[:3]
    assert not indices.size, (
        f"{name} of {[a[indices] for a in arguments]} is {actual[indices]}, not {expected[indices]}"
    )


def pairs(values):
    a, b = np.meshgrid(values, values)
    return np.ascontiguousarray(a.ravel()), np.ascontiguousarray(b.ravel())


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


# --- Files ------------------------------------------------------------------------------------------------------------


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


# --- Floating-point functions -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", FLOATS)
def test_unary_functions_within_their_ulps(dtype):
    if dtype is np.float64 and not LONG_DOUBLE_IS_WIDER:
        pytest.skip("long double is no wider than float64 here")
    x = inputs(dtype, np.random.default_rng(1))
    for name, (allowed, reference) in UNARY.items():
        actual, expected = call(name, x), reference(x.astype(LONG_DOUBLE))
        if name in ("sin", "cos", "tan") and dtype is np.float64:
            expected = reference(x)  # the interpreter calls NumPy, so only the call is tested
        check_errors(name, allowed, actual, expected, x)
        zero = (expected == 0) & (actual == 0)
        assert np.array_equal(np.signbit(actual[zero]), np.signbit(expected[zero])), f"{name}: the sign of 0"
    assert_same_bits("sign", call("sign", x), np.where(np.isnan(x), 0, np.sign(x) + 0).astype(dtype), x)
    for name, reference in MASKS.items():
        assert_same_bits(name, call(name, x), reference(x), x)


def test_special_functions_in_float32():
    x = inputs(np.float32, np.random.default_rng(2))
    x = x[(np.abs(x) > 1e-36) & (np.abs(x) < 1e6) & ((x > 0) | (x != np.rint(x))) & (x > -30)]
    for name, (allowed, reference) in SPECIAL.items():
        points = x[np.abs(x) <= 1] if name == "erfinv" else x
        expected = reference(points.astype(np.float64))
        selected = np.abs(expected) > (0.05 if name in ("lgamma", "digamma") else 0)
        check_errors(name, allowed, call(name, points)[selected], expected[selected], points[selected])


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_functions_at_recorded_points(dtype):
    for name, points in RECORDED.items():
        x, expected = np.array(points).T
        selected = (x.astype(dtype) == x) & (np.abs(expected) > np.finfo(dtype).tiny)
        x, expected = x[selected].astype(dtype), expected[selected]
        actual = call(name, x)
        if name in ("lgamma", "digamma", "trigamma"):  # near their zeros errors are measured in absolute terms
            errors = np.abs(actual - expected) / np.maximum(np.abs(expected), 0.1)
            assert (errors <= 1e-14 if dtype is np.float64 else errors <= 1.2e-7).all()
        elif name.startswith(("bessel", "airy", "ndtr", "erfcx")):  # they oscillate, or are computed from exponentials
            limit = 1.2e-7 if dtype is np.float32 else 5e-14 if name.startswith("airy") else 1e-14
            assert (np.abs(actual - expected) <= limit * np.abs(expected)).all(), name
        else:
            check_errors(name, 4.5, actual, expected, x)
    orders, x, expected = np.array(POLYGAMMA).T
    magnitude = np.abs(expected)
    selected = (
        (orders <= 40) & (x.astype(dtype) == x) & (magnitude > np.finfo(dtype).tiny) & (magnitude < np.finfo(dtype).max)
    )
    actual = call("polygamma", orders[selected].astype(dtype), x[selected].astype(dtype))
    assert (np.abs(actual / expected[selected] - 1) < (3e-13 if dtype is np.float64 else 1.2e-7)).all()


@pytest.mark.parametrize("dtype", FLOATS)
def test_zeta_at_recorded_points(dtype):
    s, x, expected = np.array(ZETA).T
    keep = (expected > np.finfo(dtype).tiny) & (expected < np.finfo(dtype).max)
    actual = call("zeta", s[keep].astype(dtype), x[keep].astype(dtype))
    assert np.allclose(actual, expected[keep], rtol=4e-15 if dtype is np.float64 else 1.2e-7, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_incomplete_gamma_functions(dtype):
    a, x, lower, upper = np.array(INCOMPLETE_GAMMA).T
    ends = np.array([(0, 0), (0, 1), (1, 0), (2, np.inf), (np.inf, 2), (np.inf, np.inf), (-1, 1), (1, np.nan)]).T
    limits = np.array([np.nan, 1, 0, 1, 0, np.nan, np.nan, np.nan])
    for name, expected, at_ends in (("gammainc", lower, limits), ("gammaincc", upper, 1 - limits)):
        actual = call(name, a.astype(dtype), x.astype(dtype))
        assert np.allclose(actual, expected, rtol=2e-14 if dtype is np.float64 else 6e-8, atol=0), name
        assert_same_bits(name, call(name, *ends.astype(dtype)), at_ends.astype(dtype), *ends)
    inside = (a < 1000) & (x < 90)
    slope = scipy.special.xlogy(a - 1, x) - x - scipy.special.gammaln(a)
    actual = call("gamma_density", a[inside].astype(dtype), x[inside].astype(dtype))
    assert np.allclose(actual, np.exp(slope[inside]), rtol=1e-13 if dtype is np.float64 else 1e-7, atol=0)


@pytest.mark.parametrize("dtype", FLOATS)
def test_special_values(dtype):
    inf, nan = np.inf, np.nan
    points = {
        "erf": ([0.0, -0.0, inf, -inf, nan], [0.0, -0.0, 1, -1, nan]),
        "erfc": ([inf, -inf, nan, 0.0], [0.0, 2, nan, 1]),
        "erfinv": ([0.0, -0.0, 1, -1, 1.5, nan], [0.0, -0.0, inf, -inf, nan, nan]),
        "lgamma": ([1, 2, 0, -1, -5, inf, -inf, nan], [0.0, 0.0, inf, inf, inf, inf, inf, nan]),
        "digamma": ([0.0, -0.0, -1, -7, inf, nan], [-inf, inf, nan, nan, inf, nan]),
        "trigamma": ([0.0, -1, inf, nan], [inf, inf, 0.0, nan]),
    }
    for name, (x, expected) in points.items():
        x = np.array(x, dtype)
        assert_same_bits(name, call(name, x), np.array(expected, dtype), x)
    order, x = np.array([[1.5, -1, nan, 2, 2, 1, 0], [1, 1, 1, nan, inf, -2, 0]], dtype)
    assert_same_bits(
        "polygamma", call("polygamma", order, x), np.array([nan, nan, nan, nan, -0.0, inf, -inf], dtype), order, x
    )


@pytest.mark.parametrize("dtype", FLOATS)
def test_binary_functions(dtype):
    rng = np.random.default_rng(3)
    a, b = pairs(np.array(EDGES, dtype))
    x, y = inputs(dtype, rng), inputs(dtype, rng)
    rng.shuffle(y)
    x, y = np.concatenate([a, x]), np.concatenate([b, y])
    exact = {"floor_div": np.floor_divide, "mod": np.mod, "fmod": np.fmod, "copysign": np.copysign}
    for name, reference in exact.items():
        expected = reference(x, y)
        assert_same_bits(name, call(name, x, y), expected, x, y)
    for name, reference in {"maximum": np.maximum, "minimum": np.minimum}.items():
        check_errors(name, 0, call(name, x, y), reference(x, y), x, y)
    for name, allowed, reference in (("div", 0.5, np.divide), ("hypot", 1.2, np.hypot), ("atan2", 2, np.arctan2)):
        if dtype is np.float32 or LONG_DOUBLE_IS_WIDER:
            check_errors(name, allowed, call(name, x, y), reference(x.astype(LONG_DOUBLE), y.astype(LONG_DOUBLE)), x, y)
    x = np.concatenate([a, 10 ** rng.uniform(-5, 5, 20000) * rng.choice([-1, 1], 20000), np.full(99, -2)]).astype(dtype)
    y = np.concatenate([b, rng.uniform(-30, 30, 20000), np.arange(99) - 50]).astype(dtype)
    if dtype is np.float32 or LONG_DOUBLE_IS_WIDER:
        check_errors("pow", 1.5, call("pow", x, y), np.power(x.astype(LONG_DOUBLE), y.astype(LONG_DOUBLE)), x, y)


# --- Integers: expected results by Python -----------------------------------------------------------------------------


def wrap(value, dtype):
    info = np.iinfo(dtype)
    return (value - info.min) % (info.max - info.min + 1) + info.min


def truncated_divide(x, y):
    return 0 if y == 0 else abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)


def power(x, y):
    if y < 0:
        return {1: 1, -1: 1 if y % 2 == 0 else -1}.get(x, 0)
    return pow(x, y, 2**64)


PYTHON = {
    "neg": lambda x: -x, "abs": abs, "sign": lambda x: (x > 0) - (x < 0), "square": lambda x: x * x,
    "floor": lambda x: x, "ceil": lambda x: x, "trunc": lambda x: x, "round": lambda x: x,
    "div": truncated_divide, "floor_div": lambda x, y: x // y if y else 0, "mod": lambda x, y: x % y if y else 0,
    "fmod": lambda x, y: x - truncated_divide(x, y) * y if y else 0, "pow": power, "maximum": max, "minimum": min,
}  # fmt: skip


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_functions_agree_with_python(dtype):
    info = np.iinfo(dtype)
    width = info.bits
    values = {
        0,
        1,
        2,
        3,
        5,
        7,
        10,
        63,
        100,
        -1,
        -2,
        -3,
        -7,
        -100,
        info.min,
        info.min + 1,
        info.max,
        info.max - 1,
        width,
    }
    x, y = pairs(np.array(sorted(v for v in values if info.min <= v <= info.max), dtype))
    operand_pairs = list(zip(x.tolist(), y.tolist(), strict=True))
    shifts = {
        "lshift": lambda a, b: a << b if 0 <= b < width else 0,
        "rshift": lambda a, b: a >> (b if 0 <= b < width else width),
        "gcd": math.gcd,
    }
    for name in INTEGER_UNARY:
        assert_same_bits(
            name, call(name, x), np.array([wrap(PYTHON[name](a), dtype) for a, _ in operand_pairs], dtype), x
        )
    for name in INTEGER_BINARY:
        function = {**PYTHON, **shifts}[name]
        expected = np.array([wrap(function(a, b), dtype) for a, b in operand_pairs], dtype)
        assert_same_bits(name, call(name, x, y), expected, x, y)
    for name, function in MASKS.items():
        assert_same_bits(name, call(name, x), function(x) if name != "signbit" else x < 0, x)


# --- Random numbers ---------------------------------------------------------------------------------------------------


def test_philox_gives_the_vectors_of_random123():
    text = kernel_text(["a, b, c, d = wg_philox(x, y, z)"], ["x", "y", "z"], ["a", "b", "c", "d"])
    ones = 2**64 - 1
    counters = [(0, 0, 0), (ones, ones, ones), (0x85A308D3243F6A88, 0x0370734413198A2E, 0x299F31D0A4093822)]
    arrays = [np.array(column, np.uint64).view(np.int64) for column in zip(*counters, strict=True)]
    words = np.array(interpret(text, np.int64, arrays, [np.uint32] * 4)).T
    assert [[f"{w:08x}" for w in row] for row in words.tolist()] == [
        ["6627e8d5", "e169c58d", "bc57ac4c", "9b00dbd8"],
        ["408f276d", "41c83b0e", "a20bc7c6", "6d5451fd"],
        ["d16cfe09", "94fdcceb", "5001e420", "24126ea1"],
    ]


@pytest.mark.parametrize("index", [np.int32, np.int64])
def test_random_numbers_are_computed_from_philox_words(index):
    """Uniform and normal numbers follow from the Philox words; OpenCL functions are tested against the same words."""
    i = np.arange(5000, dtype=index)
    words = ["a, b, c, d = wg_philox(x, tl.full((), 7, tl.int64), tl.full((), -42, tl.int64))"]
    a, b, c, d = interpret(kernel_text(words, ["x"], list("abcd")), index, [i], [np.uint32] * 4)
    arguments = "x, tl.full((), 4, tl.int64) + 3, tl.full((), -42, tl.int64)"
    draws = [
        f"wg_bits({arguments})",
        *(f"wg_{f}({arguments}, tl.{t})" for t in ("float32", "float64") for f in ("uniform", "normal")),
    ]
    types = [np.int64, np.float32, np.float32, np.float64, np.float64]
    bits, u, n, v, m = interpret(kernel_text([], ["x"], draws), index, [i], types)
    unit = [
        ((high.astype(np.uint64) << np.uint64(32) | low) >> np.uint64(11)) / 2**53 for low, high in ((a, b), (c, d))
    ]
    assert np.array_equal(bits, a)
    assert np.array_equal(u, (a >> 8) / 2**24)
    assert np.array_equal(v, unit[0])
    float32_one = np.float32(1)
    radius = (a >> 16).astype(np.float32) * np.float32(65536) + (a & 0xFFFF).astype(np.float32) + float32_one
    radius = np.sqrt(-2 * np.log(radius.astype(LONG_DOUBLE) / 2**32))
    expected = radius * np.cos(2 * LONG_DOUBLE("3.14159265358979323846") * ((b >> 8) / LONG_DOUBLE(2**24)))
    assert (np.abs(n - expected) <= 3 * np.spacing(np.maximum(np.abs(expected), 0.1).astype(np.float32))).all()
    expected = np.sqrt(-2 * np.log(unit[0].astype(LONG_DOUBLE) + LONG_DOUBLE(2) ** -53))
    expected *= np.cos(2 * LONG_DOUBLE("3.14159265358979323846") * unit[1])
    assert (np.abs(m - expected) <= 4 * np.spacing(np.maximum(np.abs(expected), 0.1).astype(np.float64))).all()
    assert abs(n.mean()) < 0.05
    assert abs(n.std() - 1) < 0.05


# --- The printer ------------------------------------------------------------------------------------------------------

OPERANDS = {name: expr.Operand() for name in "xyz"} | {"m": expr.Operand("mask"), "i": expr.Operand("index")}


def print_expression(text, *, random=False):
    return expr.emit_triton({"out": expr.parse(text, operands=OPERANDS, random=random)})


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.5 * x + y / 3", "0.5 * x + wg_div(y, tl.full((), 3, C))"),
        ("x - (y - z) - 1", "x - (y - z) - 1"),
        ("-x * y", "wg_neg(x) * y"),
        ("(x < y) == m", "(x < y).to(C) == m.to(C)"),
        ("not (x < y and m or x != 2)", "~((x < y) & m | (x != 2))"),
        ("where(m, 1, 0) * x", "tl.where(m, tl.full((), 1, C), 0) * x"),
        ("where(m, x, -inf)", 'tl.where(m, x, float("-inf"))'),
        ("maximum(x, -1)", "wg_maximum(x, wg_integer(-1, C))"),
        ("x * -0.0", "x * wg_neg(tl.full((), 0, C))"),
        ("x and i > 2", "(x != 0) & (i > 2)"),
        ("~x & y", "wg_bitwise_not(x, WG_BOOL) & y"),
        ("~i & -i", "~i & -i"),
        ("i % 3 + 5000000000", "wg_mod(i, tl.full((), 3, tl.int64)) + tl.full((), 5000000000, tl.int64)"),
        ("2.5", "tl.full((), 2.5, C)"),
        ("x == x or True", "(x == x) | tl.full((), True, tl.int1)"),
    ],
)
def test_printed_expressions(text, expected):
    assert print_expression(text).values["out"] == expected


def test_draws_are_printed_with_their_counter():
    block = print_expression("normal(1) * x + bits(0) % 7 + where(uniform(2) < 0.5, 1, 0)", random=True)
    assert block.functions == ("bits", "mod", "normal", "uniform")
    text = " ".join((*block.statements, block.values["out"]))
    assert "wg_normal(wg_index, wg_offset + 1, wg_key, C)" in text
    assert "wg_bits(wg_index, wg_offset + 0, wg_key)" in text


def test_row_reductions_are_refused():
    with pytest.raises(expr.ExprError, match="row_stages"):
        expr.emit_triton({"out": expr.parse("x - max(x)", operands=OPERANDS, row=True)})


# Expressions, and their values for x and y in Python.
TYPED = [
    ("x * -1 + 100", lambda x, y: -x + 100),
    ("where(x < y, 1, 0) - 3 * x", lambda x, y: (x < y) - 3 * x),
    ("(x > y) * y + (x == y)", lambda x, y: (x > y) * y + (x == y)),
    ("maximum(x, 5) // minimum(y, 7)", lambda x, y: max(x, 5) // min(y, 7) if min(y, 7) else 0),
    ("where(x != 0 and not y > 3, x, y) % 10", lambda x, y: (x if x and not y > 3 else y) % 10),
    ("-x + y * y * 1000", lambda x, y: -x + y * y * 1000),
    ("2", lambda x, y: 2),
]


@pytest.mark.parametrize("dtype", [*INTEGERS, *FLOATS])
def test_results_have_the_compute_type(dtype):
    x, y = pairs(np.array([1, 2, 3, 7, 100, 11], dtype))
    blocks = [print_expression(text) for text, _ in TYPED]
    lines = [line for k, b in enumerate(blocks) for line in (*b.statements, f"r{k} = {b.values['out']}")]
    lines += [f"tl.static_assert(r{k}.dtype == C)" for k in range(len(blocks))]
    text = kernel_text(lines, ["x", "y"], [f"r{k}" for k in range(len(blocks))])
    results = interpret(text, dtype, [x, y], [dtype] * len(blocks))
    for (expression, function), result in zip(TYPED, results, strict=True):
        expected = [function(a, b) for a, b in zip(x.tolist(), y.tolist(), strict=True)]
        if np.dtype(dtype).kind != "f":
            expected = [wrap(int(e), dtype) for e in expected]
        assert_same_bits(expression, result, np.array(expected, dtype), x, y)
    # The compiler infers the same types.
    assert compile_kernel(text, dtype, [dtype] * (2 + len(blocks)), TARGETS["sm_90"])


def test_constants_keep_the_precision_of_float64():
    parsed = expr.parse("x * 0.1 + where(m, 0.7, 1e-300) - 1 / (y * 3 + 0.3)", operands=OPERANDS)
    block = expr.emit_triton({"out": parsed}, names={"m": "positive"})
    text = kernel_text(["positive = x > 0", *block.statements], ["x", "y"], [block.values["out"]])
    x, y = np.array([1.0, -3.0]), np.array([2.0, 5.0])
    expected = x * 0.1 + np.where(x > 0, 0.7, 1e-300) - 1 / (y * 3 + 0.3)
    assert np.array_equal(interpret(text, np.float64, [x, y], [np.float64])[0], expected)


def test_truth_values_are_stored_as_such():
    x = np.array([0, 1, 0.25, np.nan, -0.0, np.inf], np.float32)
    text = kernel_text([], ["x"], ["x", "x == 1", "wg_isnan(x)"])
    outputs = interpret(text, np.float32, [x], [np.bool_] * 3)
    assert [s.tolist() for s in outputs] == [[v != 0 for v in x], [v == 1 for v in x], np.isnan(x).tolist()]
    flags = np.array([True, False])
    text = kernel_text([], ["x"], ["wg_bitwise_not(x, 1)", "x + x", "x & 1"])
    assert [s.tolist() for s in interpret(text, np.uint8, [flags], [np.bool_, np.uint8, np.uint8])] == [
        [False, True], [2, 0], [1, 0],
    ]  # fmt: skip


# --- The compiler -----------------------------------------------------------------------------------------------------


def compile_kernel(text, C, dtypes, target):
    """Return the machine code of a kernel as text: PTX, or assembly for AMD."""
    types = {f"p{k}": POINTERS[np.dtype(d).name] for k, d in enumerate(dtypes)}
    types |= {"n": "i32", "BLOCK": "constexpr", "C": "constexpr"}
    ast_source = ASTSource(kernel_of(text), types, {"BLOCK": 256, "C": dtype_of(C)})
    kernel = triton.compile(ast_source, target=target, options={**compiling._OPTIONS, "num_warps": 4})
    return kernel.asm["ptx" if target.backend == "cuda" else "amdgcn"]


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
