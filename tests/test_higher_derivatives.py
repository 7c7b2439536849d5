"""Check second and higher derivatives: of piecewise linear functions, the gamma family and products with zeros."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from itertools import combinations
from typing import Any

import numpy as np
import pytest
import scipy.special

import weftgrad as wg
from weftgrad.codegen.loader import op_from_mapping
from weftgrad.codegen.render import Generated
from weftgrad.nn import functional as F
from weftgrad.runtime import dispatch
from weftgrad.runtime.derive import register_generated
from weftgrad.runtime.errors import ArgumentError, FreedGraphError, GradientError
from weftgrad.runtime.records import registry

VALUES = [-2.0, -0.5, 0.3, 1.7, 2.5]


def leaf(values: Any, dtype: Any = wg.float64) -> Any:
    return wg.tensor(values, dtype=dtype, device="cpu", requires_grad=True)


# Zero everywhere ------------------------------------------------------------------------------------------------------

# PyTorch gives these a second derivative of zeros: the first depends on the input, but is piecewise constant.
FLAT: dict[str, Callable[[Any], Any]] = {
    "relu": wg.relu,
    "abs": abs,
    "leaky_relu": F.leaky_relu,
    "hardtanh": F.hardtanh,
    "relu6": F.relu6,
    "softshrink": F.softshrink,
    "copysign": lambda x: wg.copysign(x, -x.detach()),
    "a function of a function": lambda x: wg.relu(x * 2) + 1,
    "hinge": lambda x: wg.relu(1 - x).mean(),
    "prelu": lambda x: F.prelu(x, wg.tensor([0.25], dtype=wg.float64, device="cpu")),
    "norm of order 1": lambda x: x.norm(1),
    "l1_loss": lambda x: F.l1_loss(x, wg.zeros(5, dtype=wg.float64, device="cpu")),
}
# The first derivative of these is a constant, which has no graph.
LINEAR: dict[str, Callable[[Any], Any]] = {
    "times a number": lambda x: 3 * x,
    "times 0": lambda x: x * 0,
    "sum": lambda x: x.sum(),
    "floor": wg.floor,
    "sign": wg.sign,
    "an index": lambda x: x[1:3],
    "the largest, with its index": lambda x: x.max(0)[0],
    "neg": lambda x: -x,
}


def first_derivative(func: Callable[[Any], Any], x: Any) -> Any:
    (grad,) = wg.autograd.grad(func(x).sum(), x, create_graph=True)
    return grad


@pytest.mark.parametrize("name", FLAT)
def test_a_flat_derivative_has_a_derivative_of_zeros(name: str) -> None:
    x = leaf(VALUES)
    first = first_derivative(FLAT[name], x)
    assert first.requires_grad
    (second,) = wg.autograd.grad(first.sum(), x)
    assert second.dtype is wg.float64
    np.testing.assert_array_equal(second.numpy(), np.zeros(5))


@pytest.mark.parametrize("name", ["relu", "hardtanh", "a function of a function"])
def test_backward_stores_zeros_too(name: str) -> None:
    x = leaf(VALUES)
    first_derivative(FLAT[name], x).sum().backward()
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(5))
    grad_before = x.grad
    first_derivative(FLAT[name], x).sum().backward()
    assert x.grad is grad_before
    hook_grads = []
    y = leaf(VALUES)
    y.register_hook(hook_grads.append)
    first = first_derivative(wg.relu, y)
    hook_grads.clear()
    first.sum().backward()
    np.testing.assert_array_equal(hook_grads[0].numpy(), np.zeros(5))


@pytest.mark.parametrize("name", LINEAR)
def test_a_constant_derivative_has_no_gradient(name: str) -> None:
    x = leaf(VALUES)
    first = first_derivative(LINEAR[name], x)
    assert not first.requires_grad
    with pytest.raises(GradientError, match="does not require grad"):
        wg.autograd.grad(first.sum(), x)


def test_zeros_reach_results_on_the_way() -> None:
    x = leaf([[1.0, -2.0, 3.0], [0.5, 2.0, -1.0]])
    values, _ = (x * 2).max(1)
    halves = values.view(2)
    first = first_derivative(wg.relu, halves)
    grads = wg.autograd.grad(first.sum(), [halves, values, x])
    assert [tuple(f.shape) for f in grads] == [(2,), (2,), (2, 3)]
    assert all(not f.numpy().any() for f in grads)


def test_zero_filling_leaves_other_gradients_alone() -> None:
    """Zeros replace only missing gradients: they are not added to others, and unused inputs still get none."""
    x, w, unused = leaf(VALUES), leaf([1.0, 2, 3, 4, 5]), leaf(1.0)
    first = first_derivative(lambda t: wg.relu(t) * w, x)
    grad_x, grad_w, grad_unused = wg.autograd.grad(first.sum(), [x, w, unused], allow_unused=True)
    np.testing.assert_array_equal(grad_x.numpy(), np.zeros(5))
    np.testing.assert_array_equal(grad_w.numpy(), [0, 0, 1, 1, 1])
    assert grad_unused is None
    with pytest.raises(GradientError, match="not used"):
        wg.autograd.grad(first_derivative(lambda t: wg.relu(t) * w, x).sum(), unused)
    (grad_sum,) = wg.autograd.grad(first_derivative(lambda t: wg.relu(t) + t * t, x).sum(), x)
    np.testing.assert_array_equal(grad_sum.numpy(), np.full(5, 2.0))


def test_a_custom_function_that_returns_none_gives_none() -> None:
    class Nothing(wg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    x = leaf(VALUES)
    assert wg.autograd.grad(Nothing.apply(x).sum(), x, allow_unused=True) == (None,)


def test_the_graph_behind_a_flat_gradient_is_freed_with_the_rest() -> None:
    x = leaf(VALUES)
    inner = x * x
    first = first_derivative(wg.relu, inner)
    first.sum().backward(retain_graph=True)
    np.testing.assert_array_equal(x.grad.numpy(), np.zeros(5))
    first.sum().backward()
    with pytest.raises(FreedGraphError):
        inner.sum().backward()


# lgamma, digamma, polygamma -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_lgamma_has_derivatives_of_every_order(dtype: str) -> None:
    points = np.array([-2.75, -1.25, 0.25, 1.0, 2.5, 7.0, 40.0])
    x = leaf(points, getattr(wg, dtype))
    y = wg.lgamma(x)
    for order in range(6):
        (y,) = wg.autograd.grad(y.sum(), x, create_graph=True)
        expected = scipy.special.polygamma(order, points)
        np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-6 if dtype == "float32" else 2e-12)


def test_derivatives_of_the_gamma_family_match_differences() -> None:
    x = leaf([[0.6, 1.5, 3.0], [-0.4, -1.6, 12.0]])
    functions: list[Callable[[Any], Any]] = [wg.lgamma, wg.digamma, lambda t: wg.polygamma(3, t)]
    for func in functions:
        assert wg.autograd.gradcheck(func, [x], rtol=1e-5)
        assert wg.autograd.gradgradcheck(func, [x], rtol=1e-5)


def test_polygamma_of_any_dtype_and_order() -> None:
    values = np.array([0.3, 1.0, 2.5, 17.0])
    for n in (0, 1, 2, 7):
        expected = scipy.special.polygamma(n, values)
        x = wg.tensor(values, dtype=wg.float64, device="cpu")
        np.testing.assert_allclose(wg.polygamma(n, x).numpy(), expected, rtol=1e-14)
        np.testing.assert_allclose(wg.special.polygamma(n, x.to(wg.float32)).numpy(), expected, rtol=2e-6)
        np.testing.assert_allclose(x.polygamma(n).numpy(), expected, rtol=1e-14)
        np.testing.assert_allclose(x.clone().polygamma_(n).numpy(), expected, rtol=1e-14)
        if n < 3:
            np.testing.assert_allclose(x.to(wg.float16).polygamma(n).numpy(), expected, rtol=3e-3, atol=2e-3)
    of_integers = wg.polygamma(1, wg.tensor([1, 2], device="cpu"))
    assert of_integers.dtype is wg.float32
    np.testing.assert_allclose(of_integers.numpy(), scipy.special.polygamma(1, [1, 2]), rtol=1e-6)


@pytest.mark.parametrize("n", [-1, 2.0, True, "1"])
def test_polygamma_of_no_order(n: Any) -> None:
    with pytest.raises(ArgumentError, match="polygamma: n"):
        wg.polygamma(n, leaf([1.0]))
    with pytest.raises(ArgumentError, match="polygamma: n"):
        leaf([1.0]).detach().polygamma_(n)


# Products with zeros --------------------------------------------------------------------------------------------------


def product_derivatives(x: Any, seeds: Sequence[Any]) -> list[Any]:
    """Return the product of one row and its derivatives, each contracted with the next of `seeds`.

    A derivative of order n is a sum of explicit products, over all ways to leave out n different elements.
    """
    derivatives = [np.prod(x)]
    for order in range(1, len(seeds) + 2):
        total = np.zeros(len(x))
        for left_out in combinations(range(len(x)), order):
            product = np.prod(np.delete(x, left_out))
            for last_index in left_out:
                earlier = [p for p in left_out if p != last_index]
                total[last_index] += product * permanent([[seed[p] for p in earlier] for seed in seeds[: order - 1]])
        derivatives.append(total)
    return derivatives


def permanent(rows: list[list[float]]) -> float:
    """Return the permanent of a square matrix: the determinant with plus signs only."""
    if not rows:
        return 1.0
    return sum(a * permanent([r[:i] + r[i + 1 :] for r in rows[1:]]) for i, a in enumerate(rows[0]))


@cache
def row_product() -> Any:
    """Register an op with `prod` in a rowwise expression, as a user could write it."""
    generated = Generated(reserved_names=registry)
    entry = {
        "op": "row_product_probe(input, dim: int = -1)",
        "kind": "rowwise",
        "dtypes": "float",
        "out": "prod(input)",
    }
    generated.add(op_from_mapping({**entry, "doc": "The product of the row."}), 2, is_spec_op=True)
    register_generated(generated)
    return registry["row_product_probe"]


def prod_by_reduction(x: Any) -> Any:
    return wg.prod(x, -1)


def prod_by_rowwise(x: Any) -> Any:
    return dispatch.call(row_product(), (x,), (-1,))


@pytest.mark.parametrize("zeros", range(5))
@pytest.mark.parametrize("func", [prod_by_reduction, prod_by_rowwise])
def test_derivatives_of_a_product_at_zeros(func: Callable[[Any], Any], zeros: int) -> None:
    rng = np.random.default_rng(zeros)
    values, seeds = rng.uniform(0.5, 2, (3, 6)), rng.normal(size=(3, 3, 6))
    for row in values:
        row[rng.permutation(6)[:zeros]] = 0
    orders = 4 if func is prod_by_reduction else 3
    expected = [product_derivatives(row, seeds[:, r]) for r, row in enumerate(values)]
    x = leaf(values)
    y = func(x)
    for order in range(orders + 1):
        expected_at_order = np.array([derivatives[order] for derivatives in expected])
        np.testing.assert_allclose(
            y.detach().numpy(), expected_at_order, rtol=1e-11, atol=1e-12, err_msg=f"order {order}"
        )
        if order < orders:
            seed = wg.tensor(seeds[order - 1] if order else np.ones(3), device="cpu")
            (y,) = wg.autograd.grad((y * seed).sum(), x, create_graph=True)


def test_a_row_product_has_no_fourth_derivative() -> None:
    """The rowwise formula would be wrong at four zeros, so it has no fourth derivative; `wg.prod` has one."""
    x = leaf(np.zeros((2, 5)))
    y = prod_by_rowwise(x)
    for _ in range(3):
        (y,) = wg.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(GradientError, match="no gradient is known"):
        wg.autograd.grad(y.sum(), x)


@pytest.mark.parametrize("dim", [None, 0, 1, 2, (0, 2), (1, 2), ()])
@pytest.mark.parametrize("keepdim", [False, True])
def test_second_derivatives_of_a_product_over_any_dimensions(dim: Any, keepdim: bool) -> None:
    rng = np.random.default_rng(4)
    for zeros in (0, 1, 4):
        values = rng.uniform(0.5, 2, (2, 3, 4))
        values.reshape(-1)[rng.permutation(24)[:zeros]] = 0
        for base in (leaf(values), leaf(values.transpose(2, 0, 1).copy()).permute(1, 2, 0).detach()):
            x = base.requires_grad_(True)
            assert wg.autograd.gradgradcheck(lambda t: wg.prod(t, dim, keepdim), [x])
    (seed,) = rng.normal(size=(1, 2, 3, 4))
    values = rng.uniform(0.5, 2, (2, 3, 4))
    values[0, 1, 1] = values[1, 2, 3] = values[1, 1, 2] = 0
    x = leaf(values)
    (first,) = wg.autograd.grad(wg.prod(x, dim, keepdim).sum(), x, create_graph=True)
    (second,) = wg.autograd.grad((first * wg.tensor(seed, device="cpu")).sum(), x)
    axes = (0, 1, 2) if dim in (None, ()) else (dim,) if isinstance(dim, int) else dim
    reduced_last = np.moveaxis(values, axes, range(-len(axes), 0))
    rows, seeds = (np.moveaxis(a, axes, range(-len(axes), 0)).reshape(-1, np.prod([a.shape[i] for i in axes]))
                   for a in (values, seed))  # fmt: skip
    for actual, order in ((first.detach(), 1), (second, 2)):
        expected = np.array([first_two_product_derivatives(r, s)[order - 1] for r, s in zip(rows, seeds, strict=True)])
        expected = np.moveaxis(expected.reshape(reduced_last.shape), range(-len(axes), 0), axes)
        np.testing.assert_allclose(actual.numpy(), expected, rtol=1e-11, atol=1e-13)


def first_two_product_derivatives(x: Any, seed: Any) -> tuple[Any, Any]:
    """Return the first two results of `product_derivatives`, faster for long rows."""
    n = range(len(x))
    first = np.array([np.prod(np.delete(x, i)) for i in n])
    second = np.array([sum(seed[j] * np.prod(np.delete(x, (i, j))) for j in n if j != i) for i in n])
    return first, second


def test_second_derivatives_of_products_of_other_dtypes() -> None:
    values = np.array([[0.5, 0, 2, 0, 3], [1, 2, 0, 4, 0.25]])
    for dtype, rtol in (("float16", 1e-3), ("bfloat16", 1e-2), ("float32", 1e-6)):
        x = leaf(values, getattr(wg, dtype))
        (first,) = wg.autograd.grad(x.prod(1).sum(), x, create_graph=True)
        (second,) = wg.autograd.grad(first.sum(), x)
        assert (first.dtype, second.dtype) == (x.dtype, x.dtype)
        expected = np.array([first_two_product_derivatives(r, np.ones(5))[1] for r in values])
        np.testing.assert_allclose(second.to(wg.float64).numpy(), expected, rtol=rtol)
    x = leaf(values, wg.float32)
    (first,) = wg.autograd.grad(x.prod(1, dtype=wg.float64).sum(), x, create_graph=True)
    np.testing.assert_allclose(wg.autograd.grad(first.sum(), x)[0].numpy(), expected, rtol=1e-6)
    empty = leaf(np.zeros((0, 3)))
    (first,) = wg.autograd.grad(empty.prod(0).sum(), empty, create_graph=True)
    assert tuple(first.shape) == (0, 3)


# Activations at infinity and NaN: values and gradients as in PyTorch. At NaN some of PyTorch's gradients depend on the
# element's position in the tensor; these are those of its vectorised float32 code.
ENDS: dict[str, tuple[Callable[[Any], Any], list[float], list[float]]] = {
    # at -inf, inf and NaN
    "hardswish": (F.hardswish, [np.nan, np.inf, np.nan], [0, 1, 1]),
    "relu6": (F.relu6, [0, 6, np.nan], [0, 0, 0]),
    "hardtanh": (F.hardtanh, [-1, 1, np.nan], [0, 0, 0]),
    "hardsigmoid": (F.hardsigmoid, [0, 1, np.nan], [0, 0, 0]),
    "mish": (F.mish, [np.nan, np.inf, np.nan], [np.nan, np.nan, np.nan]),
    "silu": (F.silu, [np.nan, np.inf, np.nan], [np.nan, np.nan, np.nan]),
    "softplus": (F.softplus, [0, np.inf, np.nan], [0, 1, np.nan]),
    "gelu": (F.gelu, [np.nan, np.inf, np.nan], [np.nan, np.nan, np.nan]),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ENDS)
def test_activations_at_infinity(name: str, dtype: str) -> None:
    func, values, slopes = ENDS[name]
    x = leaf([-np.inf, np.inf, np.nan], getattr(wg, dtype))
    y = func(x)
    np.testing.assert_array_equal(y.detach().numpy(), values)
    np.testing.assert_array_equal(wg.autograd.grad(y.sum(), x)[0].numpy(), slopes)
