"""Check expressions as they are printed for OpenCL and NumPy."""

import itertools
from functools import partial

import numpy as np
import pytest
from expr_operands import OPERANDS, read, run_rows, value

from weftgrad.codegen.expr import (
    ExprError,
    Operand,
    canonical,
    const,
    emit_opencl,
    gradient,
    parse,
    size,
    to_text,
    variable,
)


@pytest.mark.parametrize(
    ("text", "scalar", "vector"),
    [
        ("x - (y - z)", "x - (y - z)", "x - (y - z)"),
        ("(x - y) * -z", "(x - y) * -z", "(x - y) * -z"),
        ("x + 0.5 * s", "x + (V)(0.5) * s", "x + (V)(0.5) * (V)(s)"),
        ("-x - -2", "-x - (V)(-2)", "-x - (V)(-2)"),
        ("where(x > r, x, w)", "(x > r) ? x : w", "(x > (V)(r)) ? x : w"),
        ("m * x", "(m ? (V)(1) : (V)(0)) * x", "(m ? (V)(1) : (V)(0)) * x"),
        ("where(x, inf, -nan)", "(x != (V)(0)) ? (V)(INFINITY) : (V)(NAN)", "(x != (V)(0)) ? (V)(INFINITY) : (V)(NAN)"),
        ("x > 0 and not m", "x > (V)(0) && !m", "x > (V)(0) && !m"),
        ("m or x > 0 and m", "m || (x > (V)(0) && m)", "m || (x > (V)(0) && m)"),
        ("i & 3 | i << 2", "(i & (L)(3)) | (i << (L)(2))", "(i & (L)(3)) | (i << (L)(2))"),
        ("where(i < 2, x, y)", "(i < (L)(2)) ? x : y", "WG_CONVERT(i < (L)(2), M) ? x : y"),
        ("where(m, i, 0)", "m ? i : (L)(0)", "WG_CONVERT(m, L) ? i : (L)(0)"),
        ("i * x", "(V)(i) * x", "WG_CONVERT(i, V) * x"),
        ("exp(s) + detach(x)", "wg_exp(s) + x", "wg_exp((V)(s)) + x"),
        ("x + 3000000000", "x + (V)(3000000000L)", "x + (V)(3000000000L)"),
        ("x * (1 / x)", "x * ((V)(1) / x)", "x * ((V)(1) / x)"),
    ],
)
def test_opencl_text(text, scalar, vector):
    for dialect, expected in (("scalar", scalar), ("vector", vector)):
        block = emit_opencl({"out": read(text)}, dialect)
        assert (block.statements, block.values["out"]) == ((), expected)


def test_opencl_blocks():
    outputs = {"a": read("exp(x) * exp(x) + where(x > y, 1, 2)"), "b": read("where(x > y, exp(x), maximum(i, 2))")}
    block = emit_opencl(outputs, "scalar", names={"x": "a0"})
    assert block.statements == ("const V t0 = wg_exp(a0);", "const M t1 = a0 > y;")
    assert block.values["a"] == "t0 * t0 + (t1 ? (V)(1) : (V)(2))"
    assert (block.functions, block.index_functions) == (("exp",), ("maximum",))
    assert emit_opencl(outputs, "scalar", names={"x": "a0"}) == block
    assert emit_opencl({"a": read("x * y + x")}, "scalar", wrap=True).values["a"] == "(V)((V)(x * y) + x)"
    assert emit_opencl({"a": read("r * r / 2")}, "row", local="q").values["a"] == "r * r / (C)(2)"
    with pytest.raises(ExprError, match="row_stages"):
        emit_opencl({"a": read("sum(x)", row=True)}, "scalar")


PRINTED = [
    "x / (1 + exp(-x)) * w + s",
    "where((x > y) & (i % 2 == 0) | m, x - (y - s), -x * r)",
    "where(m, i, 3) * 0.5 + i",
    "maximum(x, where(y != y, 0, y)) * (x > s) + (x <= y < 1)",
    "(not m) * x + to_value(logical_xor(m, x > 0)) / 3",
    "tanh(x) ** 3 / (x * x + 1) - -2 * -y + (i > 2 or x > 0)",
    "0.5 * x * (1 + tanh(0.7978845608 * (x + 0.044715 * x ** 3)))",
]

HEADER = """
#define FN(name, T, P, body) __attribute__((overloadable)) T wg_##name P { return body; }
#define WG_NOT(x) (~(x))
#define WG_CONVERT_(x, T) convert_##T(x)
#define WG_CONVERT(x, T) WG_CONVERT_(x, T)
FN(exp, V, (V a), exp(a))
FN(tanh, V, (V a), tanh(a))
FN(logistic, V, (V a), (V)(1) / ((V)(1) + exp(-a)))
FN(maximum, V, (V a, V b), fmax(a, b))
FN(mod, L, (L a, L b), a % b)
"""


@pytest.fixture(scope="module")
def queue():
    cl = pytest.importorskip("pyopencl")
    try:
        devices = [d for p in cl.get_platforms() for d in p.get_devices(cl.device_type.CPU)]
    except cl.LogicError:
        devices = []
    if not devices:
        pytest.skip("no OpenCL CPU device")
    return cl.CommandQueue(cl.Context(devices[:1]))


