"""`autograd.function` and `autograd.functional`: custom backward, Jacobians, Hessians, vector products."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.autograd import Function, functional
from weftgrad.autograd.function import once_differentiable
from weftgrad.runtime.context import anomaly
from weftgrad.runtime.errors import AnomalyError, FreedGraphError, GradientError, VersionError

A = np.array([1.0, 2.0])


def leaf(values: Any = A) -> Any:
    return wg.tensor(values, dtype=wg.float64, device="cpu", requires_grad=True)


class Scaled(Function):
    """factor · x², with the context set up in `setup_context`."""

    @staticmethod
    def forward(x: Any, factor: float) -> Any:
        return x * x * factor

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        x, ctx.factor = inputs
        ctx.save_for_backward(x)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        (x,) = ctx.saved_tensors
        return grad * x * (2 * ctx.factor), None


class Once(Scaled):
    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Any) -> Any:
        return Scaled.backward(ctx, grad)


def test_setup_context_is_called():
    x = leaf()
    (first,) = wg.autograd.grad(Scaled.apply(x, 3.0).sum(), x, create_graph=True)
    assert first.tolist() == [6.0, 12.0]
    assert wg.autograd.grad(first.sum(), x)[0].tolist() == [6.0, 6.0]


def test_backward_frees_saved_tensors():
    """After backward, the loss keeps no saved tensors; before it, only the arguments of `Scaled` are saved."""
    x = leaf(np.ones(1 << 16))
    wg.empty_cache("cpu")
    allocated_before = wg.memory_stats("cpu")["allocated"]
    loss = Scaled.apply(Scaled.apply(x + 1, 3.0), 2.0).sum()
    assert wg.memory_stats("cpu")["allocated"] - allocated_before < 2.5 * x.nbytes  # the two arguments
    loss.backward()
    assert wg.memory_stats("cpu")["allocated"] - allocated_before < 1.5 * x.nbytes  # the gradient
    with pytest.raises(GradientError):
        loss.backward()


def test_wrong_number_of_gradients_raises():
    class Short(wg.autograd.Function):
        returned: Any = 1

        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return (grad, None, grad, None)[: Short.returned]

    x = wg.ones(2, requires_grad=True)
    for Short.returned in (1, 3):
        with pytest.raises(GradientError, match=f"{Short.returned} gradients for 2"):
            Short.apply(x, 1.0).sum().backward()
    Short.returned = 2
    Short.apply(x, 1.0).sum().backward()
    assert x.grad.tolist() == [1, 1]


def test_gradient_shapes_must_match_their_arguments():
    class Odd(wg.autograd.Function):
        returned: Any = None

        @staticmethod
        def forward(ctx: Any, a: Any) -> Any:
            return a * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return Odd.returned

    x = wg.ones(2, requires_grad=True)
    for Odd.returned, message in ((wg.ones(1), "does not sum"), (wg.ones(2, 3), "does not sum"), (1.0, "not float")):
        with pytest.raises(GradientError, match=message):
            Odd.apply(x).sum().backward()
    Odd.returned = wg.ones(3, 2, dtype=wg.float64)
    Odd.apply(x).sum().backward()
    assert x.grad.tolist() == [3, 3]
    assert x.grad.dtype is wg.float32


def test_anomaly_detection_for_a_block():
    for is_enabled in (False, True):
        wg.autograd.set_detect_anomaly(is_enabled)
        with wg.autograd.set_detect_anomaly(not is_enabled):
            assert anomaly.is_enabled is not is_enabled
        assert anomaly.is_enabled is is_enabled
    wg.autograd.set_detect_anomaly(False)


def test_nested_anomaly_modes_restore_check_nan():
    def settings():
        return anomaly.is_enabled, anomaly.checks_nan

    detect_anomaly, set_detect_anomaly = wg.autograd.detect_anomaly, wg.autograd.set_detect_anomaly
    for outer in (detect_anomaly, lambda check_nan: set_detect_anomaly(True, check_nan)):
        with outer(check_nan=False):
            for inner in (detect_anomaly, lambda: set_detect_anomaly(True)):
                with inner():
                    assert settings() == (True, True)
                assert settings() == (True, False)
            x = wg.zeros(1, requires_grad=True)
            (x / x).sum().backward()
            assert x.grad.isnan().all()
        assert not anomaly.is_enabled


def test_anomaly_mode_belongs_to_the_process():
    """As in PyTorch: a thread sees the mode that another thread switched on, and can switch it off."""
    errors = []

    def train():
        x = wg.zeros(1, requires_grad=True)
        try:
            (x / x).sum().backward()
        except AnomalyError as error:
            errors.append(str(error))
        wg.autograd.set_detect_anomaly(False)

    wg.autograd.set_detect_anomaly(True)
    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert not anomaly.is_enabled
    assert "in train" in errors[0]
    assert "runtime" not in errors[0]


def test_once_differentiable_refuses_the_second_derivative():
    x = leaf()
    (first,) = wg.autograd.grad(Once.apply(x, 3.0).sum(), x)
    assert first.tolist() == [6.0, 12.0]
    assert not first.requires_grad
    (second,) = wg.autograd.grad((Once.apply(x, 3.0) * x).sum(), x, create_graph=True)
    with pytest.raises(GradientError, match="once_differentiable"):
        second.sum().backward()


def test_once_differentiable_passes_none_on():
    class Cut(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2

        @staticmethod
        @once_differentiable
        def backward(ctx: Any, grad: Any) -> Any:
            return None

    x = leaf()
    assert wg.autograd.grad(Cut.apply(x), x, leaf(), create_graph=True, allow_unused=True) == (None,)


@pytest.mark.parametrize("count", [1, 3])
def test_forward_returns_a_dirty_argument_beside_an_untouched_one(count: int):
    class DoubleFirst(Function):
        @staticmethod
        def forward(ctx: Any, x: Any, y: Any) -> Any:
            x.mul_(2)
            ctx.mark_dirty(x)
            return x, y

        @staticmethod
        def backward(ctx: Any, grad_x: Any, grad_y: Any) -> Any:
            return grad_x * 2, grad_y * 3

    x_leaf, y_leaf = leaf([1.0] * count), leaf([2.0] * count)  # for one element, the dirty argument equals the other
    x, y = x_leaf * 1, y_leaf * 1
    first, second = DoubleFirst.apply(x, y)
    assert first is x
    assert second is not y
    (first + second).sum().backward()
    assert x_leaf.grad.tolist() == [2.0] * count
    assert y_leaf.grad.tolist() == [3.0] * count


def test_saved_tensors_say_why_they_cannot_be_read():
    class Saved(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * 2

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad * ctx.saved_tensors[0]

    x = leaf() * 1
    y = Saved.apply(x)
    x.mul_(2)
    with pytest.raises(VersionError):
        y.sum().backward()
    y = Saved.apply(leaf())
    y.sum().backward()
    with pytest.raises(FreedGraphError):
        y.sum().backward()


def test_gradients_of_two_leaves_share_no_memory_with_create_graph():
    """As in PyTorch, a later backward through one leaf changes neither the other's gradient nor the passed one."""
    a, b, passed = leaf(), leaf(), wg.ones(2, dtype=wg.float64, device="cpu")
    (a + b).backward(passed, create_graph=True)
    (a * 1).sum().backward()
    assert a.grad.tolist() == [2.0, 2.0]
    assert b.grad.tolist() == passed.tolist() == [1.0, 1.0]


