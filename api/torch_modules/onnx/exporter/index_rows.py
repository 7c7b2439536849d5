"""Rows for indexing, joining, triangles and progressions."""

from __future__ import annotations

from ...runtime import dtypes
from .conversion import Conversion, Row, RowResult, Rows
from .dynamic_sizes import Int, product
from .graph import Value
from .view_rows import reshape

__all__ = ["INDEX_ROWS"]


def _merged(c: Conversion, operand: str) -> tuple[Value, tuple[Int, ...]]:
    """Return an operand whose `count` dimensions from `dim` are merged into one, and its shape."""
    dim, count, shape = c.static("dim"), c.static("count"), c.shape(operand)
    if count == 1:
        return c.input(operand), shape
    merged = (*shape[:dim], product(shape[dim : dim + count]), *shape[dim + count :])
    return reshape(c.graph, c.input(operand), shape, merged), merged


def _index(c: Conversion) -> Value:
    """Return the index in int32 or int64: ONNX takes no other integers."""
    return c.input("index") if c.dtype("index") is dtypes.int32 else c.cast_input("index", dtypes.int64)


def _take(c: Conversion) -> RowResult:
    """Slices at positions; the index's dimensions replace the indexed ones."""
    table, _ = _merged(c, "input")
    return c.graph.op("Gather", table, _index(c), axis=c.static("dim"))


def _gather(c: Conversion) -> RowResult:
    return [c.graph.op("GatherElements", c.input("input"), _index(c), axis=c.static("dim"))]


def _scatter(reduction: str | None) -> Row:
    def row(c: Conversion) -> RowResult:
        operands = [c.input("input"), c.cast_input("index", dtypes.int64), c.cast_input("source", c.dtype("input"))]
        return [c.graph.op("ScatterElements", *operands, axis=c.static("dim"), reduction=reduction)]

    return row


def _put(reduction: str | None) -> Row:
    """Write slices at positions, by ScatterND of the dimensions from the indexed one on."""

    def row(c: Conversion) -> RowResult:
        graph, dim = c.graph, c.static("dim")
        data, merged = _merged(c, "input")
        index_shape, ndim = c.shape("index"), len(merged)
        index = c.cast_input("index", dtypes.int64)
        # ScatterND indexes the first dimensions: bring the indexed one to the front, and that of the updates as well.
        order = [dim, *(d for d in range(ndim) if d != dim)]
        updates = c.cast_input("source", c.dtype("input"))
        if dim:
            data = graph.op("Transpose", data, perm=order)
            index_dims = range(dim, dim + len(index_shape))
            rest = [d for d in range(ndim - 1 + len(index_shape)) if d not in index_dims]
            updates = graph.op("Transpose", updates, perm=[*index_dims, *rest])
        indices = graph.op("Unsqueeze", index, graph.ints([-1]))
        result = graph.op("ScatterND", data, indices, updates, reduction=reduction)
        if dim:
            result = graph.op("Transpose", result, perm=[order.index(d) for d in range(ndim)])
        return reshape(graph, result, merged, c.results[0].shape)

    return row


def _join(c: Conversion) -> RowResult:
    graph, dim = c.graph, c.static("dim")
    values = [c.cast_input(i, c.results[0].dtype) for i in range(len(c.call.operands))]
    if c.static("stacked"):
        values = [graph.op("Unsqueeze", value, graph.ints([dim])) for value in values]
    return values[0] if len(values) == 1 else graph.op("Concat", *values, axis=dim)


def _triangle(c: Conversion) -> RowResult:
    graph, dtype = c.graph, c.dtype()
    value = c.input()
    if dtype is dtypes.bool_:  # Trilu of runtimes does not take all types
        value = graph.cast(value, dtype, dtypes.int64)
    diagonal = graph.number(c.static("diagonal"), dtypes.int64)
    result = graph.op("Trilu", value, diagonal, upper=int(not c.static("lower")))
    return graph.cast(result, dtypes.int64, dtype) if dtype is dtypes.bool_ else result


def _positions(c: Conversion) -> Value:
    """Return 0, 1, 2, ... for each element of the result, in its dtype."""
    graph = c.graph
    end = graph.op("Squeeze", c.sizes([c.results[0].shape[0]]), graph.ints([0]))
    positions = graph.op("Range", graph.number(0, dtypes.int64), end, graph.number(1, dtypes.int64))
    return graph.cast(positions, dtypes.int64, c.results[0].dtype)


def _arange(c: Conversion) -> RowResult:
    graph, dtype = c.graph, c.results[0].dtype
    value = _positions(c)
    for op_type, name, neutral in (("Mul", "step", 1), ("Add", "start", 0)):
        number = c.number(name)
        if number != neutral:
            value = graph.op(op_type, value, c.number_value(name, dtype))
    return value


def _linspace(c: Conversion) -> RowResult:
    """Count from the start in the first half, and back from the end in the second, as the op does."""
    graph, dtype = c.graph, c.results[0].dtype
    position = _positions(c)
    start, end, last = (c.number_value(name, dtype) for name in ("start", "end", "last"))
    step = graph.op("Div", graph.op("Sub", end, start), last)
    first_half = graph.op("Add", start, graph.op("Mul", step, position))
    second_half = graph.op("Sub", end, graph.op("Mul", step, graph.op("Sub", last, position)))
    is_first = graph.op("Less", graph.op("Mul", position, graph.number(2, dtype)), last)
    return graph.op("Where", is_first, first_half, second_half)


INDEX_ROWS: Rows = {
    "take_at": _take, "embedding_rows": _take, "embedding_shared": _take, "gather": _gather, "scatter": _scatter(None),
    "scatter_add": _scatter("add"), "scatter_multiply": _scatter("mul"), "scatter_maximum": _scatter("max"),
    "scatter_minimum": _scatter("min"), "put_at": _put(None), "put_add_at": _put("add"), "put_multiply_at": _put("mul"),
    "put_maximum_at": _put("max"), "put_minimum_at": _put("min"), "join": _join, "triangle": _triangle,
    "arange_fill": _arange, "linspace_fill": _linspace,
}  # fmt: skip
