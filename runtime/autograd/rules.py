"""Compute the gradients of a node's operands from those of its results.

Most rules name another op, which is called with the incoming gradients and the saved tensors. One function per kind of
op does the rest: inserting reduced dimensions, and summing over broadcast dimensions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from ..context import anomaly, current_stream
from ..device import Device, Meta, meta
from ..dispatch import call, empty
from ..dtypes import int64
from ..errors import AnomalyError, GradientError
from ..records import OpRecord, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Application, Node

if TYPE_CHECKING:
    from ..call_types import SavedValues

__all__ = [
    "arange", "cast_to", "expand_to", "fit_to", "gradients_of", "reduction_gradient", "reshape_unshared", "sum_to",
]  # fmt: skip


def gradients_of(
    node: Node, grads: Sequence[Tensor | None], is_needed: Sequence[bool] | None = None
) -> Sequence[Tensor | None]:
    """Return a gradient for each edge of the node, in the operand's shape and dtype; None stands for zeros.

    Args:
        node: The node.
        grads: The gradients of its results.
        is_needed: For each edge, whether its gradient is read. Rules of other edges are not applied, and their
            gradients are None; a custom function computes all of them. None stands for all edges.
    """
    if node.function is not None:
        gradients = node.function(node, grads)
    else:
        gradients = _apply_rules(node, grads, is_needed)
    if anomaly.is_enabled and anomaly.checks_nan:
        _raise_on_nan(node, gradients)
    return gradients


def _apply_rules(node: Node, grads: Sequence[Tensor | None], is_needed: Sequence[bool] | None) -> list[Tensor | None]:
    recipe = node.recipe
    values = node.values()
    for i, (seed, grad) in enumerate(zip(recipe.seeds, grads, strict=True)):
        is_missing = grad is None and seed in recipe.read
        values[seed] = _zero_gradient(recipe.out_metas[i], recipe.record) if is_missing else grad
    apply_by_kind = _BY_KIND.get(recipe.record.kind, _apply_rule)
    gradients: list[Tensor | None] = []
    for edge, application in enumerate(recipe.applications):
        if is_needed is not None and not is_needed[edge]:
            gradients.append(None)
            continue
        function = application.rule.function
        gradient = (
            function(node, values, application.position)
            if function is not None
            else apply_by_kind(node, values, application)
        )
        gradients.append(None if gradient is None else fit_to(gradient, application.layout))
    return gradients


def fit_to(gradient: Tensor, layout: Meta) -> Tensor:
    """Return the gradient of an operand of `layout`: summed over broadcast dimensions, and in the operand's dtype."""
    return gradient if gradient.meta is layout else cast_to(sum_to(gradient, layout.shape), layout)


def _zero_gradient(layout: Meta, record: OpRecord) -> Tensor | float:
    """Return zeros for the missing gradient of a result: the number 0.0 if the gradient's op takes numbers."""
    if record.kind in ("pointwise", "reduction"):
        return 0.0
    like = empty(meta(layout.dtype, layout.shape, None, layout.device))
    return call(registry["full_like_as"], (like, 0.0), (None,))


def _apply_rule(node: Node, values: SavedValues, application: Application) -> Tensor | None:
    rule = application.rule
    if application.record is None:
        if rule.op == "!":
            raise GradientError(
                f"{node.name}: no gradient is known with respect to an operand of shape "
                f"{list(application.layout.shape)} and dtype {application.layout.dtype.name}; detach() it if none is "
                "wanted"
            )
        return values[rule.operands[0]] if rule.operands else None
    if rule.result is not None:  # one op computes the gradients of several operands
        shared_result = values.get(f"!{rule.op}")
        if shared_result is None:
            shared_result = values[f"!{rule.op}"] = call(
                application.record, [values[name] for name in rule.operands], application.statics
            )
        return shared_result[rule.result] if isinstance(shared_result, tuple) else shared_result
    operands = [values[name] for name in rule.operands]
    if not any(isinstance(o, Tensor) for o in operands):  # the formula has no tensor left: a constant
        operands[0] = call(registry["full_like_as"], (_any_tensor(values), operands[0]), (None,))
    if application.sum_record is not None:
        total = call(application.sum_record, operands, (application.sum_dims, True))
        return reshape_unshared(total, application.layout.shape)
    return call(application.record, operands, application.statics)


