"""Ready hooks of leaves: backward passes a complete gradient on before it computes the next ones."""

from __future__ import annotations

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime import native
from weftgrad.runtime.autograd import engine, ready_leaves
from weftgrad.runtime.releasable_memory import ReleasableMemory
from weftgrad.runtime.tensor import Tensor


@pytest.fixture(params=["native", "python"])
def either_engine(request, monkeypatch):
    if request.param == "python":
        monkeypatch.setattr(engine, "_advance", None)
    elif not native.present:
        pytest.skip("the C engine is not built")


@pytest.fixture
def watch():
    """Return a function that sets hooks which collect (name, gradient); the hooks are removed after the test."""
    watched = []

    def set_hooks(events, **leaves):
        for name, leaf in leaves.items():
            ready_leaves.set_ready_hook(leaf, lambda _, grad, name=name: events.append((name, grad.tolist())))
            watched.append(leaf)

    yield set_hooks
    for leaf in watched:
        ready_leaves.set_ready_hook(leaf, None)
    assert ready_leaves.hook_count == 0


def test_gradients_arrive_before_earlier_nodes_are_processed(either_engine, watch):
    events = []
    first, second = (wg.tensor([value], requires_grad=True) for value in (2.0, 3.0))
    watch(events, first=first, second=second)
    hidden = first * 5
    hidden.register_hook(lambda grad: events.append("hidden"))
    (hidden * second).backward()
    assert events == [("second", [10.0]), "hidden", ("first", [15.0])]
    assert first.grad is None
    assert second.grad is None


def test_a_leaf_with_several_uses_is_complete_after_the_earliest(either_engine, watch):
    events = []
    leaf, other = (wg.tensor([value], requires_grad=True) for value in (2.0, 3.0))
    watch(events, leaf=leaf)
    hidden = leaf * other
    hidden.register_hook(lambda grad: events.append("hidden"))
    (hidden * leaf * leaf).backward()  # 3 leaf^3: the derivative is 9 leaf^2
    assert events == ["hidden", ("leaf", [36.0])]
    assert other.grad.tolist() == [8.0]  # a leaf without a ready hook


def test_hooks_run_around_the_ready_hook(either_engine, watch):
    events = []
    leaf = wg.ones(1, requires_grad=True)
    watch(events, leaf=leaf)
    leaf.register_hook(lambda grad: grad * 10)
    leaf.register_post_accumulate_grad_hook(lambda tensor: events.append("accumulated"))
    (leaf * 2).backward()
    assert events == [("leaf", [20.0]), "accumulated"]


def test_gradients_of_zeros_and_roots_arrive_at_the_end(either_engine, watch):
    events = []
    leaf, root = wg.tensor([1.5], requires_grad=True), wg.ones(1, requires_grad=True)
    watch(events, leaf=leaf, root=root)
    wg.autograd.backward([leaf.floor().sum(), root])
    assert sorted(events) == [("leaf", [0.0]), ("root", [1.0])]


def test_leaves_that_are_not_reached(either_engine, watch):
    leaf, other = wg.ones(1, requires_grad=True), wg.ones(1, requires_grad=True)
    reached = []
    watch([], other=other)
    ready_leaves.set_ready_hook(
        leaf, lambda *_: reached.append([ready_leaves.is_reached(leaf), ready_leaves.is_reached(other)])
    )
    (leaf * 2).backward()
    ready_leaves.set_ready_hook(leaf, None)
    assert reached == [[True, False]]


def test_no_hooks_for_returned_gradients(either_engine, watch):
    events = []
    leaf = wg.ones(1, requires_grad=True)
    watch(events, leaf=leaf)
    assert wg.autograd.grad(leaf * 3, leaf)[0].tolist() == [3.0]
    (leaf * 4).backward(inputs=[leaf])
    assert events == []
    assert leaf.grad.tolist() == [4.0]


def test_callbacks_run_once_at_the_end_of_the_outermost_backward(either_engine, watch):
    events = []
    leaf = wg.ones(1, requires_grad=True)

    class Nested(wg.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            ready_leaves.queue_callback(lambda: events.append("end"))
            with wg.enable_grad():
                (wg.ones(1, requires_grad=True) * 2).backward()
            events.append("nested")
            return grad

    watch(events, leaf=leaf)
    Nested.apply(leaf).backward()
    assert events == ["nested", ("leaf", [1.0]), "end"]


def test_an_error_drops_callbacks(either_engine):
    events = []
    leaf = wg.ones(1, requires_grad=True)

    def fail(grad):
        ready_leaves.queue_callback(lambda: events.append("end"))
        raise ValueError("no")

    leaf.register_hook(fail)
    with pytest.raises(ValueError, match="no"):
        (leaf * 2).backward()
    (wg.ones(1, requires_grad=True) * 2).backward()
    assert events == []


def test_an_error_in_a_callback_drops_the_others(either_engine):
    events = []
    leaf = wg.ones(1, requires_grad=True)

    def fail():
        raise ValueError("no")

    def queue(grad):
        ready_leaves.queue_callback(fail)
        ready_leaves.queue_callback(lambda: events.append("end"))

    leaf.register_hook(queue)
    with pytest.raises(ValueError, match="no"):
        (leaf * 2).backward()
    (wg.ones(1, requires_grad=True) * 2).backward()
    assert events == []


def test_a_reentrant_checkpoint_may_reach_any_leaf(either_engine, watch):
    reached = []
    leaf, inner = wg.ones(1, requires_grad=True), wg.ones(1, requires_grad=True)
    watch([], inner=inner)
    ready_leaves.set_ready_hook(leaf, lambda *_: reached.append(ready_leaves.is_reached(inner)))
    hidden = wg.utils.checkpoint.checkpoint(lambda x: x * inner, leaf * 2, use_reentrant=True)
    (hidden * leaf).backward()
    ready_leaves.set_ready_hook(leaf, None)
    assert reached == [True]


def test_memory_that_comes_and_goes():
    device = wg.device("cpu")
    memory = ReleasableMemory(device, 4096)
    layout = wg.zeros(1024).meta
    tensor = Tensor(memory.storage, layout, memory.storage.start)
    before = wg.memory_allocated("cpu")
    for value in (1.0, 2.0):
        memory.allocate()
        tensor.fill_(value)
        np.testing.assert_array_equal((tensor.view(32, 32) + 1).numpy(), np.full((32, 32), value + 1, np.float32))
        assert wg.memory_allocated("cpu") >= before + 4096
        memory.release()
        assert wg.memory_allocated("cpu") <= before
