"""Check gradients through views, their bases and in-place writes.

A write through one tensor changes the elements, and the history, of every tensor that shares its memory. Backward may
start at any of them and must return the gradients of the current elements. Expected values are derived by hand from the
assignments: for example, `y[0] = 5` makes y[0] independent of its earlier value.

A "constant" is a tensor that does not require grad.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable

import pytest

import weftgrad as wg
from weftgrad import Tensor

DIFFERENTIABLE = {"dtype": wg.float64, "requires_grad": True}


def ones(*shape: int) -> Tensor:
    return wg.ones(*shape, **DIFFERENTIABLE)


# Views of a base that was written to ----------------------------------------------------------------------------------


def test_backward_from_a_view_whose_base_was_written() -> None:
    x = ones(3)
    base = x * 1
    view = base[0]
    base.mul_(3)
    view.backward()
    assert x.grad.tolist() == [3, 0, 0]


def test_backward_from_a_view_after_an_element_became_a_constant() -> None:
    x = ones(2)
    view = (x * 1).view(-1)
    view[0] = 5.0
    view.backward(wg.ones(2, dtype=wg.float64))
    assert x.grad.tolist() == [0, 1]


def test_a_view_requires_gradients_once_its_base_does() -> None:
    x = ones(3)
    base = wg.zeros(3, dtype=wg.float64)
    view = base[0]
    base.copy_(x * 2)
    view.backward()
    assert x.grad.tolist() == [2, 0, 0]


def test_grad_with_respect_to_a_view_whose_base_was_written() -> None:
    x = ones(3)
    base = x * 1
    view = base[:2]
    base.mul_(3)
    out = (view * wg.tensor([1.0, 10.0], dtype=wg.float64)).sum()
    (grad,) = wg.autograd.grad(out, view, retain_graph=True)
    assert grad.tolist() == [1, 10]
    assert wg.autograd.grad(out, x)[0].tolist() == [3, 30, 0]


def test_grad_with_respect_to_a_view_that_only_its_base_makes_differentiable() -> None:
    x = ones(3)
    base = wg.zeros(3, dtype=wg.float64)
    view = base[1:]
    base.copy_(x * 2)
    (grad,) = wg.autograd.grad((view * 3).sum(), view)
    assert grad.tolist() == [3, 3]


def test_retain_grad_of_a_view_whose_base_was_written() -> None:
    x = ones(3)
    base = x * 1
    view = base[:2]
    base.mul_(3)
    view.retain_grad()
    (view * 5).sum().backward()
    assert view.grad.tolist() == [5, 5]
    assert x.grad.tolist() == [15, 15, 0]


class _Tripled(wg.autograd.Function):
    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        return x * 3

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        return grad * 3


# name -> (function of a view of two elements, expected gradients: twice the function's own, as the view is 2 * x[1:])
CONSUMERS: dict[str, tuple[Callable[[Tensor], Tensor], list[float]]] = {
    "a custom function": (_Tripled.apply, [6, 6]),
    "adaptive_avg_pool1d": (lambda v: wg.nn.functional.adaptive_avg_pool1d(v.view(1, 1, 2), 1), [1, 1]),
    "_addmm_activation": (
        lambda v: wg._addmm_activation(v, wg.zeros(1, 1, dtype=wg.float64), wg.zeros(1, 2, dtype=wg.float64)),
        [2, 2],
    ),
    "an in-place operand": (lambda v: wg.zeros(2, dtype=wg.float64).add_(v), [2, 2]),
    "cat": (lambda v: wg.cat([v, v]), [4, 4]),
}


@pytest.mark.parametrize("name", CONSUMERS)
def test_consumers_of_a_view_that_became_differentiable_record_it(name: str) -> None:
    function, expected = CONSUMERS[name]
    x = ones(3)
    base = wg.zeros(3, dtype=wg.float64)
    view = base[1:]
    base.copy_(x * 2)
    out = function(view)
    assert out.requires_grad, name
    out.sum().backward()
    assert x.grad.tolist() == [0, *expected], name


def test_numpy_of_a_view_that_became_differentiable_raises() -> None:
    base = wg.zeros(3)
    view = base[1:]
    base.copy_(wg.ones(3, requires_grad=True))
    with pytest.raises(RuntimeError, match=r"\.detach\(\)\.numpy\(\)"):
        view.numpy()


def test_a_view_that_was_detached_in_place_stays_a_constant() -> None:
    x = ones(3)
    base = x * 1
    view = base[1:].detach_()
    base.mul_(3)
    assert not view.requires_grad
    assert view.tolist() == [3, 3]


# Leaves that are views ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "write",
    [
        lambda x: x.mul_(2),
        lambda x: x[0].mul_(2),
        lambda x: x.__setitem__(0, 2.0),
        lambda x: x.copy_(x),
        lambda x: x.copy_(wg.zeros(2, 3)),
        lambda x: x.zero_(),
        lambda x: x.view(-1).add_(1),
    ],
    ids=["mul_", "mul_ of a row", "setitem", "copy_ of itself", "copy_ of zeros", "zero_", "add_ to a view"],
)
@pytest.mark.parametrize("is_view", [False, True])
def test_in_place_writes_to_a_leaf_raise(write: Callable[[Tensor], object], is_view: bool) -> None:
    x = wg.arange(6.0).reshape(2, 3) if is_view else wg.ones(2, 3)
    x.requires_grad_()
    old_values = x.tolist()
    with pytest.raises(RuntimeError, match="leaf tensor that requires grad"):
        write(x)
    assert x.tolist() == old_values
    with wg.no_grad():  # allowed
        write(x)


def test_a_leaf_that_is_a_view_of_a_constant_stays_a_leaf_when_the_constant_is_written() -> None:
    base = wg.zeros(3, dtype=wg.float64)
    leaf = base[:2].requires_grad_()
    base.add_(1)
    assert leaf.is_leaf
    assert leaf.requires_grad
    (leaf * 2).sum().backward()
    assert leaf.grad.tolist() == [2, 2]


def test_a_leaf_that_no_longer_requires_grad_gets_no_gradient() -> None:
    x, y = ones(2), ones(2)
    out = (x * y).sum()
    x.requires_grad_(False)
    out.backward()
    assert x.grad is None
    assert y.grad.tolist() == [1, 1]


# Hooks and retained gradients -----------------------------------------------------------------------------------------


def test_retained_gradients_are_those_after_hooks_that_were_registered_later() -> None:
    x = ones(2)
    y = x * 2
    y.retain_grad()
    y.register_hook(lambda grad: grad * 3)
    y.sum().backward()
    assert y.grad.tolist() == [3, 3]
    assert x.grad.tolist() == [6, 6]


def test_retained_gradients_do_not_share_memory() -> None:
    x = ones(2)
    y = x + 1
    y.retain_grad()
    (y * 3).sum().backward()
    x.grad.zero_()
    assert y.grad.tolist() == [3, 3]


def test_retained_gradients_can_be_differentiated() -> None:
    x = ones(2)
    y = x * 1
    y.retain_grad()
    (y * y * y).sum().backward(create_graph=True)
    assert y.grad.requires_grad
    assert wg.autograd.grad(y.grad.sum(), x)[0].tolist() == [6, 6]


def test_retained_gradients_after_a_write_to_the_base() -> None:
    x = ones(3)
    base = x * 1
    view = base[:2]
    view.retain_grad()
    view[1] = 7.0  # writes through a view of `view`, which has the same base
    (view * 5).sum().backward()
    assert view.grad.tolist() == [5, 5]
    assert x.grad.tolist() == [5, 0, 0]


def test_retain_grad_of_a_constant_raises() -> None:
    with pytest.raises(RuntimeError, match="retain_grad"):
        wg.ones(2).retain_grad()


def test_retain_grad_of_a_leaf_has_no_effect() -> None:
    leaf = ones(2)
    leaf.retain_grad()  # leaves always keep their gradients
    assert not leaf.retains_grad


# Running backward twice -----------------------------------------------------------------------------------------------


def test_a_graph_without_saved_tensors_may_run_backward_twice() -> None:
    x = ones(3)
    view = x[:1]
    view.sum().backward()
    view.sum().backward()
    assert x.grad.tolist() == [2, 0, 0]


def test_a_graph_with_saved_tensors_runs_backward_once() -> None:
    x = ones(3)
    square = x * x
    square.sum().backward()
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        square.sum().backward()


def test_backward_frees_what_a_write_to_a_slice_saved() -> None:
    x, w = ones(3), ones(2)
    y = x.clone()
    y[:2].mul_(w)
    loss = y.sum()
    loss.backward()
    assert w.grad.tolist() == [1, 1]
    with pytest.raises(RuntimeError, match="retain_graph=True"):
        loss.backward()


class _Doubled(wg.autograd.Function):
    saves = True

    @staticmethod
    def forward(ctx: object, x: Tensor) -> Tensor:
        if _Doubled.saves:
            ctx.save_for_backward(x)  # type: ignore[attr-defined]
        return x * 2

    @staticmethod
    def backward(ctx: object, grad: Tensor) -> Tensor:
        if _Doubled.saves:
            assert len(ctx.saved_tensors) == 1  # type: ignore[attr-defined]
        return grad * 2


@pytest.mark.parametrize("saves", [True, False])
def test_backward_of_a_custom_function_twice(saves: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Doubled, "saves", saves)
    x = ones(2)
    out = _Doubled.apply(x)
    seed = wg.ones(2, dtype=wg.float64)
    out.backward(seed)
    if saves:
        with pytest.raises(RuntimeError, match="retain_graph=True"):
            out.backward(seed)
    else:
        out.backward(seed)
        assert x.grad.tolist() == [4, 4]


def test_backward_releases_the_memory_of_saved_tensors() -> None:
    x = ones(4)
    w = wg.full((4,), 2.0, dtype=wg.float64)
    storage_ref = weakref.ref(w.storage)
    out = (x * w).sum()
    del w
    assert storage_ref() is not None  # the graph of `out` has saved `w`
    out.backward()
    assert storage_ref() is None
