"""Check expressions as they are printed for the Triton target, and their values in the interpreter."""

import numpy as np
import pytest
from triton_math_running import (
    FLOATS,
    INTEGERS,
    TARGETS,
    assert_same_bits,
    compile_kernel,
    interpret,
    kernel_text,
    pairs,
    wrap,
)

from weftgrad.codegen import expr

pytest.importorskip("triton")


@pytest.fixture(autouse=True)
def quiet():
    with np.errstate(all="ignore"):
        yield


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
