"""Gradients of views: the inverse geometry where there is one, else the gradient written into zeros."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..device import Meta, meta
from ..dispatch import call, call_into, empty
from ..errors import NotSupported
from ..layout import dense, has_internal_overlap, normalize_dim
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node
from .rules import sum_to

__all__ = ["view_rules"]


def view_rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rule of a view op."""
    return {"input": Rule(function=_gradient, operands=())}


def _gradient(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    layout = node.recipe.metas[0]
    assert isinstance(layout, Meta)
    name = str(node.recipe.record.detail["view"])
    return _INVERSE.get(name, _scatter)(node, values["grad"], layout)


def _reshape(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    return reshape(grad, layout.shape)


def _permute(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    order = [normalize_dim(d, layout.ndim, "permute") for d in node.statics[0]]
    inverse = tuple(order.index(d) for d in range(layout.ndim))
    return call(registry["permute"], (grad,), (inverse,))  # type: ignore[no-any-return]


def _again(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    return call(node.recipe.record, (grad,), node.statics)  # type: ignore[no-any-return]


def _expand(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    return sum_to(grad, layout.shape)


def zeros(layout: Meta, *, keep_strides: bool = False) -> Tensor:
    """Zeros in the shape of `layout`, contiguous or with its strides."""
    made = empty(layout if keep_strides else meta(layout.dtype, layout.shape, None, layout.device))
    if made.meta.numel:
        call_into(registry["fill"], (made, 0.0), (), (made,), in_place=False)
    return made


def _scatter(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    whole = zeros(layout)
    target = call(node.recipe.record, (whole,), node.statics)
    if grad.meta.numel:
        call_into(registry["copy"], (grad,), (None,), (target,), in_place=True)
    return whole


def _as_strided(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    size, stride, offset = node.statics
    repeated = tuple(d for d, (n, s) in enumerate(zip(size, stride, strict=True)) if s == 0 and n > 1)
    if repeated:
        grad = call(registry["sum"], (grad,), (repeated, True, None))
        size = tuple(1 if d in repeated else n for d, n in enumerate(size))
    made = meta(layout.dtype, size, stride, layout.device)
    if has_internal_overlap(made) or not dense(layout):
        raise NotSupported(
            f"backward of as_strided: size {list(size)} with strides {list(stride)} visits elements of a tensor "
            f"of shape "
            f"{list(layout.shape)} and strides {list(layout.strides)} more than once; use unfold() or gather()"
        )
    whole = zeros(layout, keep_strides=True)
    target = call(node.recipe.record, (whole,), (size, stride, offset))
    if grad.meta.numel:
        call_into(registry["copy"], (grad,), (None,), (target,), in_place=True)
    return whole


def _unfold(node: Node, grad: Tensor, layout: Meta) -> Tensor:
    dim, size, step = node.statics
    at = normalize_dim(dim, layout.ndim, "unfold")
    whole = zeros(layout)
    count = grad.meta.shape[at]
    for k in range(size):  # windows overlap, but the k-th elements of all windows do not
        target = call(registry["slice"], (whole,), (at, k, k + (count - 1) * step + 1, step))
        piece = call(registry["select"], (grad,), (-1, k))
        call_into(registry["add"], (target, piece), (), (target,), in_place=True)
    return whole


_INVERSE: dict[str, Callable[[Node, Tensor, Meta], Tensor]] = {
    "view": _reshape, "squeeze": _reshape, "unsqueeze": _reshape, "alias": _again, "flip": _again, "transpose": _again,
    "permute": _permute, "expand": _expand, "as_strided": _as_strided, "unfold": _unfold,
}  # fmt: skip
