"""Gradients of window ops: sums over windows and over the windows that an element is in are each other's.

average_windows, window_columns     the transposed op (`average_windows_back`, `window_sums`), and the other way round
max_windows                         each element sums what came to the windows that it was the largest of
max_windows_back                    is linear in what came: its gradient is gathered at the indices
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod
from typing import Any

from ..device import Meta
from ..dispatch import call
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node, seed_name

__all__ = ["window_rules"]


def window_rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rule of a window op's first operand."""
    name = str(record.detail["gradient"])
    if not name:
        return {}
    operand = record.operands[0].name
    if name == "gather":
        return {operand: Rule(function=_gathered, operands=("indices",))}
    read = tuple(o.name for o in registry[name].operands[1:])
    return {operand: Rule(function=_transposed, operands=(seed_name(record, 0), *read))}


def _transposed(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """The op that `gradient` names, for the operand's size."""
    record = node.recipe.record
    target = registry[str(record.detail["gradient"])]
    layout = node.recipe.metas[position]
    assert isinstance(layout, Meta)
    own = dict(zip(record.statics, node.statics, strict=True))
    given = own["size"]
    if target.detail["over"] == "taps":  # columns: as many windows as fit what they were summed to
        own["size"] = tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(
                given, own["kernel"], own["stride"], own["padding"], own["dilation"], strict=True
            )
        )
    else:
        own["size"] = layout.shape[-len(given) :]
    operands = (values[seed_name(record, 0)], *(values[o.name] for o in target.operands[1:]))
    return call(target, operands, tuple(own[n] for n in target.statics))  # type: ignore[no-any-return]


def _gathered(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """The gradient at each window's largest element."""
    grad, indices = values[seed_name(node.recipe.record, 0)], values["indices"]
    rank = len(node.statics[node.recipe.record.statics.index("size")])
    lead, shape = grad.meta.shape[:-rank], indices.meta.shape
    flat = reshape(grad, (*lead, prod(grad.meta.shape[-rank:])))
    places = reshape(indices, (*lead, prod(shape[-rank:])))
    return reshape(call(registry["gather"], (flat, places), (len(lead),)), shape)
