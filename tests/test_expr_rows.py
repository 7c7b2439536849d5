"""Check expressions with reductions over rows: values, gradients, and the number of passes over a row."""

import numpy as np
import pytest
import scipy.special
from expr_operands import G, read, run_rows, value

from weftgrad.codegen import expr as language
from weftgrad.codegen.expr import (
    Operand,
    canonical,
    const,
    emit_opencl,
    gradient,
    parse,
    row_stages,
    size,
    to_text,
    variable,
)


def test_reductions_of_row_constants():
    assert read("sum(r)", row=True) is read("n * r", row=True)
    assert read("mean(3)", row=True) is read("n * 3 / n", row=True)
    assert read("max(s) + min(r)", row=True) is read("s + r")
    assert read("prod(2)", row=True) is read("pow(2, n)", row=True)


def normalise(x):
    return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 0.1)


ROWS = {
    "exp(x - max(x)) / sum(exp(x - max(x)))": lambda x, w: scipy.special.softmax(x, axis=1),
    "exp(x - detach(max(x))) / sum(exp(x - detach(max(x))))": lambda x, w: scipy.special.softmax(x, axis=1),
    "x - max(x) - log(sum(exp(x - max(x))))": lambda x, w: scipy.special.log_softmax(x, axis=1),
    "max(x) + log(sum(exp(x - max(x))))": lambda x, w: scipy.special.logsumexp(x, axis=1, keepdims=True),
    "(x - mean(x)) * rsqrt(mean((x - mean(x)) ** 2) + s) * w + w": lambda x, w: normalise(x) * w + w,
    "x * rsqrt(mean(x * x) + s) * w": lambda x, w: x / np.sqrt((x * x).mean(1, keepdims=True) + 0.1) * w,
    "sum(where(index < 3, x, 0))": lambda x, w: x[:, :3].sum(1, keepdims=True),
    "prod(x) / n": lambda x, w: x.prod(1, keepdims=True) / x.shape[1],
    "max(x) - min(x) * x": lambda x, w: x.max(1, keepdims=True) - x.min(1, keepdims=True) * x,
    "x * sum(x) * s + sum(s * x) * r": lambda x, w: (
        x * x.sum(1, keepdims=True) * 0.1 + 0.1 * x.sum(1, keepdims=True) * np.array([[0.5], [2.0], [-1.0]])
    ),
}

ROW_DATA = {
    "x": np.random.default_rng(5).normal(size=(3, 7)),
    "w": np.random.default_rng(6).uniform(0.5, 2, (1, 7)),
    "s": np.array(0.1),
    "r": np.array([[0.5], [2.0], [-1.0]]),
}


@pytest.mark.parametrize(("text", "expected"), ROWS.items())
def test_row_programs(text, expected):
    expr = canonical(read(text, row=True))
    actual = run_rows({"out": expr}, **ROW_DATA)["out"]
    np.testing.assert_allclose(actual, expected(ROW_DATA["x"], ROW_DATA["w"]), rtol=1e-12)
    np.testing.assert_allclose(value(expr, **ROW_DATA, n=7, index=np.arange(7)), actual, rtol=1e-12)


def sum_to_shape(grad, like):
    """Sum a gradient over the elements that share an element of the operand `like`."""
    if np.ndim(like) == 0:
        return np.sum(grad)
    axes = tuple(axis for axis in range(2) if np.shape(like)[axis] == 1 < np.shape(grad)[axis])
    return np.broadcast_to(np.sum(grad, axis=axes, keepdims=True), np.shape(like))


def check_gradients(expr, data, seed, tolerance, step=1e-6):
    grads = gradient({"out": expr}, {"out": seed}, list(data))
    results = run_rows(grads, **data, g=SEEDS["full"], q=SEEDS["row"])
    for wrt, operand in data.items():
        if wrt not in grads:
            continue
        actual = np.broadcast_to(results[wrt], ROW_DATA["x"].shape) if grads[wrt].scope == "column" else results[wrt]
        actual = sum_to_shape(actual, operand)
        slope = np.zeros(np.shape(operand))
        for index in np.ndindex(np.shape(operand)):
            ends = []
            for sign in (1, -1):
                shifted = np.array(operand, float)
                shifted[index] += sign * step
                out = run_rows({"out": expr}, **{**data, wrt: shifted}, g=SEEDS["full"], q=SEEDS["row"])["out"]
                ends.append(np.sum(out * SEEDS["row" if expr.scope == "row" else "full"]))
            slope[index] = (ends[0] - ends[1]) / (2 * step)
        np.testing.assert_allclose(actual, slope, rtol=tolerance, atol=tolerance)


