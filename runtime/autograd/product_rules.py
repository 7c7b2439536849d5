"""The gradient of `prod`: what arrives, times the product of the other elements.

Where the gradient itself is recorded, that product is made of multiplications alone, up and down a binary tree of the
elements, so that derivatives of every order are right, whichever and however many elements are 0. Where it is not, one
kernel divides the product by the element, and treats zeros by their number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ..context import state
from ..device import Meta, meta
from ..dispatch import call, call_into, empty
from ..dtypes import DType, float32
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node
from .rules import reduction_gradient

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rule of `prod`."""
    assert record.gradients is not None
    return {name: replace(rule, function=_gradient) for name, rule in record.gradients.items()}


def _gradient(node: Node, values: dict[str, Any], position: int) -> Tensor | None:
    each = node.recipe.applications[0]
    if not state().grad or not each.layout.numel:
        return reduction_gradient(node, values, each)
    kept, whole = each.kept, each.whole
    reduced = [d for d, n in enumerate(kept) if n != whole[d]]
    order = (*reduced, *(d for d in range(len(whole)) if d not in reduced))
    rows = reshape(call(registry["permute"], (_computed(values["input"], node),), (order,)), (each.count, -1))
    others = call(registry["permute"], (reshape(_others(rows), tuple(whole[d] for d in order)),), (_inverse(order),))
    return call(registry["mul"], (reshape(values["grad"], kept), others))  # type: ignore[no-any-return]


def _computed(tensor: Tensor, node: Node) -> Tensor:
    """`tensor` in the dtype in which its elements are multiplied: that of the result, float32 for half types."""
    result = node.recipe.out_metas[0]
    assert isinstance(result, Meta)
    wanted: DType = result.dtype if result.dtype.itemsize > 2 else float32
    return tensor if tensor.meta.dtype is wanted else call(registry["copy"], (tensor,), (wanted,))


def _inverse(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def _others(x: Tensor) -> Tensor:
    """For each element of a column of `x` the product of the others."""
    count, columns = x.meta.shape
    size = 1 << max(0, count - 1).bit_length()
    if size == 1:
        return call(registry["full_like_as"], (x, 1.0), (None,))  # type: ignore[no-any-return]
    if size != count:
        padded = empty(meta(x.meta.dtype, (size, columns), None, x.meta.device))
        call_into(registry["fill"], (padded, 1.0), (), (padded,), in_place=False)
        call_into(registry["copy"], (x,), (None,), (_part(padded, 0, count),), in_place=True)
        x = padded
    # Up: products of neighbours. Down: what an element is multiplied by is its neighbour, and what they both are.
    swapped: list[Tensor] = []
    while size > 1:
        size //= 2
        pairs = reshape(x, (size, 2, columns))
        swapped.append(call(registry["flip_view"], (pairs,), ((1,),)))
        x = call(registry["mul"], tuple(call(registry["select"], (pairs,), (1, k)) for k in (0, 1))) if size > 1 else x
    found = reshape(swapped.pop(), (2, columns))
    while swapped:
        size = found.meta.shape[0]
        both = call(registry["mul"], (swapped.pop(), reshape(found, (size, 1, columns))))
        found = reshape(both, (2 * size, columns))
    return _part(found, 0, count)


def _part(tensor: Tensor, start: int, stop: int) -> Tensor:
    return call(registry["slice"], (tensor,), (0, start, stop, 1))  # type: ignore[no-any-return]