def _any_tensor(values: Mapping[str, object]) -> Tensor:
    return next(v for v in values.values() if isinstance(v, Tensor))


def reduction_gradient(node: Node, values: SavedValues, application: Application) -> Tensor | None:
    """Compute the gradient of a reduction.

    The results and their gradients get the reduced dimensions back, with size 1, so that they broadcast against the
    operand.
    """
    values["n_reduced"] = float(application.count)
    recipe = node.recipe
    if "index_reduced" in recipe.read:
        if application.index is None:
            application.index = _reduction_positions(application)
        values["index_reduced"] = application.index
    for name in (*recipe.seeds, *(recipe.record.outputs[i].name for i in recipe.saved_outputs)):
        if isinstance(value := values.get(name), Tensor):
            values[name] = view_as(value, application.keepdim_shape)
    gradient = _apply_rule(node, values, application)
    return None if gradient is None else expand_to(gradient, application.broadcast_shape)


def _reduction_positions(application: Application) -> Tensor:
    """Return each element's row-major position among those reduced with it; size 1 in the other dimensions."""
    shape = tuple(
        n if kept_size == 1 else 1
        for n, kept_size in zip(application.broadcast_shape, application.keepdim_shape, strict=True)
    )
    return arange(shape, application.layout.device)


def arange(shape: tuple[int, ...], device: Device) -> Tensor:
    """Return the int64 numbers 0, 1, 2, … in `shape`, in row-major order."""
    numbers = empty(meta(int64, shape, None, device))
    if numbers.meta.numel:
        device.driver.write(numbers.storage, 0, np.arange(numbers.meta.numel), current_stream(device))
    return numbers


def _view_gradient(node: Node, values: SavedValues, application: Application) -> Tensor | None:
    if node.recipe.is_reshape:
        return reshape(values["grad"], application.layout.shape)
    return _apply_rule(node, values, application)


_BY_KIND: dict[str, Callable[[Node, SavedValues, Application], Tensor | None]] = {
    "reduction": reduction_gradient, "view": _view_gradient,
}  # fmt: skip


def view_as(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `tensor` in another shape with as many elements."""
    if tensor.meta.shape == shape:
        return tensor
    return reshape(tensor, shape)


def reshape_unshared(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Reshape a tensor that nothing else refers to. The result is no view: leaves copy gradients that are views."""
    layout = tensor.meta
    if layout.shape == shape or tensor.needs_grad or not layout.contiguous:
        return view_as(tensor, shape)
    return Tensor(tensor.storage, meta(layout.dtype, shape, None, layout.device), tensor.start)


def expand_to(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Broadcast `tensor` to `shape` without copying."""
    if tensor.meta.shape == shape:
        return tensor
    return call(registry["expand"], (tensor,), (shape,))


def sum_to(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Sum `tensor` over the dimensions along which `shape` was broadcast to it, and expand it along any others."""
    own_shape = tensor.meta.shape
    if own_shape == shape:
        return tensor
    new_dims = len(own_shape) - len(shape)
    if new_dims < 0:
        return expand_to(tensor, shape)
    dims = [*range(new_dims), *(new_dims + d for d, n in enumerate(shape) if n == 1 and own_shape[new_dims + d] != 1)]
    if dims:
        tensor = call(registry["sum"], (tensor,), (tuple(dims), True, None))
        tensor = reshape_unshared(tensor, tensor.meta.shape[new_dims:])
    return expand_to(tensor, shape)


def cast_to(tensor: Tensor, layout: Meta) -> Tensor:
    """Convert `tensor` to the dtype of `layout`."""
    if tensor.meta.dtype is layout.dtype:
        return tensor
    return call(registry["copy"], (tensor,), (layout.dtype,))


def _raise_on_nan(node: Node, grads: Sequence[Tensor | None]) -> None:
    """Raise `AnomalyError` if a gradient has NaN."""
    for position, grad in zip(node.recipe.edges, grads, strict=False):
        if grad is not None and grad.meta.dtype.kind == "f" and grad.meta.numel:
            total = call(registry["sum"], (call(registry["isnan"], (grad,)),), (None, False, None))
            if total.item():
                where = f"\nThe forward call was made here:\n{node.trace}" if node.trace else ""
                raise AnomalyError(f"backward of {node.name}: the gradient of operand {position} has NaN{where}")
