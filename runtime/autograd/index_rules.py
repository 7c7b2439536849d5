"""Gradients of index ops: reading and adding are each other's, and writing is reading what was written.

gather, take_at        the gradient is added to zeros where the elements came from (`spread`, `spread_at`)
spread, spread_at      the gradient is gathered
scatter_add, put_add   passes to the input; the source's is gathered
scatter, put           the input's is 0 where it was overwritten; the source's is gathered where its write stayed
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from .. import dtypes
from ..context import current_stream
from ..device import Device, meta
from ..dispatch import call, empty
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node

__all__ = ["index_rules"]


def index_rules(record: OpRecord) -> Mapping[str, Rule]:
    """The gradient rules of an index op."""
    functions = _RULES.get(str(record.detail["index"]), {}) if record.outputs[0].differentiable else {}
    return {name: Rule(function=function, operands=("index",)) for name, function in functions.items()}


def _static(node: Node, name: str) -> Any:
    return node.statics[node.recipe.record.statics.index(name)]


def _shape_of(node: Node, position: int) -> tuple[int, ...]:
    return node.recipe.metas[position].shape  # type: ignore[union-attr]


def _unread(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Of gather and take: back to where the elements were read."""
    merged = node.recipe.record.detail["index"] == "take"
    index = values["index"]
    if "skipped" in node.recipe.record.statics:
        # Places outside of the tensor are not written: so the gradient of this gradient leaves them out as well.
        skipped = call(registry["eq"], (index, _static(node, "skipped")))
        index = call(registry["masked_fill"], (index, skipped, -1))
    shape = _shape_of(node, 0)
    if merged:
        statics = (shape, _static(node, "dim"), _static(node, "count"))
        return call(registry["spread_at"], (values["grad"], index), statics)  # type: ignore[no-any-return]
    return call(registry["spread"], (values["grad"], index), (shape, _static(node, "dim")))  # type: ignore[no-any-return]


def _read(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """The gradient at the places that were written."""
    return _read_at(node, values["grad"], values["index"])


def _read_at(node: Node, whole: Tensor, index: Tensor) -> Tensor:
    if "count" in node.recipe.record.statics:
        statics = (_static(node, "dim"), _static(node, "count"))
        return call(registry["take_at"], (whole, index), statics)  # type: ignore[no-any-return]
    return call(registry["gather"], (whole, index), (_static(node, "dim"),))  # type: ignore[no-any-return]


def _passed(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    return values["grad"]  # type: ignore[no-any-return]


def _left(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Zero at the places that were overwritten."""
    grad = values["grad"]
    zero = empty(meta(grad.meta.dtype, (1,) * len(_shape_of(node, 2)), None, grad.meta.device))
    zero = call(registry["zero_like"], (zero,))
    zeros = call(registry["expand"], (zero,), (_shape_of(node, 2),))
    return call(node.recipe.record, (grad, values["index"], zeros), node.statics)  # type: ignore[no-any-return]


def _stayed(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Of a write: the gradient at its place, and 0 for writes that a later one replaced.

    Every write leaves its number behind; those that find their own number again have stayed.
    """
    index = values["index"]
    grad = _read(node, values, position)
    if index.meta.numel < 2 or not grad.meta.numel:
        return grad
    whole, merged = node.recipe.metas[0], "count" in node.recipe.record.statics
    numbers = _arange(index.meta.numel, index.meta.device)
    record = node.recipe.record
    if merged:
        dim, count = _static(node, "dim"), _static(node, "count")
        ours = meta(dtypes.int64, whole.shape[dim : dim + count], None, index.meta.device)  # type: ignore[union-attr]
        numbers = reshape(numbers, index.meta.shape)
        board = call(record, (empty(ours), index, numbers), (0, count))
        mine = call(registry["eq"], (call(registry["take_at"], (board, index), (0, count)), numbers))
        mine = reshape(mine, (*index.meta.shape, *(1,) * (whole.ndim - dim - count)))  # type: ignore[union-attr]
    else:
        ours = meta(dtypes.int64, whole.shape, None, index.meta.device)  # type: ignore[union-attr]
        numbers = reshape(numbers, index.meta.shape)
        board = call(record, (empty(ours), index, numbers), node.statics)
        mine = call(registry["eq"], (call(registry["gather"], (board, index), node.statics), numbers))
    return call(registry["where"], (mine, grad, 0.0))  # type: ignore[no-any-return]


def _arange(count: int, device: Device) -> Tensor:
    made = empty(meta(dtypes.int64, (count,), None, device))
    device.driver.write(made.storage, 0, np.arange(count), current_stream(device))
    return made


_WRITES = {"input": _left, "source": _stayed}
_ADDS = {"input": _passed, "source": _read}
_RULES: dict[str, dict[str, Any]] = {
    "gather": {"input": _unread}, "take": {"input": _unread}, "spread": {"source": _read},
    "spread_taken": {"source": _read},
    "scatter": _WRITES, "put": _WRITES, "scatter_add": _ADDS, "put_add": _ADDS,
}  # fmt: skip