def test_variables_are_tensors():
    x = wg.autograd.Variable(wg.tensor(A), requires_grad=True)
    assert x.requires_grad
    assert isinstance(x, wg.autograd.Variable)


def cube(x: Any) -> Any:
    return (x * x * x).sum() * x[0]


def product_and_sum(x: Any, y: Any) -> Any:
    return x * y, x.sum()


def test_jacobians_and_hessians():
    x, y = leaf(), leaf(A + 2)
    assert functional.jacobian(lambda t: t * t * t[0], x).tolist() == [[3.0, 0.0], [4.0, 4.0]]
    product, total = functional.jacobian(product_and_sum, (x, y))
    assert [t.tolist() for t in product] == [[[3.0, 0.0], [0.0, 4.0]], [[1.0, 0.0], [0.0, 2.0]]]
    assert [t.tolist() for t in total] == [[1.0, 1.0], [0.0, 0.0]]
    expected = np.array([[12.0, 12.0], [12.0, 12.0]])  # x0^4 + x0 x1^3: 12 x0^2, 3 x1^2, 6 x0 x1
    assert functional.hessian(cube, x).tolist() == expected.tolist()
    blocks = functional.hessian(lambda p, q: (p * q).sum(), (x, y))
    assert [[b.tolist() for b in row] for row in blocks] == [
        [[[0.0, 0.0]] * 2, [[1.0, 0.0], [0.0, 1.0]]],
        [[[1.0, 0.0], [0.0, 1.0]], [[0.0, 0.0]] * 2],
    ]
    derivative = functional.jacobian(lambda t: t * t, x, create_graph=True)
    assert wg.autograd.grad(derivative.sum(), x)[0].tolist() == [2.0, 2.0]
    with pytest.raises(GradientError, match="strict"):
        functional.jacobian(lambda t: wg.ones(2), x, strict=True)


def test_products_with_vectors():
    x, v = leaf(), leaf([1.0, -2.0]).detach()
    value, product_value = functional.jvp(lambda t: t * t * t[0], x, v)  # J = [[3, 0], [4, 4]]
    assert (value.tolist(), product_value.tolist()) == ([1.0, 4.0], [3.0, -4.0])
    assert functional.vjp(lambda t: t * t * t[0], x, v)[1].tolist() == [-5.0, -8.0]
    for product in (functional.hvp, functional.vhp):
        value, product_value = product(cube, x, v)
        assert (value.item(), product_value.tolist()) == (9.0, [-12.0, -12.0])
    factors = iter((1.0, 10.0))
    assert functional.vhp(lambda t: next(factors) * cube(t), x, v)[0].item() == 9.0  # called once
    with pytest.raises(GradientError, match="shapes"):
        functional.jvp(cube, x, wg.ones(3))
    with pytest.raises(GradientError, match="hvp: v has the shapes"):
        functional.hvp(cube, x, wg.ones(3))


