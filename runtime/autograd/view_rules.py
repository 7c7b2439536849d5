"""Gradients of views: the inverse view of the gradient if there is one, else zeros with the gradient copied in."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from ..device import Meta, meta
from ..dispatch import call, call_into, empty
from ..errors import NotSupported
from ..layout import has_internal_overlap, is_dense, normalize_dim
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node

__all__ = ["view_rules"]


def view_rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rule of a view op."""
    view = str(record.detail["view"])
    if view in _INVERSE_VIEWS:
        return {"input": Rule(record.name, ("grad",))}
    if view in _SAME_ELEMENTS:
        return {"input": Rule(operands=("grad",))}
    return {"input": Rule(function=_gradient, operands=())}


_INVERSE_VIEWS = ("alias", "flip", "permute", "transpose")  # a view by the same op undoes them
_SAME_ELEMENTS = ("view", "squeeze", "unsqueeze", "expand")  # the gradient is reshaped, or summed, as `rules` does


def _gradient(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    name = str(node.recipe.record.detail["view"])
    return _GRADIENTS.get(name, _scatter)(node, values["grad"], node.operand_layout(0))


def zeros(layout: Meta, *, keep_strides: bool = False) -> Tensor:
    """Return zeros in the shape of `layout`: contiguous, or with the strides of `layout`."""
    tensor = empty(layout if keep_strides else meta(layout.dtype, layout.shape, None, layout.device))
    if tensor.meta.numel:
        call_into(registry["fill"], (tensor, 0.0), (), (tensor,), in_place=False)
    return tensor


def _scatter(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    """Copy the gradient into the same view of zeros, such as `x[2:5]` or a diagonal."""
    grad_input = zeros(layout)
    target = call(node.recipe.record, (grad_input,), node.statics)
    if grad.meta.numel:
        call_into(registry["copy"], (grad,), (None,), (target,), in_place=True)
    return grad_input


def _as_strided(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    """Copy the gradient into the view of zeros with the input's strides, summed over dimensions with stride 0."""
    size, stride, offset = node.statics
    expanded_dims = tuple(d for d, (n, s) in enumerate(zip(size, stride, strict=True)) if s == 0 and n > 1)
    if expanded_dims:
        grad = call(registry["sum"], (grad,), (expanded_dims, True, None))
        size = tuple(1 if d in expanded_dims else n for d, n in enumerate(size))
    view_layout = meta(layout.dtype, size, stride, layout.device)
    if has_internal_overlap(view_layout) or not is_dense(layout):
        raise NotSupported(
            f"backward of as_strided: size {list(size)} with strides {list(stride)} reads elements of a tensor of "
            f"shape {list(layout.shape)} and strides {list(layout.strides)} more than once; use unfold() or gather()"
        )
    grad_input = zeros(layout, keep_strides=True)
    target = call(node.recipe.record, (grad_input,), (size, stride, offset))
    if grad.meta.numel:
        call_into(registry["copy"], (grad,), (None,), (target,), in_place=True)
    return grad_input


def _unfold(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    """Add the k-th elements of all windows at once, for every k."""
    dim, size, step = node.statics
    axis = normalize_dim(dim, layout.ndim, "unfold")
    grad_input = zeros(layout)
    if not layout.ndim:
        return reshape(grad, ()) if size else grad_input
    count = grad.meta.shape[axis]
    for k in range(size):  # windows overlap each other, but their k-th elements do not
        target = call(registry["slice"], (grad_input,), (axis, k, k + (count - 1) * step + 1, step))
        window_elements = call(registry["select"], (grad,), (-1, k))
        call_into(registry["add"], (target, window_elements), (), (target,), in_place=True)
    return grad_input


# The gradients of views that are not slices; `_scatter` has those of all others.
_GRADIENTS: dict[str, Callable[[Node, Tensor, Meta], Tensor]] = {"as_strided": _as_strided, "unfold": _unfold}