@pytest.mark.parametrize("dialect", ["scalar", "vector"])
def test_opencl_computes_what_numpy_does(queue, dialect):
    import pyopencl as cl

    lanes = 4  # a compiler's built-in functions of long16 may need registers that it does not enable for this processor
    exprs = [canonical(read(text)) for text in PRINTED]
    exprs += [slope for expr in exprs for slope in gradient({"out": expr}, {"out": const(1)}, ["x"]).values()]
    vector = dialect == "vector"
    types = {"V": "float4", "M": "int4", "L": "long4"} if vector else {"V": "float", "M": "int", "L": "long"}
    lines = [f"#define {macro} {type}" for macro, type in types.items()] + [HEADER]
    for number, expr in enumerate(exprs):
        block = emit_opencl({"out": expr}, dialect)
        lines.append(f"kernel void k{number}(global V *out, global V *x_, global V *y_, global V *w_, global L *i_,")
        lines.append("                global M *m_, float r, float s) {")
        mask = "m_[at] != 0" if vector else "m_[at]"
        lines.append("long at = get_global_id(0); V x = x_[at], y = y_[at], w = w_[at]; L i = i_[at];")
        lines.append(f"M m = {mask};")
        lines += [*block.statements, f"out[at] = {block.values['out']}; }}"]
    program = cl.Program(queue.context, "\n".join(lines)).build()
    rng = np.random.default_rng(11)
    host = {"x": rng.normal(size=64), "y": rng.normal(size=64), "w": rng.normal(size=64), "i": np.arange(64) % 7,
            "m": rng.uniform(size=64) > 0.5}  # fmt: skip
    dtypes = {"x": np.float32, "y": np.float32, "w": np.float32, "i": np.int64, "m": np.int32}
    host |= {key: host[key].astype(np.float32) for key in "xyw"}
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    buffers = [cl.Buffer(queue.context, flags, hostbuf=host[key].astype(dtypes[key])) for key in "xywim"]
    out = cl.Buffer(queue.context, cl.mem_flags.WRITE_ONLY, 64 * 4)
    for number, expr in enumerate(exprs):
        kernel = cl.Kernel(program, f"k{number}")
        kernel(queue, (64 // lanes if vector else 64,), None, out, *buffers, np.float32(0.75), np.float32(0.25))
        actual = np.empty(64, np.float32)
        cl.enqueue_copy(queue, actual, out)
        expected = value(expr, **host, r=0.75, s=0.25)
        np.testing.assert_allclose(actual, np.broadcast_to(expected, 64), rtol=2e-5, atol=2e-6, err_msg=to_text(expr))


def test_operator_precedence_survives_printing():
    """Nest every pair of operators both ways, in the output of each printer that Python can run."""
    rng = np.random.default_rng(13)
    x, y, z = rng.uniform(1, 3, (3, 9))
    for outer, inner in itertools.product(["+", "-", "*", "/", "//", "%", "<", "==", "and", "or"], repeat=2):
        for text in (f"x {outer} (y {inner} z)", f"(x {inner} y) {outer} z"):
            expr = read(text)
            assert read(to_text(expr)) is expr
            arrays = {"x": x, "y": y, "z": z}
            a, b = (f"x {inner} y", "z") if text.startswith("(") else ("x", f"y {inner} z")
            arrays |= {"a": np.asarray(value(read(a), **arrays)), "b": np.asarray(value(read(b), **arrays))}
            operands = {key: Operand("mask" if array.dtype == bool else "value") for key, array in arrays.items()}
            expected = value(parse(f"a {outer} b", operands=operands), **arrays)
            np.testing.assert_array_equal(value(expr, x=x, y=y, z=z), expected)


def product_without(x, *skipped):
    """Return the product of a row without the elements at the indices `skipped`; 0 if an index occurs twice."""
    return 0.0 if len(set(skipped)) < len(skipped) else np.prod(np.delete(x, skipped))


@pytest.mark.parametrize("zeros", range(5))
def test_three_derivatives_of_a_product_are_right_at_zeros(zeros):
    rng = np.random.default_rng(zeros)
    x, u, v, n = rng.uniform(0.5, 2, (2, 6)), rng.normal(size=(2, 6)), rng.normal(size=(2, 6)), range(6)
    for row in x:
        row[rng.permutation(6)[:zeros]] = 0
    operands = {**OPERANDS, "u": Operand(), "v": Operand()}
    q, outputs = np.array([[2.0], [-0.5]]), {}
    first = gradient({"out": read("prod(x)", row=True)}, {"out": variable("q", Operand("value", "row"))}, ["x"])["x"]
    second = gradient({"out": first}, {"out": variable("u", operands["u"])}, ["x", "q"])
    third = gradient({"out": second["x"]}, {"out": variable("v", operands["v"])}, ["x", "u"])
    outputs = {"first": first, "x": second["x"], "q": second["q"], "third": third["x"], "u": third["u"]}
    actual = run_rows(outputs, x=x, u=u, v=v, q=q)
    leave_out_1 = np.array([[product_without(r, i) for i in n] for r in x])
    leave_out_2 = np.array([[[product_without(r, i, j) for i in n] for j in n] for r in x])
    leave_out_3 = np.array([[[[product_without(r, i, j, k) for i in n] for j in n] for k in n] for r in x])
    assert_close = partial(np.testing.assert_allclose, rtol=1e-12, atol=1e-13)
    assert_close(actual["first"], q * leave_out_1)
    assert_close(actual["q"][:, 0], np.einsum("ri,ri->r", u, leave_out_1))
    assert_close(actual["x"], q * np.einsum("ri,rji->rj", u, leave_out_2))
    assert_close(actual["u"], q * np.einsum("ri,rji->rj", v, leave_out_2))
    assert_close(actual["third"], q * np.einsum("rkji,ri,rj->rk", leave_out_3, u, v))
    assert size(outputs.values()) < 600
