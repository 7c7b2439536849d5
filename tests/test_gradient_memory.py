"""Check that gradients of leaves share no memory with each other, hooks or functions, and are seldom copied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from backward_running import count_launches, either_engine, leaf  # noqa: F401  # a fixture

import weftgrad as wg


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("inputs", [False, True])
def test_a_hook_after_accumulation_writes_only_its_leafs_grad(inputs: bool) -> None:
    """The leaves get one and the same gradient, but their `grad` shares no memory."""
    leaves = [leaf(3, seed=i) for i in range(3)]
    for x in (leaves[0], leaves[2]):  # the first in the order of `inputs`, and the first that a gradient reaches
        x.register_post_accumulate_grad_hook(lambda p: p.grad.mul_(0.5))

    def backward() -> None:
        for x in leaves:
            x.grad = None
        loss = ((leaves[0] + leaves[1] + leaves[2]) * 2).sum()
        loss.backward(inputs=leaves if inputs else None)

    backward()
    assert [x.grad.tolist() for x in leaves] == [[1.0] * 3, [2.0] * 3, [1.0] * 3]
    assert len({id(x.grad.storage) for x in leaves}) == 3


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("inputs", [False, True])
def test_the_last_leaf_that_shares_a_gradient_takes_it_without_a_copy(inputs: bool) -> None:
    def launches(count: int) -> int:
        operands = [leaf(3, seed=i).requires_grad_(i < count) for i in range(3)]

        def work() -> None:
            for operand in operands:
                operand.grad = None
            (sum(operands[1:], operands[0]) * 2).sum().backward(inputs=operands[:count] if inputs else None)

        return count_launches(work)

    assert launches(3) == launches(1) + 2


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("inputs", [False, True])
def test_grad_shares_no_memory_with_what_a_function_saved(inputs: bool) -> None:
    class Multiply(wg.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, weight: Any) -> Any:
            ctx.save_for_backward(weight)
            return (x * weight).sum()

        @staticmethod
        def backward(ctx: Any, grad: Any) -> Any:
            return ctx.saved_tensors[0], None

    x, weight = leaf(3), leaf(3, seed=1).detach()
    before = weight.numpy().copy()
    for _ in range(2):
        Multiply.apply(x, weight).backward(inputs=[x] if inputs else None)
    np.testing.assert_array_equal(weight.numpy(), before)
    np.testing.assert_array_equal(x.grad.numpy(), 2 * before)


@pytest.mark.usefixtures("either_engine")
@pytest.mark.parametrize("inputs", [False, True])
@pytest.mark.parametrize("on_leaf", [False, True])
def test_grad_shares_no_memory_with_what_a_hook_returned(inputs: bool, on_leaf: bool) -> None:
    x, w, constant = leaf(3), leaf(3, seed=1), wg.full((3,), 5.0, device="cpu")
    for _ in range(2):
        y = x + w
        (x if on_leaf else y).register_hook(lambda grad: constant)
        y.sum().backward(inputs=[x, w] if inputs else None)
    assert constant.tolist() == [5.0] * 3
    assert x.grad.tolist() == [10.0] * 3
    assert w.grad.tolist() == [2.0 if on_leaf else 10.0] * 3


@pytest.mark.usefixtures("either_engine")
def test_a_gradient_without_hooks_is_stored_without_a_copy() -> None:
    x, w = leaf(3), leaf(3, seed=1).detach()

    def work() -> None:
        x.grad = None
        loss.backward(retain_graph=True)

    loss = (x * w).sum()
    once = count_launches(work)
    returned = count_launches(lambda: wg.autograd.grad(loss, x, retain_graph=True))
    assert once == returned


@pytest.mark.usefixtures("either_engine")
def test_weights_of_a_recurrent_layer_take_their_gradients_without_copies() -> None:
    layer = wg.nn.LSTM(3, 4, device="cpu")
    parameters = list(layer.parameters())
    loss = layer(wg.ones(2, 1, 3, device="cpu"))[0].sum()

    def work() -> None:
        for parameter in parameters:
            parameter.grad = None
        loss.backward(retain_graph=True)

    launches = count_launches(work)
    returned = count_launches(lambda: wg.autograd.grad(loss, parameters, retain_graph=True))
    storages = {id(parameter.grad.storage) for parameter in parameters}
    assert len(storages) == 4
    assert launches <= returned + 1  # a copy for one bias, whose gradient is the other's
