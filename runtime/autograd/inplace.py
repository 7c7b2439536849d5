"""Autograd history of tensors that were written in place.

A tensor becomes the result of the call that wrote it. If it is a view, its base becomes the result of "copy these
elements into that slice". Every view of that base gets a new history from the base's when it is next needed
(`refresh`), so gradients are correct for all aliases of the memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..device import Meta, meta
from ..dispatch import call, call_into, empty
from ..errors import GradientError
from ..records import Operand, OpRecord, registry
from ..tensor import Extra, Tensor
from .node import Node, Recipe
from .rules import gradients_of

if TYPE_CHECKING:
    from ..call_types import BackwardFunction, Edge

__all__ = ["Retained", "check", "copy_before_write", "rebase", "refresh"]

_COPY_SLICE = OpRecord("copy_slice", "custom", (Operand("base"),), gradients={})


def check(record: OpRecord, out: Tensor) -> None:
    """Raise `GradientError` if `out` is a leaf that requires a gradient, or a view of one."""
    base = out.extra.base if out.extra is not None else None
    if out.needs_grad and out.node is None:
        raise GradientError(
            f"{record.name}_: a leaf tensor that requires grad is being written in place, so its gradient would be "
            "lost; do it under no_grad(), or on a clone()"
        )
    # A view of a leaf that is itself a view has that leaf's base. It requires gradients, and the base has no history.
    if base is not None and base.storage is out.storage and (out.needs_grad or base.needs_grad) and base.node is None:
        raise GradientError(
            f"{record.name}_: a view of a leaf tensor that requires grad is being written in place; "
            "do it under no_grad(), or on a clone()"
        )


def copy_before_write(target: Tensor) -> Tensor:
    """Return a copy of `target` with the same history, for backward, before `target` is written in place."""
    saved: Tensor = call(registry["copy"], (Tensor(target.storage, target.meta, target.start),), (None,))
    saved.node, saved.output, saved.needs_grad = target.node, target.output, target.needs_grad
    return saved


def refresh(view: Tensor) -> None:
    """Make a view whose base was written in place a slice of the base's current value."""
    extra = view.extra
    assert extra is not None
    assert extra.base is not None
    assert extra.base.extra is not None
    base = extra.base
    extra.seen_rewrites = extra.base.extra.rewrites
    if base.storage is not view.storage:  # the base has got other memory: this tensor is no view of it any more
        extra.base = None
        return
    if view.needs_grad and view.node is None and not base.needs_grad:  # a leaf that shares its memory with a constant
        return
    old_node, view.needs_grad = view.node, base.needs_grad
    if base.needs_grad:
        view.node = Node(_view_recipe(base, view), (base,), (view,), _as_strided_args(base, view))
        view.output = 0
    else:
        view.node = None
    _move_retained_hook(view, old_node)


def _as_strided_args(base: Tensor, view: Tensor) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return the arguments of `as_strided` that turn `base` into `view`."""
    return (view.meta.shape, view.meta.strides, (view.start - base.start) // view.meta.dtype.itemsize)


def _view_recipe(base: Tensor, view: Tensor) -> Recipe:
    record = registry["as_strided"]
    rule = registry.gradients(record)["input"]
    return Recipe(record, (base.meta,), (view.meta,), [(0, rule)], (True,), _as_strided_args(base, view))


def rebase(out: Tensor, node: Node | None) -> None:
    """Make `node` the history of `out`, which was just written.

    Args:
        out: The tensor.
        node: The call that wrote it; None if it wrote a constant. A tensor with a history then keeps an edge to it,
            with gradients of 0.
    """
    extra, old_node = out.extra, out.node
    base = extra.base if extra is not None else None
    if extra is not None and base is not None and base.storage is not out.storage:  # the base has got other memory
        base = extra.base = None
    if base is None:
        if node is None or (out.node is not None and node.recipe.record.name == "copy"):
            node = _overwrite_node(out, node)
        out.node, out.output, out.needs_grad = node, 0, True
        if extra is not None:
            extra.rewrites += 1
            _move_retained_hook(out, old_node)
        return
    if not base.needs_grad and node is None:
        return
    slice_node, old_base_node = _slice_node(base, out, node), base.node
    base.node, base.output, base.needs_grad = slice_node, 0, True
    base.ensure_extra().rewrites += 1
    _move_retained_hook(base, old_base_node)
    refresh(out)


class Retained:
    """The hook of `retain_grad`: adds a copy of the result's gradient to `grad`, after all other hooks have run."""

    __slots__ = ("_extra",)

    def __init__(self, extra: Extra):
        self._extra = extra

    def __call__(self, grad: Tensor) -> None:
        total = self._extra.grad
        self._extra.grad = call(registry["copy"], (grad,), (None,)) if total is None else total + grad


