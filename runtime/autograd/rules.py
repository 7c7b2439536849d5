"""From a node and the gradients of its results to the gradients of its operands.

Most rules name another op, called with the incoming gradient and what was saved. What the kinds need around that
call (a reduced dimension put back, a sum over broadcast ones) is in one function a kind.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from ..context import State, current_stream
from ..device import Meta, meta
from ..dispatch import call, empty
from ..dtypes import int64
from ..errors import AnomalyError, GradientError
from ..records import OpRecord, registry
from ..tensor import Tensor
from .node import Application, Node

__all__ = ["cast_to", "expand_to", "gradients_of", "reduction_gradient", "sum_to"]


def gradients_of(node: Node, grads: Sequence[Tensor | None], state: State) -> Sequence[Tensor | None]:
    """One gradient for each of the node's edges, in the operand's shape and dtype."""
    if node.function is not None:
        found = node.function(node, grads)
    else:
        found = _by_rules(node, grads)
    if state.anomaly:
        _check_finite(node, found)
    return found


def _by_rules(node: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
    recipe = node.recipe
    values = node.values()
    for i, (seed, grad) in enumerate(zip(recipe.seeds, grads, strict=True)):
        if grad is None and seed in recipe.read:
            grad = _missing(recipe.out_metas[i], recipe.record)
        values[seed] = grad
    apply = _BY_KIND.get(recipe.record.kind, _plain)
    found: list[Tensor | None] = []
    for each in recipe.applications:
        function = each.rule.function
        gradient = function(node, values, each.position) if function is not None else apply(node, values, each)
        if gradient is not None and gradient.meta is not each.layout:
            gradient = cast_to(sum_to(gradient, each.layout.shape), each.layout)
        found.append(gradient)
    return found


def _missing(layout: Meta, record: OpRecord) -> Any:
    """A gradient that never came: a zero that takes no memory where the kernel takes numbers."""
    if record.kind == "pointwise":
        return 0.0
    like = empty(meta(layout.dtype, layout.shape, None, layout.device))
    return call(registry["full_like_as"], (like, 0.0), (None,))


def _plain(node: Node, values: dict[str, Any], each: Application) -> Tensor | None:
    rule = each.rule
    if each.record is None:
        if rule.op == "!":
            raise GradientError(
                f"{node.name}: no gradient is known with respect to an operand of shape {list(each.layout.shape)} "
                f"and dtype {each.layout.dtype.name}; detach() it if none is wanted"
            )
        return values[rule.operands[0]] if rule.operands else None
    if rule.result is not None:  # computed with the gradients of other operands, once for all of them
        shared = values.get(f"!{rule.op}")
        if shared is None:
            shared = values[f"!{rule.op}"] = call(each.record, [values[name] for name in rule.operands], each.statics)
        return shared[rule.result] if isinstance(shared, tuple) else shared  # type: ignore[no-any-return]
    operands = [values[name] for name in rule.operands]
    if not any(isinstance(o, Tensor) for o in operands):  # only numbers are left of it: a constant
        operands[0] = call(registry["full_like_as"], (_any_tensor(values), operands[0]), (None,))
    if each.summed is not None:
        total = call(each.summed, operands, (each.summed_dims, True))
        return _taken_as(total, each.layout.shape)
    return call(each.record, operands, each.statics)  # type: ignore[no-any-return]


def _any_tensor(values: Mapping[str, Any]) -> Tensor:
    return next(v for v in values.values() if isinstance(v, Tensor))


def reduction_gradient(node: Node, values: dict[str, Any], each: Application) -> Tensor | None:
    """Results and their gradients get the reduced dimensions back, with size 1, and broadcast against the input."""
    values["n_reduced"] = float(each.count)
    recipe = node.recipe
    if "index_reduced" in recipe.read:
        if each.index is None:
            each.index = _places(each)
        values["index_reduced"] = each.index
    for name in (*recipe.seeds, *(recipe.record.outputs[i].name for i in recipe.saved_outputs)):
        if isinstance(value := values.get(name), Tensor):
            values[name] = view_as(value, each.kept)
    gradient = _plain(node, values, each)
    return None if gradient is None else expand_to(gradient, each.whole)


def _places(each: Application) -> Tensor:
    """Each element's place, row-major, among those it is reduced with; broadcast over the kept dimensions."""
    shape = tuple(n if kept == 1 else 1 for n, kept in zip(each.whole, each.kept, strict=True))
    made = empty(meta(int64, shape, None, each.layout.device))
    if made.meta.numel:
        driver = each.layout.device.driver
        driver.write(made.storage, 0, np.arange(made.meta.numel), current_stream(each.layout.device))
    return made


_BY_KIND: dict[str, Callable[[Node, dict[str, Any], Application], Tensor | None]] = {"reduction": reduction_gradient}


def view_as(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` in another shape of as many elements."""
    if tensor.meta.shape == shape:
        return tensor
    from ..views import reshape

    return reshape(tensor, shape)


def _taken_as(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor`, of which nobody else knows, in another shape of as many elements: no view, which a leaf would copy."""
    own = tensor.meta
    if own.shape == shape or tensor.needs or not own.contiguous:
        return view_as(tensor, shape)
    return Tensor(tensor.storage, meta(own.dtype, shape, None, own.device), tensor.start)


def expand_to(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` broadcast to `shape` without copying."""
    if tensor.meta.shape == shape:
        return tensor
    return call(registry["expand"], (tensor,), (shape,))  # type: ignore[no-any-return]


def sum_to(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` summed over the dimensions along which `shape` was broadcast to it."""
    own = tensor.meta.shape
    if own == shape:
        return tensor
    lead = len(own) - len(shape)
    if lead < 0:
        return expand_to(tensor, shape)
    dims = [*range(lead), *(lead + d for d, n in enumerate(shape) if n == 1 and own[lead + d] != 1)]
    if dims:
        tensor = call(registry["sum"], (tensor,), (tuple(dims), True, None))
        tensor = _taken_as(tensor, tensor.meta.shape[lead:])
    return expand_to(tensor, shape)


def cast_to(tensor: Tensor, layout: Meta) -> Tensor:
    """`tensor` in the dtype of `layout`."""
    if tensor.meta.dtype is layout.dtype:
        return tensor
    return call(registry["copy"], (tensor,), (layout.dtype,))  # type: ignore[no-any-return]


def _check_finite(node: Node, grads: Sequence[Tensor | None]) -> None:
    for position, grad in zip(node.recipe.edges, grads, strict=False):
        if grad is not None and grad.meta.dtype.kind == "f" and grad.meta.numel:
            total = call(registry["sum"], (call(registry["isnan"], (grad,)),), (None, False, None))
            if total.item():  # type: ignore[attr-defined]
                where = f"\nThe forward call was made here:\n{node.trace}" if node.trace else ""
                raise AnomalyError(f"backward of {node.name}: the gradient of operand {position} has NaN{where}")