@pytest.mark.parametrize("is_leaf", [True, False])
def test_a_hook_keeps_the_layout_of_the_gradient(is_leaf):
    results = (lambda g: wg.ones(3), lambda g: g.sum(), lambda g: g.double(), lambda g: [g], lambda g: 5)
    for hook, error in zip(results, (GradientError,) * 3 + (TypeError,) * 2, strict=True):
        x = wg.ones(2, requires_grad=True)
        y = x if is_leaf else x * 2
        y.register_hook(hook)
        with pytest.raises(error, match="hook <lambda>"):
            y.sum().backward()
    x = wg.ones(2, 3, requires_grad=True)
    x.register_hook(lambda g: (g * 2).t().contiguous().t())
    x.sum().backward()
    assert x.grad.tolist() == [[2, 2, 2]] * 2


def scalar():
    return wg.tensor(1.0, requires_grad=True)


def test_writes_to_gradients_do_not_change_later_ones():
    """The 1 that backward starts from is shared by all calls, so no gradient may be that tensor."""

    class InPlace(Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return grad.mul_(3)

    def grad_of_itself():
        x = scalar()
        return wg.autograd.grad(x, x)[0]

    def grad_by_inputs():
        x = scalar()
        x.backward(inputs=[x])
        return x.grad

    def grad_from_a_hook():
        x = scalar()
        y = x * 1
        y.register_hook(lambda g: g.mul_(2))
        y.backward()
        return x.grad

    def grad_from_a_function():
        x = scalar()
        InPlace.apply(x).backward()
        return x.grad

    expected = {grad_of_itself: 1, grad_by_inputs: 1, grad_from_a_hook: 2, grad_from_a_function: 3}
    for function, value in expected.items():
        first = function()
        assert first.item() == value
        first.mul_(5)
        y = scalar()
        y.backward()
        assert y.grad.item() == 1
        assert function().item() == value


@pytest.mark.parametrize("with_inputs", [True, False])
def test_gradients_do_not_share_memory_with_what_the_caller_passed(with_inputs):
    x, y, seed = wg.ones(2, requires_grad=True), wg.ones(2, requires_grad=True), wg.ones(2)
    for root in (x, x + y):
        x.grad = y.grad = None
        root.backward(seed, inputs=[x, y] if with_inputs else None)
        x.grad.mul_(5)
        assert seed.tolist() == [1, 1]
        assert y.grad is None or y.grad.tolist() == [1, 1]


def test_backward_for_some_inputs():
    x, y = wg.ones(2, requires_grad=True), wg.ones(2, requires_grad=True)
    stored = []
    x.register_post_accumulate_grad_hook(lambda leaf: stored.append(leaf.grad.tolist()))
    wg.autograd.backward([(x * y).sum(), 2 * x.sum()], inputs=[x])
    x.sum().backward(inputs=x)
    assert (x.grad.tolist(), y.grad) == ([4, 4], None)
    assert stored == [[3, 3], [4, 4]]
    with pytest.raises(RuntimeError, match="empty"):
        x.sum().backward(inputs=[])


def test_post_accumulate_grad_hook():
    """One optimizer per parameter, stepping inside backward, gives the same weights as one step per batch."""
    nets = [wg.nn.Linear(3, 2) for _ in range(2)]
    nets[1].load_state_dict(nets[0].state_dict())
    optimizers = {p: wg.optim.SGD([p], 0.1, momentum=0.9) for p in nets[0].parameters()}
    reference_optimizer = wg.optim.SGD(nets[1].parameters(), 0.1, momentum=0.9)

    def step(parameter):
        assert parameter.grad is not None
        optimizers[parameter].step()
        optimizers[parameter].zero_grad()

    handles = [p.register_post_accumulate_grad_hook(step) for p in nets[0].parameters()]
    for x in wg.randn(3, 4, 3):
        for net in nets:
            net(x).square().sum().backward()
        reference_optimizer.step()
        reference_optimizer.zero_grad()
    assert all(p.grad is None and (p == q).all() for p, q in zip(*(net.parameters() for net in nets), strict=True))
    handles[0].remove()
    nets[0](x).sum().backward()
    assert [p.grad is None for p in nets[0].parameters()] == [False, True]
    wg.autograd.grad(nets[0](x).sum(), list(nets[0].parameters()))  # stores nothing
    for tensor in (wg.ones(2), nets[0](x)):
        with pytest.raises(RuntimeError, match="leaves"):
            tensor.register_post_accumulate_grad_hook(step)