def _move_retained_hook(out: Tensor, old_node: Node | None) -> None:
    """Move the hook of `retain_grad` from the old node of `out` to its new one."""
    assert out.extra is not None
    if out.extra.retains and out.node is not None:
        key, hook = out.extra.retains
        if old_node is not None and old_node.hooks:
            old_node.hooks.pop(key, None)
        out.node.hooks = out.node.hooks or {}
        out.node.hooks[key] = (out.output, hook)


def _overwrite_node(out: Tensor, source: Node | None) -> Node:
    """Return the node of a tensor whose elements were all overwritten by a constant, or by the copy `source`.

    The old history gets gradients of 0, so that it is not reported as unused.
    """
    node = Node(Recipe(_COPY_SLICE, (out.meta,), (out.meta,), (), (True,)), (), (), ())
    assert out.node is not None  # `check` has refused a leaf that requires a gradient
    node.edges = ((out.node, out.output), *(() if source is None else source.edges))

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        copied = () if source is None else gradients_of(source, grads)
        return [call(registry["zero_like"], (grads[0],)), *copied]

    node.function = _InplaceBackward(backward, source)
    return node


class _InplaceBackward:
    """The backward function of an in-place write, including the call that computed the written values."""

    def __init__(self, backward: BackwardFunction, inner: Node | None):
        self._backward, self._inner = backward, inner

    def __call__(self, node: Node, grads: Sequence[Tensor | None]) -> Sequence[Tensor | None]:
        return self._backward(node, grads)

    def release(self) -> None:
        if self._inner is not None:
            self._inner.release()


def _slice_node(base: Tensor, view: Tensor, inner: Node | None) -> Node:
    """Return the node of `base` after `inner` has written `view`, a view of it.

    Its edges are the base's old history, and the operands of `inner` except the view itself. The gradient of the old
    base is the gradient with the slice replaced by the gradient that `inner` returns for the view, or by 0 if `inner`
    has overwritten it.
    """
    recipe = Recipe(_COPY_SLICE, (base.meta,), (base.meta,), (), (True,))
    node = Node(recipe, (), (), ())
    view_edge = 0 if inner is not None and 0 in inner.recipe.edges and inner.recipe.edges[0] == 0 else None
    if inner is not None and inner.recipe.record.name == "copy":
        view_edge = None  # copy_(view, source): the only operand is the source
    other_edges = () if inner is None else tuple(e for k, e in enumerate(inner.edges) if k != view_edge)
    base_edge: Edge = (base.node, base.output) if base.node is not None else (base, 0)
    wants_base = base.needs_grad
    node.edges = ((base_edge,) if wants_base else ()) + other_edges
    geometry = _as_strided_args(base, view)
    base_layout = base.meta

    def backward(_: Node, grads: Sequence[Tensor | None]) -> list[Tensor | None]:
        grad = grads[0]
        assert grad is not None
        gradients: list[Tensor | None] = []
        grad_slice = call(registry["as_strided"], (_with_strides(grad, base_layout),), geometry)
        inner_grads = list(gradients_of(inner, [grad_slice])) if inner is not None else []
        if wants_base:
            grad_base = _with_strides(grad, base_layout, copy=True)
            target = call(registry["as_strided"], (grad_base,), geometry)
            if view_edge is None:
                call_into(registry["fill"], (target, 0.0), (), (target,), in_place=True)
            else:
                call_into(registry["copy"], (inner_grads[view_edge],), (None,), (target,), in_place=True)
            gradients.append(grad_base)
        gradients += [p for k, p in enumerate(inner_grads) if k != view_edge]
        return gradients

    node.function = _InplaceBackward(backward, inner)
    return node


def _with_strides(grad: Tensor, layout: Meta, *, copy: bool = False) -> Tensor:
    """Return `grad` with the strides of `layout`, which `as_strided` of a slice needs; copy if `copy` or necessary."""
    if grad.meta.strides == layout.strides and not copy:
        return grad
    strided = empty(meta(grad.meta.dtype, layout.shape, layout.strides, layout.device))
    return call_into(registry["copy"], (grad,), (None,), (strided,), in_place=True)
