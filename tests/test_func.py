"""Check functions of functions: derivatives, their nesting, what they record, maps over slices, errors."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.func import (
    functional_call,
    grad,
    grad_and_value,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    linearize,
    stack_module_state,
    vjp,
    vmap,
)

X = wg.tensor([0.3, -0.7, 1.9])


def test_gradients_of_nested_containers() -> None:
    parameters = {"weight": wg.tensor([1.0, 2.0, 3.0]), "rest": (wg.tensor(2.0), [wg.ones(2)])}

    def loss(parameters: dict[str, Any], x: wg.Tensor, scale: float = 1.0) -> wg.Tensor:
        bias, (vector,) = parameters["rest"]
        return ((parameters["weight"] * x).sum() * bias + vector.sum() ** 2) * scale

    gradient, value = grad_and_value(loss)(parameters, X, scale=2.0)
    assert value.item() == pytest.approx(2 * (2 * (0.3 - 1.4 + 5.7) + 4))
    np.testing.assert_allclose(gradient["weight"].numpy(), 4 * X.numpy(), 1e-6)
    assert gradient["rest"][0].item() == pytest.approx(2 * 4.6)
    assert gradient["rest"][1][0].tolist() == [8, 8]
    both = grad(loss, argnums=(0, 1))(parameters, X)
    assert isinstance(both, tuple)
    assert both[1].tolist() == [2, 4, 6]


def test_results_record_nothing_unless_something_outside_is_a_variable() -> None:
    def cube(x: wg.Tensor) -> wg.Tensor:
        return (x**3).sum()

    calls = [
        lambda x: grad(cube)(x), lambda x: grad_and_value(cube)(x)[1], lambda x: vjp(cube, x)[0],
        lambda x: vjp(cube, x)[1](wg.tensor(1.0))[0], lambda x: jvp(cube, (x,), (x,))[0],
        lambda x: jvp(cube, (x,), (x,))[1], lambda x: linearize(cube, x)[1](x), lambda x: jacrev(cube)(x),
        lambda x: jacfwd(cube)(x), lambda x: hessian(cube)(x),
    ]  # fmt: skip
    for call in calls:
        assert not call(X).requires_grad
        x = X.clone().requires_grad_()
        recorded = call(x)
        assert recorded.requires_grad
        with wg.no_grad():
            assert not call(x).requires_grad
        assert x.grad is None
    w = wg.tensor(3.0, requires_grad=True)
    result = grad(lambda x: (w * x).sum())(X)
    result.sum().backward()
    assert w.grad.item() == 3
    # An inner transform's variable has ended when the outer one returns.
    assert not grad(lambda x: x * grad(lambda y: y * y * x)(wg.tensor(3.0)))(wg.tensor(2.0)).requires_grad


def test_transforms_nest() -> None:
    x = wg.tensor(0.7, dtype=wg.float64)
    function = wg.sin
    for order, expected in enumerate([np.sin, np.cos, lambda v: -np.sin(v), lambda v: -np.cos(v), np.sin]):
        assert function(x).item() == pytest.approx(expected(0.7), abs=1e-12), order
        function = grad(function)
    # The inner derivative is by y; x in it is a constant of the inner, and the variable of the outer transform.
    assert grad(lambda x: x * grad(lambda y: y * y * x)(x))(wg.tensor(2.0)).item() == 24
    # Perturbations of nested transforms stay apart (Siskind and Pearlmutter 2005).
    assert grad(lambda x: x * grad(lambda y: x + y)(wg.tensor(1.0)))(wg.tensor(1.0)).item() == 1
    tangent = jvp(lambda x: jvp(lambda y: y * y * x, (x,), (wg.tensor(1.0),))[1], (wg.tensor(3.0),), (wg.tensor(1.0),))
    assert tangent[1].item() == 12
    third = jacfwd(jacrev(jacrev(lambda x: (x**3).sum())))(X)
    np.testing.assert_allclose(third.numpy(), 6 * np.eye(3)[:, :, None] * np.eye(3)[None], atol=1e-5)
    np.testing.assert_allclose(hessian(lambda x: x.exp().sum())(X).numpy(), np.diag(np.exp(X.numpy())), 1e-5)


def test_products_with_jacobians_agree() -> None:
    def function(a: wg.Tensor, b: wg.Tensor) -> dict[str, Any]:
        return {"product": a * b.sum(), "last": [a.sin(), b.exp().sum()]}

    a, b = X.double(), wg.tensor([0.5, 2.0], dtype=wg.float64)
    tangents = wg.tensor([1.0, -1.0, 2.0], dtype=wg.float64), wg.tensor([0.5, 3.0], dtype=wg.float64)
    output, tangent = jvp(function, (a, b), tangents)
    jacobian = jacrev(function, argnums=(0, 1))(a, b)
    for block, part in zip(
        (jacobian["product"], *jacobian["last"]), (tangent["product"], *tangent["last"]), strict=True
    ):  # fmt: skip
        expected = sum(j.numpy() @ t.numpy() for j, t in zip(block, tangents, strict=True))
        np.testing.assert_allclose(part.numpy(), expected, 1e-12)
    same_output, linear = linearize(function, a, b)
    assert wg.equal(same_output["product"], output["product"])
    for _ in range(2):
        assert wg.equal(linear(*tangents)["last"][0], tangent["last"][0])
    _, product = vjp(function, a, b)
    ones = {"product": wg.ones(3, dtype=wg.float64), "last": [wg.ones(3, dtype=wg.float64), wg.tensor(1.0)]}
    assert product(ones)[1].shape == (2,)
    _, square_product, aux = vjp(lambda x: (x * x, {"twice": x * 2}), a, has_aux=True)
    assert wg.equal(square_product(wg.ones(3, dtype=wg.float64))[0], aux["twice"])


def test_auxiliary_data_comes_along() -> None:
    def with_aux(x: wg.Tensor) -> tuple[wg.Tensor, Any]:
        return (x * x).sum(), {"x": x, "name": "data"}

    gradient, aux = grad(with_aux, has_aux=True)(X)
    assert aux["name"] == "data"
    assert not aux["x"].requires_grad
    assert wg.equal(gradient, 2 * X)
    assert grad_and_value(with_aux, has_aux=True)(X)[1][1]["name"] == "data"
    assert jacrev(with_aux, has_aux=True)(X)[1]["name"] == "data"
    assert jacfwd(with_aux, has_aux=True)(X)[1]["name"] == "data"
    assert jvp(with_aux, (X,), (X,), has_aux=True)[2]["name"] == "data"


def test_outputs_that_do_not_depend_on_an_argument_have_zero_derivatives() -> None:
    constant = wg.tensor(2.0)
    assert grad(lambda x: constant)(X).tolist() == [0, 0, 0]
    assert jacrev(lambda x: wg.ones(2))(X).shape == (2, 3)
    assert jvp(lambda x: constant, (X,), (X,))[1].item() == 0
    assert jacrev(lambda x: x[:0])(X).shape == (0, 3)
    with pytest.raises(RuntimeError, match="an output does not depend"):
        jvp(lambda x: constant, (X,), (X,), strict=True)


def test_maps_over_slices() -> None:
    matrices, vectors = wg.arange(24.0).reshape((4, 2, 3)), wg.arange(12.0).reshape((3, 4))
    result = vmap(wg.mv, in_dims=(0, 1))(matrices, vectors)
    np.testing.assert_allclose(result.numpy(), np.einsum("bij,jb->bi", matrices.numpy(), vectors.numpy()))
    assert vmap(wg.mv, in_dims=(0, None), out_dims=1)(matrices, wg.ones(3)).shape == (2, 4)
    named = vmap(lambda tree, k: {"sum": tree["a"] + k, "same": wg.ones(2)}, in_dims=({"a": 1, "b": None}, 0),
                 out_dims={"sum": -1, "same": None})  # fmt: skip
    outputs = named({"a": wg.ones(3, 4), "b": "text"}, wg.arange(4.0))
    assert outputs["sum"].tolist() == [[1, 2, 3, 4]] * 3
    assert outputs["same"].shape == (2,)
    assert vmap(lambda x, *, y: x + y)(wg.ones(2), y=wg.arange(2.0)).tolist() == [1, 2]
    assert vmap(vmap(lambda a, b: a * b, (None, 0)), (0, None))(wg.arange(2.0), wg.arange(3.0)).tolist() == [
        [0, 0, 0], [0, 1, 2]
    ]  # fmt: skip


def test_gradients_of_each_example() -> None:
    wg.manual_seed(0)
    model = wg.nn.Sequential(wg.nn.Linear(3, 4), wg.nn.Tanh(), wg.nn.Linear(4, 2))
    parameters = {name: p.detach() for name, p in model.named_parameters()}
    x, target = wg.randn(5, 3), wg.randint(0, 2, (5,))

    def loss(parameters: dict[str, wg.Tensor], x: wg.Tensor, target: wg.Tensor) -> wg.Tensor:
        output = functional_call(model, parameters, (x.unsqueeze(0),))
        return wg.nn.functional.cross_entropy(output, target.unsqueeze(0))

    gradients = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, target)
    for index in range(5):
        model.zero_grad()
        wg.nn.functional.cross_entropy(model(x[index : index + 1]), target[index : index + 1]).backward()
        for name, parameter in model.named_parameters():
            np.testing.assert_allclose(gradients[name][index].numpy(), parameter.grad.numpy(), 1e-5, 1e-6)


def test_an_ensemble_of_modules() -> None:
    models = [wg.nn.BatchNorm1d(3).eval() for _ in range(4)]
    for index, model in enumerate(models):
        model.running_mean += index
    parameters, buffers = stack_module_state(models)
    assert parameters["weight"].is_leaf
    assert parameters["weight"].requires_grad
    x = wg.randn(5, 3)
    outputs = vmap(lambda p, b: functional_call(models[0], (p, b), (x,)))(parameters, buffers)
    for output, model in zip(outputs, models, strict=True):
        np.testing.assert_allclose(output.detach().numpy(), model(x).detach().numpy(), 1e-5, 1e-6)
    with pytest.raises(ValueError, match="one class and one mode"):
        stack_module_state([models[0], wg.nn.BatchNorm1d(3)])


def test_random_numbers_in_maps() -> None:
    def noisy(x: wg.Tensor) -> wg.Tensor:
        return x + wg.rand(2)

    x = wg.zeros(3, 2)
    with pytest.raises(ValueError, match="draws random numbers"):
        vmap(noisy)(x)
    same, different = vmap(noisy, randomness="same")(x), vmap(noisy, randomness="different")(x)
    assert wg.equal(same[0], same[2])
    assert not wg.equal(different[0], different[2])
    assert not wg.equal(same, vmap(noisy, randomness="same")(x))


def test_torch_names_lead_here() -> None:
    program = """
        import torch
        from torch.func import functional_call, grad, vmap
        assert torch.vmap(torch.dot)(torch.ones(2, 3), torch.ones(2, 3)).tolist() == [3, 3]
        model = torch.nn.Linear(2, 1)
        parameters = dict(model.named_parameters())
        gradient = grad(lambda p, x: functional_call(model, p, (x,)).sum())(parameters, torch.ones(2))
        assert gradient["weight"].tolist() == [[1, 1]] and torch.func.hessian(torch.sum)(torch.ones(2)).shape == (2, 2)
    """
    source = "import weftgrad.torch_compat\n" + textwrap.dedent(program)
    result = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True, check=False)
    assert not result.returncode, result.stderr


def test_errors() -> None:
    def total(x: wg.Tensor) -> wg.Tensor:
        return x.sum()

    cases: list[tuple[Any, type[Exception], str]] = [
        (lambda: grad(lambda x: x)(X), RuntimeError, r"a tensor of shape \(\), not a tensor of 1 dimensions"),
        (lambda: grad(lambda x: 1.0)(X), RuntimeError, "not float"),
        (lambda: grad(total, has_aux=True)(X), RuntimeError, r"returns a tuple \(output, aux\)"),
        (lambda: grad(total, argnums=2)(X), RuntimeError, "argnums 2 for 1 positional"),
        (lambda: grad(total, argnums=(0, 0))(X), RuntimeError, "each argument once"),
        (lambda: grad(total)(wg.tensor([1, 2])), RuntimeError, "floating tensors, not of int64"),
        (lambda: grad(total)("text"), RuntimeError, "takes and returns tensors, not str"),
        (lambda: jacrev(lambda x: 1.0)(X), RuntimeError, "takes and returns tensors, not float"),
        (lambda: jvp(total, X, X), RuntimeError, "primals must be a tuple"),
        (lambda: jvp(total, (X,), (X, X)), RuntimeError, "must have the structure"),
        (lambda: jvp(total, (X,), (wg.ones(2),)), RuntimeError, r"must have shape \[3\], not \[2\]"),
        (lambda: vjp(total, X)[1](X), RuntimeError, r"must have shape \[\], not \[3\]"),
        (lambda: vmap(total)(X, in_dims=0), ValueError, "in_dims must be None"),
        (lambda: vmap(lambda a, b: a)(X, wg.ones(2)), ValueError, r"the sizes \[2, 3\] differ"),
        (lambda: vmap(total, in_dims=None), ValueError, "in_dims is an int or a tuple"),
        (lambda: vmap(total, in_dims=(None,))(X), ValueError, "no dimension to map over"),
        (lambda: vmap(total, in_dims=(0, 0))(X), ValueError, "do not have the structure"),
        (lambda: vmap(total, in_dims=1)(X), ValueError, "dimension 1 of a tensor of 1 dimensions"),
        (lambda: vmap(total)(X[:0]), ValueError, "size 0"),
        (lambda: vmap(lambda x: 1.0)(X), ValueError, "must return tensors, not float"),
        (lambda: vmap(total, randomness="some"), ValueError, "randomness is"),
    ]  # fmt: skip
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()


def test_the_package_has_vmap_as_torch_has():
    assert wg.vmap is wg.func.vmap
