"""The gradient of `prod`: the incoming gradient times the product of the other elements.

If the gradient itself is recorded, that product is computed by multiplications only, up and down a binary tree over the
elements. So derivatives of every order are correct, no matter how many elements are 0. Otherwise one kernel divides the
product by the element, and handles zeros by their count.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..context import state
from ..device import meta
from ..dispatch import call, call_into, empty
from ..dtypes import float32
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node
from .rules import reduction_gradient

if TYPE_CHECKING:
    from ..call_types import SavedValues

__all__ = ["rules"]


def rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rule of `prod`."""
    assert record.gradients is not None
    return {name: replace(rule, function=_gradient) for name, rule in record.gradients.items()}


def _gradient(node: Node, values: SavedValues, position: int) -> Tensor | None:
    application = node.recipe.applications[0]
    if not state().grad or not application.layout.numel:
        return reduction_gradient(node, values, application)
    keepdim_shape, broadcast_shape = application.keepdim_shape, application.broadcast_shape
    reduced = [d for d, n in enumerate(keepdim_shape) if n != broadcast_shape[d]]
    order = (*reduced, *(d for d in range(len(broadcast_shape)) if d not in reduced))
    rows = reshape(
        call(registry["permute"], (_to_compute_dtype(values["input"], node),), (order,)), (application.count, -1)
    )
    other_products = call(
        registry["permute"],
        (reshape(_products_of_others(rows), tuple(broadcast_shape[d] for d in order)),),
        (_inverse_permutation(order),),
    )
    return call(registry["mul"], (reshape(values["grad"], keepdim_shape), other_products))


def _to_compute_dtype(tensor: Tensor, node: Node) -> Tensor:
    """Convert to the dtype in which elements are multiplied: that of the result, or float32 for half types."""
    result_dtype = node.recipe.out_metas[0].dtype
    compute_dtype = result_dtype if result_dtype.itemsize > 2 else float32
    return tensor if tensor.meta.dtype is compute_dtype else call(registry["copy"], (tensor,), (compute_dtype,))


def _inverse_permutation(order: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(order.index(d) for d in range(len(order)))


def _products_of_others(x: Tensor) -> Tensor:
    """Return, for each element of `x`, the product of the other elements of its column."""
    count, columns = x.meta.shape
    size = 1 << max(0, count - 1).bit_length()
    if size == 1:
        return call(registry["full_like_as"], (x, 1.0), (None,))
    if size != count:
        padded = empty(meta(x.meta.dtype, (size, columns), None, x.meta.device))
        call_into(registry["fill"], (padded, 1.0), (), (padded,), in_place=False)
        call_into(registry["copy"], (x,), (None,), (_slice_rows(padded, 0, count),), in_place=True)
        x = padded
    # Up the tree: products of neighbours. Down: a node's factor is its neighbour, times the factor of their parent.
    swapped: list[Tensor] = []
    while size > 1:
        size //= 2
        pairs = reshape(x, (size, 2, columns))
        swapped.append(call(registry["flip_view"], (pairs,), ((1,),)))
        x = call(registry["mul"], tuple(call(registry["select"], (pairs,), (1, k)) for k in (0, 1))) if size > 1 else x
    products = reshape(swapped.pop(), (2, columns))
    while swapped:
        size = products.meta.shape[0]
        pair_products = call(registry["mul"], (swapped.pop(), reshape(products, (size, 1, columns))))
        products = reshape(pair_products, (2 * size, columns))
    return _slice_rows(products, 0, count)


def _slice_rows(tensor: Tensor, start: int, stop: int) -> Tensor:
    return call(registry["slice"], (tensor,), (0, start, stop, 1))
