"""Gradients of index ops: that of a gather is a scatter-add, that of a scatter is a gather.

gather, take_at        scatter-add of the gradient into zeros (`spread`, `spread_at`)
spread, spread_at      gather of the gradient
bag_sums               scatter-add of each bag's gradient to the rows of the bag
scatter_add, put_add   input: the gradient itself; source: gather
scatter, put           input: the gradient, 0 where elements were overwritten; source: gather, 0 for writes that a
                       later write replaced
…_multiply             the gradient times the product of all other factors of the element
…_maximum, …_minimum   equal shares for all elements that attain the extreme

Every gradient consists of ops, so it has gradients itself. The gradient of a product does not divide by zero: factors
that are 0 are counted and treated separately, so first and second derivatives are correct with any number of zeros.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import dtypes
from ..device import meta
from ..dispatch import call, empty
from ..records import OpRecord, Rule, registry
from ..tensor import Tensor
from ..views import reshape
from .node import Node
from .rules import arange

if TYPE_CHECKING:
    from ..call_types import GradientFunction, SavedValues

__all__ = ["index_rules"]


def index_rules(record: OpRecord) -> Mapping[str, Rule]:
    """Return the gradient rules of an index op."""
    pattern = str(record.detail["index"])
    if not record.outputs[0].differentiable:
        return {}
    if pattern.endswith("_multiply"):
        return {
            "input": Rule(function=_multiply_by_product, operands=("index", "source")),
            "source": Rule(function=_multiply_by_other_factors, operands=("input", "index", "source")),
        }
    if pattern.endswith(("_maximum", "_minimum")):
        reads = ("input", "index", "source", record.outputs[0].name)
        return {
            "input": Rule(function=_share_of_input, operands=reads),
            "source": Rule(function=_share_of_source, operands=reads),
        }
    if pattern == "bag_sums":
        return {"input": Rule(function=_scatter_to_bag_rows, operands=("index", "offsets"))}
    functions = _RULES.get(pattern, {})
    return {name: Rule(function=function, operands=("index",)) for name, function in functions.items()}


def _shape_of(node: Node, position: int) -> tuple[int, ...]:
    return node.operand_layout(position).shape


def _static(node: Node, name: str, default: object) -> object:
    """Return a static argument, which the call may have left out at the end."""
    return dict(zip(node.recipe.record.statics, node.statics, strict=False)).get(name, default)


def _read_statics(node: Node) -> tuple[object, ...]:
    """Return the static arguments of `gather` or `take_at` at the node's indices."""
    dims = _dims(node)
    return (*dims, False, 0, True) if _static(node, "negative", False) else dims


def _dims(node: Node) -> tuple[object, ...]:
    """Return the static arguments that name the indexed dimensions."""
    return tuple([node.static(name) for name in ("dim", "count") if name in node.recipe.record.statics])


def _write_statics(node: Node) -> tuple[object, ...]:
    """Return the static arguments of the node's own op, without the check of the indices, which it has made."""
    statics = dict(zip(node.recipe.record.statics, node.statics, strict=False))
    return tuple(0 if name == "check" else value for name, value in statics.items())


