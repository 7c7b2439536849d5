"""Gradients of window ops (pooling, unfold).

average_windows, window_columns     the transposed op (`average_windows_back`, `window_sums`), and vice versa
max_windows                         each element sums the gradients of the windows whose maximum it is
max_windows_back                    linear in the gradient, so its own gradient is gathered at the indices
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node, seed_name

__all__ = ["window_rules"]


def window_rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rule of a window op's first operand."""
    name = str(record.detail["gradient"])
    if not name:
        return {}
    operand = record.operands[0].name
    if name == "gather":
        return {operand: Rule(function=_gather_at_maxima, operands=("indices",))}
    reads = tuple(o.name for o in registry[name].operands[1:])
    return {operand: Rule(function=_transposed_op, operands=(seed_name(record, 0), *reads))}


def _transposed_op(node: Node, values: Mapping[str, Tensor | None], position: int) -> Tensor:
    """Run the op that the record's `gradient` names, for the operand's size."""
    record = node.recipe.record
    target = registry[str(record.detail["gradient"])]
    layout = node.operand_layout(position)
    static_values = dict(zip(record.statics, node.statics, strict=True))
    size = static_values["size"]
    if target.detail["over"] == "taps":  # columns: one for each window that fits into the size they were summed to
        static_values["size"] = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(
                size,
                static_values["kernel"],
                static_values["stride"],
                static_values["padding"],
                static_values["dilation"],
                strict=True,
            )
        )
    else:
        static_values["size"] = layout.shape[-len(size) :]
    operands = (values[seed_name(record, 0)], *(values[o.name] for o in target.operands[1:]))
    return call(target, operands, tuple(static_values[n] for n in target.statics))


def _gather_at_maxima(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gather the gradient at each window's largest element."""
    grad, indices = values[seed_name(node.recipe.record, 0)], values["indices"]
    rank = len(node.static("size"))
    batch_shape, shape = grad.meta.shape[:-rank], indices.meta.shape
    flat = reshape(grad, (*batch_shape, prod(grad.meta.shape[-rank:])))
    flat_indices = reshape(indices, (*batch_shape, prod(shape[-rank:])))
    return reshape(call(registry["gather"], (flat, flat_indices), (len(batch_shape),)), shape)
