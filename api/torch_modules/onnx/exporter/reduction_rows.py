"""Rows for reductions that no formula describes, sorting, and scans."""

from __future__ import annotations

import numpy as np

from ...runtime import dtypes
from .conversion import Conversion, Row, RowResult, Rows
from .expressions import convert_reduction, reduce_node, reduced_axes
from .graph import Value

__all__ = ["REDUCTION_ROWS"]


def _operator(op_type: str) -> Row:
    """Return the row of a reduction that is one operator for floating numbers."""

    def row(c: Conversion) -> RowResult:
        dtype = c.results[0].dtype
        if dtype.kind != "f" or c.dtype().kind != "f":
            return convert_reduction(c)
        axes, keepdim = reduced_axes(c)
        return [reduce_node(c.graph, op_type, c.cast_input(0, dtype), axes, keepdim)]

    return row


def _extreme(op_type: str, arg_type: str) -> Row:
    """Return the row of an op that gives the extreme element of a dimension, and its first position."""

    def row(c: Conversion) -> RowResult:
        axes, keepdim = reduced_axes(c)
        if not axes:  # a tensor without dimensions
            return [c.graph.op("Identity", c.input()), c.graph.number(0, dtypes.int64)]
        value, cast_back = _without_bool(c)
        values = cast_back(reduce_node(c.graph, op_type, value, axes, keepdim))
        return [values, c.graph.op(arg_type, value, axis=axes[0], keepdims=int(keepdim))]

    return row


def _arg(op_type: str) -> Row:
    """Return the row of an op that gives the first position of the extreme element."""

    def row(c: Conversion) -> RowResult:
        graph, dim = c.graph, c.static("dim", None)
        value, _ = _without_bool(c)
        if dim is None:
            flat = graph.op("Reshape", value, graph.ints([-1]))
            index = graph.op(op_type, flat, axis=0, keepdims=0)
            shape = [1] * len(c.shape())
            return graph.op("Reshape", index, graph.ints(shape)) if c.static("keepdim", False) and shape else index
        if not c.shape():
            return graph.number(0, dtypes.int64)
        return graph.op(op_type, value, axis=dim, keepdims=int(c.static("keepdim", False)))

    return row


def _without_bool(c: Conversion):  # type: ignore[no-untyped-def]
    """Return the operand, truth values as numbers, and a function that converts back."""
    dtype = c.dtype()
    if dtype is not dtypes.bool_:
        return c.input(), lambda value: value
    return (
        c.graph.cast(c.input(), dtype, dtypes.int32),
        lambda value: c.graph.cast(value, dtypes.int32, dtype),
    )


def _sort(c: Conversion) -> RowResult:
    """All elements of TopK, which keeps equal elements in order."""
    dim = c.static("dim")
    if not c.shape():
        return [c.graph.op("Identity", c.input()), c.graph.number(0, dtypes.int64)]
    size = c.sizes([c.shape()[dim]])
    return c.graph.node("TopK", [c.input(), size], 2, axis=dim, largest=int(c.static("descending")), sorted=1)


def _top(c: Conversion) -> RowResult:
    if not c.shape():
        return [c.graph.op("Identity", c.input()), c.graph.number(0, dtypes.int64)]
    count = c.sizes([c.static("k")])
    return c.graph.node("TopK", [c.input(), count], 2, axis=c.static("dim"), largest=int(c.static("largest")), sorted=1)


def _cumsum(c: Conversion) -> RowResult:
    axis = c.graph.constant(np.array(c.static("dim"), np.int64))
    value = c.cast_input(0, c.results[0].dtype)
    return c.graph.op("CumSum", value, axis, reverse=int(c.static("reverse", False)))


def _logsumexp(c: Conversion) -> RowResult:
    dtype = c.results[0].dtype
    value: Value = c.cast_input(0, dtype)
    return reduce_node(
        c.graph, "ReduceLogSumExp", value, [c.static("dim") % len(c.shape())], c.static("keepdim", False)
    )


REDUCTION_ROWS: Rows = {
    "sum": _operator("ReduceSum"), "mean": _operator("ReduceMean"), "amax": _operator("ReduceMax"),
    "amin": _operator("ReduceMin"), "max_elements": _operator("ReduceMax"), "min_elements": _operator("ReduceMin"),
    "prod": _operator("ReduceProd"), "euclidean_norm": _operator("ReduceL2"),
    "sum_squares": _operator("ReduceSumSquare"), "max_dim": _extreme("ReduceMax", "ArgMax"),
    "min_dim": _extreme("ReduceMin", "ArgMin"), "max_plane": _extreme("ReduceMax", "ArgMax"), "argmax": _arg("ArgMax"),
    "argmin": _arg("ArgMin"), "sort_along": _sort, "top_along": _top, "cumsum": _cumsum, "logsumexp_row": _logsumexp,
}  # fmt: skip
