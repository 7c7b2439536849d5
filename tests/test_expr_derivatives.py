"""Check derivatives of expressions against central differences."""

from dataclasses import replace
from importlib import import_module

import numpy as np
import pytest
import scipy.special
from expr_operands import G, read, value
from hypothesis import given, settings
from hypothesis import strategies as st

from weftgrad.codegen.expr import (
    ExprError,
    Operand,
    call,
    canonical,
    const,
    free_names,
    functions,
    gradient,
    parse,
    size,
    to_text,
)


def derived(text, wrt="x", order=1, **options):
    expr = read(text, **options)
    for _ in range(order):
        expr = gradient({"out": expr}, {"out": const(1)}, [wrt])[wrt]
    return expr


SMOOTH = {
    "log": (0.2, 3), "log2": (0.2, 3), "log10": (0.2, 3), "log1p": (-0.8, 3), "sqrt": (0.2, 3), "rsqrt": (0.2, 3),
    "asin": (-0.9, 0.9), "acos": (-0.9, 0.9), "atanh": (-0.9, 0.9), "erfinv": (-0.9, 0.9), "acosh": (1.2, 4),
    "tan": (-1.2, 1.2), "reciprocal": (0.2, 3), "lgamma": (0.3, 4), "digamma": (0.3, 4), "trigamma": (0.3, 4),
    "abs": (0.1, 3), "ndtri": (0.05, 0.95),
    **dict.fromkeys(("bessel_y0", "bessel_y1", "bessel_k0", "bessel_k1", "bessel_k0e", "bessel_k1e"), (0.3, 4)),
}  # fmt: skip

UNARY = [f for f in functions().values() if len(f.args) == 1 and f.grad and f.takes[0] in ("value", "number")]
UNARY = [f.name for f in UNARY if not f.row]


@pytest.mark.parametrize("fn", UNARY)
def test_unary_derivatives_match_differences(fn):
    low, high = SMOOTH.get(fn, (-2.0, 2.0))
    x = np.linspace(low, high, 23) + 1e-3
    h = 1e-5
    expr = read(f"{fn}(x)")
    slope = (value(expr, x=x + h) - value(expr, x=x - h)) / (2 * h)
    np.testing.assert_allclose(value(derived(f"{fn}(x)"), x=x), slope, rtol=2e-7, atol=1e-8)


@pytest.mark.parametrize(
    "text",
    ["x * y", "x / y", "x - y", "x + y", "x ** y", "fmod(x, y)", "x % y", "hypot(x, y)", "atan2(x, y)", "maximum(x, y)",
     "minimum(x, y)", "where(x > y, x, y * y)", "copysign(x, y)"],
)  # fmt: skip
def test_binary_derivatives_match_differences(text):
    rng = np.random.default_rng(3)
    x, y = rng.uniform(0.3, 3, 40), rng.uniform(0.3, 3, 40)
    h = 1e-6
    expr = read(text)
    grads = gradient({"out": expr}, {"out": G}, ["x", "y"])
    for wrt, (dx, dy) in {"x": (h, 0), "y": (0, h)}.items():
        slope = (value(expr, x=x + dx, y=y + dy) - value(expr, x=x - dx, y=y - dy)) / (2 * h)
        actual = value(grads[wrt], x=x, y=y, g=2.0) if wrt in grads else 0 * x
        np.testing.assert_allclose(actual, 2 * slope, rtol=1e-6, atol=1e-7)


def test_every_rule_covers_its_function():
    for function in functions().values():
        for rule in (function.grad or {}).values():
            operands = {arg: Operand("mask" if takes == "mask" else "value")
                        for arg, takes in zip(function.args, function.takes, strict=True)}  # fmt: skip
            assert "g" in free_names(parse(rule, operands={**operands, "y": Operand(), "g": Operand()}))


@pytest.mark.parametrize(
    ("text", "x", "expected"),
    [
        ("where(x > 0, x, 0)", 0.0, 0.0),
        ("maximum(x, 0)", 0.0, 0.5),
        ("minimum(x, 0)", 0.0, 0.5),
        ("abs(x)", 0.0, 0.0),
        ("x ** s", 0.0, 0.0),
        ("pow(x, 3)", -2.0, 12.0),
        ("pow(x, 2.5)", 0.0, 0.0),
        ("pow(x, 0)", 0.0, None),
        ("hypot(x, 0)", 0.0, 0.0),
    ],
)
def test_subgradients_at_kinks(text, x, expected):
    grad = gradient({"out": read(text)}, {"out": G}, ["x"]).get("x")
    if expected is None:
        assert grad is None
    else:
        assert value(grad, x=np.array(x), g=1.0, s=0.0) == expected


def test_power_by_its_exponent():
    grad = gradient({"out": read("pow(x, y)")}, {"out": G}, ["y"])["y"]
    x, y = np.array([0.0, 0.0, 2.0, -2.0]), np.array([0.0, 2.0, 3.0, 2.0])
    np.testing.assert_allclose(value(grad, x=x, y=y, g=1.0), [0, 0, 8 * np.log(2), np.nan])


STABLE = {
    "1 / (1 + exp(-x))": (0, 0),
    "log(1 + exp(x))": (0, 1),
    "tanh(x)": (0, 0),
    "logistic(logistic(x))": (0, 0),
    "1 / (1 + exp(-(1 / (1 + exp(-x)))))": (0, 0),
    "0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x ** 3)))": (0, 1),
    "0.5 * x * (1 + erf(x / sqrt(2)))": (0, 1),
    "x / (1 + exp(-x))": (0, 1),
    "x * tanh(log(1 + exp(x)))": (0, 1),
    "where(x > 0, x, exp(x) - 1)": (0, 1),
    "where(x > 0, sqrt(x), -sqrt(-x))": (0.05, 0.05),
    "log(1 / (1 + exp(-x)))": (1, 0),
}


