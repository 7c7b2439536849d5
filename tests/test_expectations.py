"""What people who come from PyTorch rely on without looking it up."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

import weftgrad as wg

PLACES = ("cpu", "opencl:0")


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64", "uint8", "int64"])
def test_truths_written_to_numbers_are_0_and_1(place: Any, dtype: str) -> None:
    """In vectors, in rows of any stride, and in what a reduction gives."""
    x = np.arange(37.0) % 3
    given = wg.tensor(x, dtype=wg.float32, device=place)
    for name, wanted in (("gt", x > 1), ("eq", x == 1), ("logical_and", (x != 0))):
        apart = wg.empty(37, 2, dtype=getattr(wg, dtype), device=place)[:, 1]
        for out in (wg.empty(37, dtype=getattr(wg, dtype), device=place), apart):
            getattr(wg, name)(given, wg.ones(1, device=place), out=out)
            assert out.tolist() == wanted.astype(float).tolist(), (name, place, dtype, out.stride())
    total = wg.empty((), dtype=getattr(wg, dtype), device=place)
    assert wg.any(given, out=total).item() == 1, (place, dtype)
    assert wg.all(given, out=total).item() == 0, (place, dtype)


def test_gradient_modes_decorate_generators() -> None:
    """What runs between two yields is in the mode; the caller, between two steps, is in its own."""

    @wg.no_grad()
    def steps() -> Any:
        seen = []
        try:
            while True:
                try:
                    seen.append((yield wg.is_grad_enabled()))
                except ValueError:
                    seen.append("raised")
                if seen[-1] is None:
                    return wg.is_grad_enabled(), seen
        finally:
            closed.append(wg.is_grad_enabled())

    closed: list[bool] = []
    generator = steps()
    assert next(generator) is False
    assert wg.is_grad_enabled()
    assert generator.send("sent") is False
    assert generator.throw(ValueError()) is False
    with pytest.raises(StopIteration) as stopped:
        next(generator)
    assert stopped.value.value == (False, ["sent", "raised", None])
    another = steps()
    next(another)
    another.close()
    assert closed == [False, False]
    assert wg.is_grad_enabled()


def test_gradient_modes_decorate_methods_and_nest() -> None:
    class Counter:
        @wg.no_grad
        def recorded(self) -> bool:
            return wg.is_grad_enabled()

        @wg.set_grad_enabled(False)
        def enabled(self) -> bool:
            return wg.is_grad_enabled()

    assert wg.is_grad_enabled()  # decorating changed nothing
    assert (Counter().recorded(), Counter().enabled()) == (False, False)
    with wg.inference_mode():
        assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (True, False)
        with wg.inference_mode(False):
            assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (False, True)
        with wg.enable_grad():
            assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (True, True)
    assert (wg.is_inference_mode_enabled(), wg.is_grad_enabled()) == (False, True)
    with wg.set_grad_enabled(False):
        assert not wg.is_grad_enabled()
    assert wg.is_grad_enabled()


def test_shallow_copies_share_memory() -> None:
    x = wg.arange(4.0).requires_grad_()
    x.name = "x"  # type: ignore[attr-defined]
    copied = copy.copy(x)
    assert (copied is x, copied.data_ptr() == x.data_ptr(), copied.requires_grad, copied.name) == (False, True, True, "x")
    assert copy.copy(x * 2).is_leaf
    assert type(copy.copy(wg.nn.Parameter(x.detach()))) is wg.nn.Parameter


@pytest.mark.parametrize(
    "write",
    [
        lambda y: y.zero_(), lambda y: y.fill_(2.0), lambda y: y.copy_(wg.ones(3)), lambda y: y.normal_(),
        lambda y: y.uniform_(), lambda y: y.exponential_(), lambda y: y[:].zero_(), lambda y: y.view(3, 1).fill_(3.0),
    ],
)  # fmt: skip
def test_what_a_constant_is_written_over_has_gradients_of_0(write: Any) -> None:
    x = wg.ones(3, requires_grad=True)
    y = x * 2
    write(y)
    assert y.requires_grad
    assert not y.is_leaf
    (y * y).sum().backward()
    assert x.grad.tolist() == [0, 0, 0]


def test_what_is_copied_over_has_gradients_of_0() -> None:
    x, a = wg.ones(3, requires_grad=True), wg.full((3,), 2.0, requires_grad=True)
    y = x * 2
    y.copy_(a)
    found = wg.autograd.grad((y * y).sum(), [x, a])
    assert [f.tolist() for f in found] == [[0, 0, 0], [4, 4, 4]]


def test_gradients_of_what_is_not_used_and_of_batches() -> None:
    x, unused = wg.arange(3.0, requires_grad=True), wg.ones(2, requires_grad=True)
    found = wg.autograd.grad((x * x).sum(), [x, unused], materialize_grads=True)
    assert [f.tolist() for f in found] == [[0, 2, 4], [0, 0]]
    with pytest.raises(ValueError, match="allow_unused"):
        wg.autograd.grad((x * x).sum(), [unused], materialize_grads=True, allow_unused=False)
    (jacobian,) = wg.autograd.grad(x * x * x, x, wg.eye(3), is_grads_batched=True, create_graph=True)
    assert jacobian.tolist() == [[0, 0, 0], [0, 3, 0], [0, 0, 12]]
    (second,) = wg.autograd.grad(jacobian.sum(), x)
    assert second.tolist() == [0, 6, 12]
    with pytest.raises(ValueError, match="one more dimension"):
        wg.autograd.grad([x * x, x.sum()], x, [wg.eye(3), wg.ones(2)], is_grads_batched=True)
