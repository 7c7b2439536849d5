"""Gradients of index ops: reading and adding are each other's, and writing is reading what was written.

gather, take_at        the gradient is added to zeros where the elements came from (`spread`, `spread_at`)
spread, spread_at      the gradient is gathered
bag_sums               the bag's gradient is added where its rows came from
scatter_add, put_add   passes to the input; the source's is gathered
scatter, put           the input's is 0 where it was overwritten; the source's is gathered where its write stayed
…_multiply             times the product of everything else that meets at the place
…_maximum, …_minimum   to those that are the result, in equal parts

Every gradient is made of ops, and so has gradients itself. That of a product does not divide by zero: factors that are
0 are counted and set aside, so first and second derivatives are right with any number of them.
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
    pattern = str(record.detail["index"])
    if not record.outputs[0].differentiable:
        return {}
    if pattern.endswith("_multiply"):
        return {
            "input": Rule(function=_times_others, operands=("index", "source")),
            "source": Rule(function=_times_rest, operands=("input", "index", "source")),
        }
    if pattern.endswith(("_maximum", "_minimum")):
        reads = ("input", "index", "source", record.outputs[0].name)
        return {"input": Rule(function=_kept, operands=reads), "source": Rule(function=_won, operands=reads)}
    if pattern == "bag_sums":
        return {"input": Rule(function=_unbagged, operands=("index", "offsets"))}
    functions = _RULES.get(pattern, {})
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
    grad = values["grad"]
    if node.recipe.record.name == "embedding_shared":
        grad = _shared(node, grad, index)
    shape = _shape_of(node, 0)
    if merged:
        statics = (shape, _static(node, "dim"), _static(node, "count"))
        return call(registry["spread_at"], (grad, index), statics)  # type: ignore[no-any-return]
    return call(registry["spread"], (grad, index), (shape, _static(node, "dim")))  # type: ignore[no-any-return]


def _unbagged(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Of sums or means over bags: each bag's gradient, in parts for a mean, at all the rows that were read for it."""
    index, offsets, grad = values["index"], values["offsets"], values["grad"]
    bag = call(registry["bag_of"], (offsets,), (index.meta.numel,))
    if (skipped := _static(node, "skipped")) >= 0:
        index = call(registry["masked_fill"], (index, call(registry["eq"], (index, skipped)), -1))
        bag = call(registry["masked_fill"], (bag, call(registry["eq"], (index, -1)), -1))
    if _static(node, "mean"):
        ones = call(registry["full_like_as"], (bag, 1), (dtypes.int64,))
        counts = call(registry["spread_at"], (ones, bag), ((grad.meta.shape[0],), 0, 1))
        counts = reshape(call(registry["clamp_min"], (counts, 1)), (grad.meta.shape[0], 1))
        grad = call(registry["true_divide"], (grad, counts))
    rows = call(registry["take_at"], (grad, bag), (0, 1))
    return call(registry["spread_at"], (rows, index), (_shape_of(node, 0), 0, 1))  # type: ignore[no-any-return]


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


def _shared(node: Node, grad: Tensor, index: Tensor) -> Tensor:
    """The gradient of rows that were read, divided by how often each was."""
    rows = _shape_of(node, 0)[:1]
    ones = call(registry["full_like_as"], (index, 1), (dtypes.int64,))
    counts = call(registry["spread_at"], (ones, index), (rows, 0, 1))
    own = call(registry["take_at"], (counts, index), (0, 1))
    own = call(registry["clamp_min"], (own, 1))  # rows that pass nothing on are read at no place: 0
    return call(registry["true_divide"], (grad, reshape(own, (*own.meta.shape, 1))))  # type: ignore[no-any-return]


# Products and extremes ------------------------------------------------------------------------------------------------


def _meets(node: Node, does: str, whole: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """`whole` after `source` was added (say) where the node's op writes."""
    merged = "count" in node.recipe.record.statics
    record = registry[f"put_{does}_at" if merged else f"scatter_{does}"]
    return call(record, (whole, index, source), node.statics)  # type: ignore[no-any-return]


def _times_others(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Of a product's input: times what it was multiplied by."""
    grad = values["grad"]
    ones = call(registry["full_like_as"], (grad, 1.0), (None,))
    others = _meets(node, "multiply", ones, values["index"], values["source"])
    return call(registry["mul"], (grad, others))  # type: ignore[no-any-return]


def _times_rest(node: Node, values: Mapping[str, Any], position: int) -> Tensor:
    """Of a product's source: times the product of everything else at its place.

    That is the product of the factors that are not 0, without its own, times the zeros beside it: none of them leaves
    1, one leaves that factor itself (it is their sum: 0, whose derivative is 1), and more leave nothing.
    """
    whole, index, source, grad = values["input"], values["index"], values["source"], values["grad"]
    zero = call(registry["eq"], (source, 0))
    rest = call(registry["where"], (zero, 1.0, source))
    found = call(registry["mul"], (grad, _meets(node, "multiply", whole, index, rest)))
    zeros = call(registry["where"], (zero, source, 0.0))
    truth = call(registry["copy"], (zero,), (source.meta.dtype,))
    none = call(registry["zero_like"], (whole,))
    beside = _read_at(node, _meets(node, "add", none, index, zeros), index)
    beside = call(registry["sub"], (beside, zeros))
    count = call(registry["sub"], (_read_at(node, _meets(node, "add", none, index, truth), index), truth))
    beside = call(registry["where"], (call(registry["eq"], (count, 1)), beside, 0.0))
    beside = call(registry["where"], (call(registry["eq"], (count, 0)), 1.0, beside))
    found = call(registry["true_divide"], (_read_at(node, found, index), rest))
    return call(registry["mul"], (found, beside))  # type: ignore[no-any-return]


def _parts(node: Node, values: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient in equal parts for all that are the result, and which elements of input and source these are."""
    if "parts" in values:  # made for the other operand
        return values["parts"]  # type: ignore[no-any-return]
    index, result = values["index"], values[node.recipe.record.outputs[0].name]
    kept = call(registry["eq"], (values["input"], result))
    won = call(registry["eq"], (values["source"], _read_at(node, result, index)))
    like = (values["grad"].meta.dtype,)
    count = _meets(node, "add", call(registry["copy"], (kept,), like), index, call(registry["copy"], (won,), like))
    values["parts"] = found = call(registry["true_divide"], (values["grad"], count)), kept, won
    return found


def _kept(node: Node, values: dict[str, Any], position: int) -> Tensor:
    parts, kept, _ = _parts(node, values)
    return call(registry["where"], (kept, parts, 0.0))  # type: ignore[no-any-return]


def _won(node: Node, values: dict[str, Any], position: int) -> Tensor:
    parts, _, won = _parts(node, values)
    return call(registry["where"], (won, _read_at(node, parts, values["index"]), 0.0))  # type: ignore[no-any-return]


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