@pytest.mark.parametrize(("text", "ends"), STABLE.items())
@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_are_finite_far_out(text, ends, order):
    # In single precision exp(100) is infinite.
    x = np.array([-100, 100], np.float32)
    slope = value(derived(text, order=order), x=x)
    if order == 1:
        np.testing.assert_allclose(slope, ends, atol=1e-6)
    assert np.isfinite(slope).all()


@pytest.mark.parametrize("text", STABLE)
@pytest.mark.parametrize("order", [1, 2, 3])
def test_higher_derivatives_match_differences_and_stay_small(text, order):
    x = np.linspace(-2.5, 2.5, 16)
    lower = read(text) if order == 1 else derived(text, order=order - 1)
    expr = derived(text, order=order)
    h = 1e-5
    slope = (value(lower, x=x + h) - value(lower, x=x - h)) / (2 * h)
    np.testing.assert_allclose(value(expr, x=x), slope, rtol=1e-6, atol=1e-7)
    assert size([expr]) < 200


def test_a_branch_not_taken_cannot_spoil_the_gradient():
    slope = derived("where(x > 0, log(x) * exp(x), exp(exp(-x)) + x)")
    assert np.isfinite(value(slope, x=np.array([-1.0, 50.0]))).all()


def test_missing_seeds_and_unused_inputs():
    outputs = {"a": read("x * y"), "b": read("y * z")}
    grads = gradient(outputs, {"b": G}, ["x", "y", "z"])
    assert set(grads) == {"y", "z"}
    assert gradient(outputs, {}, ["x"]) == {}
    assert gradient({"a": read("floor(x) + (x > 0) + detach(x)")}, {"a": G}, ["x"]) == {}
    grad_y = gradient(outputs, {"a": G, "b": read("s")}, ["y"])["y"]
    assert to_text(grad_y) in ("g * x + s * z", "s * z + g * x")


def test_a_function_without_derivative_is_named(monkeypatch):
    table = {**functions(), "digamma": replace(functions()["digamma"], grad=None)}
    for module in ("derive", "vocabulary"):
        monkeypatch.setattr(import_module(f"weftgrad.codegen.expr.{module}"), "functions", lambda: table)
    with pytest.raises(ExprError, match="digamma has no derivative"):
        derived("lgamma(x)", order=2)
    assert gradient({"out": read("digamma(x) * y")}, {"out": G}, ["y"])["y"] is read("g * digamma(x)")


def test_the_gamma_function_derives_to_any_order():
    x = np.array([0.3, 1.0, 2.5, 7.0])
    for order in range(1, 7):
        expected = scipy.special.polygamma(order - 1, x)
        np.testing.assert_allclose(value(derived("lgamma(x)", order=order), x=x), expected, rtol=1e-12)
    assert derived("polygamma(s, x)") is canonical(read("polygamma(s + 1, x)"))
    assert gradient({"out": read("polygamma(y, x)")}, {"out": G}, ["y"]) == {}


def test_gradients_of_deep_and_shared_expressions_are_linear_in_size():
    expr = read("x")
    for _ in range(3000):
        expr = call("sin", call("mul", expr, expr))
    assert size([gradient({"out": expr}, {"out": G}, ["x"])["x"]]) < 40_000


LEAVES = st.sampled_from(["x", "y", "0.7", "2", "s"])

TEMPLATES = {
    1: ["sin({})", "tanh({})", "logistic({})", "softplus({})", "-({})", "exp(-square({}))", "atan({})", "({}) ** 2",
        "({}) ** 3", "erf({})", "log(2 + sin({}))", "asinh({})", "1 / (1 + exp({}))"],
    2: ["({}) + ({})", "({}) * ({})", "({}) - ({})", "({}) / (2 + cos({}))", "hypot(1 + square({}), {})",
        "where(x > y, {}, {})", "atan2({}, 2 + sin({}))"],
}  # fmt: skip


def combine(children):
    unary = st.tuples(st.sampled_from(TEMPLATES[1]), children).map(lambda t: t[0].format(t[1]))
    binary = st.tuples(st.sampled_from(TEMPLATES[2]), children, children).map(lambda t: t[0].format(*t[1:]))
    return unary | binary


@settings(max_examples=150, deadline=None)
@given(st.recursive(LEAVES, combine, max_leaves=8))
def test_gradients_of_random_expressions(text):
    expr = read(text)
    assert read(to_text(expr)) is expr
    x, y = np.array([0.31, -0.83, 1.27, -1.9]), np.array([0.77, 0.2, -0.45, 0.9])
    grads = gradient({"out": expr}, {"out": const(1)}, ["x", "y", "s"])
    h = 1e-5
    args = {"x": x, "y": y, "s": 0.6}
    for wrt in args:
        slope = (value(expr, **{**args, wrt: args[wrt] + h}) - value(expr, **{**args, wrt: args[wrt] - h})) / (2 * h)
        scale = 1 + np.abs(value(expr, **args)).max() + np.abs(slope).max()
        actual = value(grads[wrt], **args) if wrt in grads else 0.0
        assert np.abs(actual - slope).max() <= 1e-6 * scale**2
