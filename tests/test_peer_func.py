"""Compare functions of functions with PyTorch, if installed: values, structures, signatures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

torch = pytest.importorskip("torch")
# PyTorch's own calls warn.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is dep", "ignore:Attempted to insert a get_attr")

A, B = np.array([0.3, -0.7, 1.9]), np.array([[0.5, 2.0], [1.5, -1.0]])
CASES: dict[str, Callable[[Any, Any, Any], Any]] = {
    "grad": lambda f, a, b: f.grad(lambda a: a.sin().sum())(a),
    "grad by one of two": lambda f, a, b: f.grad(lambda a, b: a.sum() * (b * b).sum(), argnums=1)(a, b),
    "grad by the last": lambda f, a, b: f.grad(lambda a, b: a.sum() * (b * b).sum(), argnums=-1)(a, b),
    "grad by a tuple": lambda f, a, b: f.grad(lambda a, b: a.sum() * (b * b).sum(), argnums=(1, 0))(a, b),
    "grad by a tuple of one": lambda f, a, b: f.grad(lambda a: a.sum(), argnums=(0,))(a),
    "grad of a dict": lambda f, a, b: f.grad(lambda d: d["a"].sum() * (d["b"][0] ** 2).sum())({"a": a, "b": [b]}),
    "grad with data": lambda f, a, b: f.grad(lambda a: (a.sum(), a * 2), has_aux=True)(a),
    "grad and value": lambda f, a, b: f.grad_and_value(lambda a: (a**3).sum())(a),
    "grad and value with data": lambda f, a, b: f.grad_and_value(lambda a: ((a**3).sum(), (a, b)), has_aux=True)(a),
    "grad of grad": lambda f, a, b: f.grad(lambda a: (f.grad(lambda a: (a**3).sum())(a) ** 2).sum())(a),
    "vjp": lambda f, a, b: f.vjp(lambda a: a.exp(), a)[1](a),
    "vjp of two": lambda f, a, b: f.vjp(lambda a, b: (a * 2, b @ b), a, b)[1]((a, b)),
    "vjp of a dict": lambda f, a, b: f.vjp(lambda a: {"s": a * a}, a)[1]({"s": a}),
    "vjp with data": lambda f, a, b: f.vjp(lambda a: (a * a, a * 3), a, has_aux=True)[2],
    "jvp": lambda f, a, b: f.jvp(lambda a: (a.sin(), {"k": a.sum()}), (a,), (a,)),
    "jvp with data": lambda f, a, b: f.jvp(lambda a, b: (a.sum() * b, a * 2), (a, b), (a, b), has_aux=True),
    "linearize": lambda f, a, b: f.linearize(lambda a, b: (a.sin(), b @ b), a, b)[1](a, b),
    "jacrev": lambda f, a, b: f.jacrev(lambda a, b: (a * b.sum(), b.sum()), argnums=(0, 1))(a, b),
    "jacrev of a dict": lambda f, a, b: f.jacrev(lambda d: {"o": d["w"] * 2})({"w": a}),
    "jacrev with data": lambda f, a, b: f.jacrev(lambda a: (a * a, a + 1), has_aux=True)(a),
    "jacfwd": lambda f, a, b: f.jacfwd(lambda a, b: b @ b * a.sum(), argnums=1)(a, b),
    "jacfwd with data": lambda f, a, b: f.jacfwd(lambda a: (a * a, a + 1), has_aux=True)(a),
    "jacrev of jacfwd": lambda f, a, b: f.jacrev(f.jacfwd(lambda a: (a**3).sum()))(a),
    "hessian": lambda f, a, b: f.hessian(lambda a: (a**3).sum() * a[0])(a),
    "hessian by two": lambda f, a, b: f.hessian(lambda a, b: a.sum() ** 2 * (b * b).sum(), argnums=(0, 1))(a, b),
    "vmap": lambda f, a, b: f.vmap(lambda b, a: b * a.sum(), in_dims=(1, None), out_dims=1)(b, a),
    "vmap of grad": lambda f, a, b: f.vmap(f.grad(lambda b, a: (b * a[0]).sin().sum()), in_dims=(0, None))(b, a),
    "vmap of a dict": lambda f, a, b: f.vmap(lambda d: {"s": d["b"] * 2, "t": d["b"].sum()})({"b": b}),
    "vmap of jacrev": lambda f, a, b: f.vmap(f.jacrev(lambda b: b * b))(b),
    "grad of vmap": lambda f, a, b: f.grad(lambda b: f.vmap(lambda b: b.sin())(b).sum())(b),
}


def compare(mine: Any, theirs: Any) -> None:
    if isinstance(theirs, tuple | list):
        assert type(mine) is type(theirs)
        for a, b in zip(mine, theirs, strict=True):
            compare(a, b)
    elif isinstance(theirs, dict):
        assert [*mine] == [*theirs]
        for key in theirs:
            compare(mine[key], theirs[key])
    else:
        assert tuple(mine.shape) == tuple(theirs.shape)
        assert theirs.requires_grad or not mine.requires_grad
        np.testing.assert_allclose(mine.detach().numpy(), theirs.detach().numpy(), 1e-10, 1e-12)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("requires_grad", [False, True])
def test_results(name: str, requires_grad: bool) -> None:
    own = [wg.tensor(v, dtype=wg.float64, requires_grad=requires_grad) for v in (A, B)]
    reference = [torch.tensor(v, requires_grad=requires_grad) for v in (A, B)]
    compare(CASES[name](wg.func, *own), CASES[name](torch.func, *reference))


def test_signatures() -> None:
    for name in wg.func.__all__:
        own, reference = (inspect.signature(getattr(m, name)).parameters.values() for m in (wg.func, torch.func))
        assert [(p.name, p.kind, p.default) for p in own] == [(p.name, p.kind, p.default) for p in reference], name


def test_missing_names() -> None:
    names = {name for name in dir(torch.func) if not name.startswith("_")}
    assert names - {*wg.func.__all__} == {
        "debug_unwrap", "functionalize", "rearrange", "replace_all_batch_norm_modules_"
    }  # fmt: skip