def _scatter_to_read(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gradient of gather and take: add to the elements that were read."""
    is_flattened = node.recipe.record.detail["index"] == "take"
    index = values["index"]
    if "skipped" in node.recipe.record.statics:
        # Indices outside the tensor are not written, and the gradient of this gradient does not read them either.
        is_skipped = call(registry["eq"], (index, node.static("skipped")))
        index = call(registry["masked_fill"], (index, is_skipped, -1))
    grad = values["grad"]
    if node.recipe.record.name == "embedding_shared":
        grad = _divide_by_row_counts(node, grad, index)
    record = registry["spread_at" if is_flattened else "spread"]
    negative = (True,) if _static(node, "negative", False) else ()
    return call(record, (grad, index), (_shape_of(node, 0), *_dims(node), *negative))


def _scatter_to_bag_rows(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gradient of sums or means over bags: add each bag's gradient to the rows of the bag, divided for a mean."""
    index, offsets, grad = values["index"], values["offsets"], values["grad"]
    bag = call(registry["bag_of"], (offsets,), (index.meta.numel,))
    if (skipped := node.static("skipped")) >= 0:
        index = call(registry["masked_fill"], (index, call(registry["eq"], (index, skipped)), -1))
        bag = call(registry["masked_fill"], (bag, call(registry["eq"], (index, -1)), -1))
    if node.static("mean"):
        ones = call(registry["full_like_as"], (bag, 1), (dtypes.int64,))
        counts = call(registry["spread_at"], (ones, bag), ((grad.meta.shape[0],), 0, 1))
        counts = reshape(call(registry["clamp_min"], (counts, 1)), (grad.meta.shape[0], 1))
        grad = call(registry["true_divide"], (grad, counts))
    rows = call(registry["take_at"], (grad, bag), (0, 1))
    return call(registry["spread_at"], (rows, index), (_shape_of(node, 0), 0, 1))


def _gather_written(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Return the gradient of the elements that were written."""
    return _gather_at(node, values["grad"], values["index"])


def _gather_at(node: Node, tensor: Tensor, index: Tensor) -> Tensor:
    record = registry["take_at" if "count" in node.recipe.record.statics else "gather"]
    return call(record, (tensor, index), _read_statics(node))


def _pass_through(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    return values["grad"]


def _zero_overwritten(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Return the gradient with 0 for the elements that were overwritten."""
    grad = values["grad"]
    scalar_zero = empty(meta(grad.meta.dtype, (1,) * len(_shape_of(node, 2)), None, grad.meta.device))
    scalar_zero = call(registry["zero_like"], (scalar_zero,))
    zeros = call(registry["expand"], (scalar_zero,), (_shape_of(node, 2),))
    return call(node.recipe.record, (grad, values["index"], zeros), _write_statics(node))


def _gather_surviving_writes(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gradient of the source of a scatter: the gradient of its element, or 0 if a later write replaced it.

    Each write stores its number; the writes that read their own number back have survived.
    """
    index = values["index"]
    grad = _gather_written(node, values, position)
    if index.meta.numel < 2 or not grad.meta.numel:
        return grad
    input_layout, is_flattened = node.operand_layout(0), "count" in node.recipe.record.statics
    numbers = arange(index.meta.shape, index.meta.device)
    record, read_statics, write_statics = node.recipe.record, _read_statics(node), _write_statics(node)
    if is_flattened:
        dim, count = node.static("dim"), node.static("count")
        number_layout = meta(dtypes.int64, input_layout.shape[dim : dim + count], None, index.meta.device)
        last_writer = call(record, (empty(number_layout), index, numbers), (0, *write_statics[1:]))
        numbers_read = call(registry["take_at"], (last_writer, index), (0, *read_statics[1:]))
        survives = call(registry["eq"], (numbers_read, numbers))
        survives = reshape(survives, (*index.meta.shape, *(1,) * (input_layout.ndim - dim - count)))
    else:
        number_layout = meta(dtypes.int64, input_layout.shape, None, index.meta.device)
        last_writer = call(record, (empty(number_layout), index, numbers), write_statics)
        numbers_read = call(registry["gather"], (last_writer, index), read_statics)
        survives = call(registry["eq"], (numbers_read, numbers))
    return call(registry["where"], (survives, grad, 0.0))


def _divide_by_row_counts(node: Node, grad: Tensor, index: Tensor) -> Tensor:
    """Divide the gradient of each row by the number of times the row was read."""
    rows = _shape_of(node, 0)[:1]
    ones = call(registry["full_like_as"], (index, 1), (dtypes.int64,))
    counts = call(registry["spread_at"], (ones, index), (rows, 0, 1))
    row_counts = call(registry["take_at"], (counts, index), (0, 1))
    row_counts = call(registry["clamp_min"], (row_counts, 1))  # skipped rows count 0
    return call(registry["true_divide"], (grad, reshape(row_counts, (*row_counts.meta.shape, 1))))


# Products and extremes ------------------------------------------------------------------------------------------------


def _scatter_with(node: Node, operation: str, tensor: Tensor, index: Tensor, source: Tensor) -> Tensor:
    """Scatter `source` into `tensor` at the node's indices, combined by `operation` (`add`, `multiply`, …)."""
    is_flattened = "count" in node.recipe.record.statics
    record = registry[f"put_{operation}_at" if is_flattened else f"scatter_{operation}"]
    return call(record, (tensor, index, source), node.statics)


def _multiply_by_product(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gradient of a product's input: times the product of the sources of the element."""
    grad = values["grad"]
    ones = call(registry["full_like_as"], (grad, 1.0), (None,))
    factors = _scatter_with(node, "multiply", ones, values["index"], values["source"])
    return call(registry["mul"], (grad, factors))


def _multiply_by_other_factors(node: Node, values: Mapping[str, Tensor], position: int) -> Tensor:
    """Gradient of a product's source: times the product of all other factors of the element.

    That is the product of the other nonzero factors, times a factor for the other zeros: 1 if there are none; that zero
    itself if there is one (as the sum of the zeros, which is 0 and has derivative 1); and 0 if there are several.
    """
    input, index, source, grad = values["input"], values["index"], values["source"], values["grad"]
    is_zero = call(registry["eq"], (source, 0))
    nonzero_source = call(registry["where"], (is_zero, 1.0, source))
    product = call(registry["mul"], (grad, _scatter_with(node, "multiply", input, index, nonzero_source)))
    zeros = call(registry["where"], (is_zero, source, 0.0))
    zero_count = call(registry["copy"], (is_zero,), (source.meta.dtype,))
    zeros_like_input = call(registry["zero_like"], (input,))
    other_zeros = _gather_at(node, _scatter_with(node, "add", zeros_like_input, index, zeros), index)
    other_zeros = call(registry["sub"], (other_zeros, zeros))
    other_zero_count = call(
        registry["sub"],
        (_gather_at(node, _scatter_with(node, "add", zeros_like_input, index, zero_count), index), zero_count),
    )
    other_zeros = call(registry["where"], (call(registry["eq"], (other_zero_count, 1)), other_zeros, 0.0))
    other_zeros = call(registry["where"], (call(registry["eq"], (other_zero_count, 0)), 1.0, other_zeros))
    product = call(registry["true_divide"], (_gather_at(node, product, index), nonzero_source))
    return call(registry["mul"], (product, other_zeros))


def _equal_shares(node: Node, values: SavedValues) -> tuple[Tensor, Tensor, Tensor]:
    """Divide the gradient equally among all elements that attain the extreme.

    Returns:
        The shares, and masks of the elements of the input and of the source that attain it.
    """
    if "parts" in values:  # computed for the other operand
        return values["parts"]
    index, result = values["index"], values[node.recipe.record.outputs[0].name]
    input_attains = call(registry["eq"], (values["input"], result))
    source_attains = call(registry["eq"], (values["source"], _gather_at(node, result, index)))
    copy_statics = (values["grad"].meta.dtype,)
    attaining_count = _scatter_with(
        node,
        "add",
        call(registry["copy"], (input_attains,), copy_statics),
        index,
        call(registry["copy"], (source_attains,), copy_statics),
    )
    values["parts"] = shares = (
        call(registry["true_divide"], (values["grad"], attaining_count)),
        input_attains,
        source_attains,
    )
    return shares


def _share_of_input(node: Node, values: SavedValues, position: int) -> Tensor:
    shares, input_attains, _ = _equal_shares(node, values)
    return call(registry["where"], (input_attains, shares, 0.0))


def _share_of_source(node: Node, values: SavedValues, position: int) -> Tensor:
    shares, _, source_attains = _equal_shares(node, values)
    return call(registry["where"], (source_attains, _gather_at(node, shares, values["index"]), 0.0))


_WRITES: dict[str, GradientFunction] = {"input": _zero_overwritten, "source": _gather_surviving_writes}
_ADDS: dict[str, GradientFunction] = {"input": _pass_through, "source": _gather_written}
_RULES: dict[str, dict[str, GradientFunction]] = {
    "gather": {"input": _scatter_to_read}, "take": {"input": _scatter_to_read}, "spread": {"source": _gather_written},
    "spread_taken": {"source": _gather_written},
    "scatter": _WRITES, "put": _WRITES, "scatter_add": _ADDS, "put_add": _ADDS,
}  # fmt: skip