SEEDS = {"full": np.random.default_rng(8).normal(size=(3, 7)), "row": np.random.default_rng(9).normal(size=(3, 1))}


@pytest.mark.parametrize("text", ROWS)
def test_row_gradients(text):
    expr = read(text, row=True)
    check_gradients(expr, ROW_DATA, variable("q", Operand("value", "row")) if expr.scope == "row" else G, 1e-7)


@pytest.mark.parametrize("text", list(ROWS)[:6])
def test_row_gradients_differentiate_again(text):
    expr = read(text, row=True)
    seed = variable("q", Operand("value", "row")) if expr.scope == "row" else G
    first = gradient({"out": expr}, {"out": seed}, ["x"])["x"]
    assert size([first]) < 80
    check_gradients(first, {k: ROW_DATA[k] for k in ("x", "w", "s", "r")}, G, 2e-6)


def test_scalars_used_by_elements_and_by_rows():
    # s gets gradient from every element and from every row; a row's part must not be added once per element.
    check_gradients(read("x * s + log(sum(x * x) + s) * r", row=True), ROW_DATA, G, 1e-7)
    q = variable("q", Operand("value", "row"))
    check_gradients(read("sum(x + s) + s", row=True), ROW_DATA, q, 1e-7)
    check_gradients(read("sum(x + w * s) * r", row=True), ROW_DATA, q, 1e-7)


def test_ties_of_a_row_share_and_zeros_of_a_product_count():
    x = np.array([[1.0, 3.0, 3.0], [0.0, 2.0, 5.0], [0.0, 0.0, 4.0]])
    q = variable("q", Operand("value", "row"))
    max_grad = gradient({"out": read("max(x)", row=True)}, {"out": q}, ["x"])["x"]
    product_grad = gradient({"out": read("prod(x)", row=True)}, {"out": q}, ["x"])["x"]
    slopes = run_rows({"top": max_grad, "product": product_grad}, x=x, q=np.ones((3, 1)))
    np.testing.assert_array_equal(slopes["top"], [[0, 0.5, 0.5], [0, 0, 1], [0, 0, 1]])
    np.testing.assert_array_equal(slopes["product"], [[9, 3, 3], [10, 0, 0], [0, 0, 0]])


def test_row_gradients_are_finite_far_out():
    x = np.array([[-100, 0, 100], [100, 100, 100], [-1e4, 1e4, 0]], np.float32)
    for text in list(ROWS)[:4]:
        expr = read(text, row=True)
        grad = gradient({"out": expr}, {"out": const(1)}, ["x"])["x"]
        assert np.isfinite(run_rows({"out": grad}, x=x)["out"]).all()


def test_row_programs_make_few_passes():
    normalised = read("(x - mean(x)) * rsqrt(mean((x - mean(x)) ** 2) + s) * w", row=True)
    forward = row_stages({"out": canonical(normalised)})
    assert [len(stage.reductions) for stage in forward.stages] == [1, 1]
    assert [to_text(let.expr) for stage in forward.stages for let in stage.lets] == ["r0 / n", "rsqrt(r1 / n + s)"]
    assert to_text(forward.outputs["out"]) == "(x - w0) * w1 * w"
    backward = row_stages(gradient({"out": normalised}, {"out": G}, ["x", "w"]))
    assert len(backward.stages) == 2
    assert not {"row_sum", "row_max"} & {
        node.fn for out in backward.outputs.values() for node in language.topological([out])
    }


def test_a_part_can_be_replaced_by_a_name():
    expr = read("tanh(x * y)")
    slope = gradient({"out": expr}, {"out": G}, ["x"])["x"]
    result_name = variable("out", Operand())
    assert to_text(language.rebuild([slope], {expr: result_name}.get)[slope]) == "g * (1 - out * out) * y"


def test_names_of_operands_are_left_alone():
    operands = {"r0": Operand(), "w0": Operand(), "t0": Operand()}
    expr = parse("exp(r0 - sum(w0) / 2) + exp(t0) * exp(t0)", operands=operands, row=True)
    program = row_stages({"out": expr})
    assert [reduction.name for reduction in program.stages[0].reductions] == ["r1"]
    assert [let.name for let in program.stages[0].lets] == ["w1"]
    assert emit_opencl(program.outputs, "scalar").statements == ("const V t1 = wg_exp(t0);",)
