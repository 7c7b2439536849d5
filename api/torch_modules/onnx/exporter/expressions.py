"""Convert the formulas of specs to ONNX nodes.

An op's spec says what it computes, as an expression (`codegen.expr`), from which kernels and derivatives come. Nodes
come from it too, so that pointwise and rowwise ops, those of users among them, need no row in the table. A row is only
needed where ONNX has one operator for what would be several nodes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from ...runtime import dtypes
from ...runtime.dtypes import DType
from ...runtime.records import OpRecord, registry
from .conversion import Conversion, RowResult
from .dynamic_sizes import Int, Size, product
from .function_nodes import FUNCTIONS, Arguments
from .graph import Graph, Value

if TYPE_CHECKING:
    from ...codegen.expr import Expr
    from ...codegen.kinds.reduction_spec import Reduction
    from ...codegen.model import Op

__all__ = [
    "RowLayout", "convert_pointwise", "convert_reduction", "convert_rowwise", "evaluate", "reduce_node", "reduced_axes",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowLayout:
    """How an expression's rows lie in the operands.

    Attributes:
        axes: The dimensions of the rows.
        length: Elements of a row.
        shape: The operand's shape.
    """

    axes: tuple[int, ...]
    length: Int
    shape: tuple[Int, ...]


@cache
def _op(record: OpRecord) -> Op:
    """Return the op that a record was generated from."""
    from ...codegen.loader import op_from_mapping  # lazy: start-up

    return op_from_mapping(record.spec)


@cache
def _pointwise_expressions(record: OpRecord) -> Mapping[str, Expr]:
    """Return the expression of each result of a pointwise op."""
    from ...codegen.expr import canonical  # lazy: start-up
    from ...codegen.kinds.pointwise import expressions

    return {name: canonical(expr) for name, expr in expressions(_op(record)).items()}


@cache
def _rowwise_results(record: OpRecord) -> Mapping[str, tuple[Expr, str]]:
    """Return the expression and the scope of each result of a rowwise op."""
    from ...codegen.expr import canonical  # lazy: start-up
    from ...codegen.kinds.rowwise_spec import results

    return {name: (canonical(result.expr), result.scope) for name, result in results(_op(record)).items()}


@cache
def _reduction(record: OpRecord) -> Reduction:
    """Return the state and the expressions of a reduction."""
    from ...codegen.kinds.reduction_spec import parse_reduction  # lazy: start-up

    return parse_reduction(_op(record))


def compute_dtype_of(c: Conversion) -> DType:
    """Return the dtype in which an expression is computed: float32 for half types."""
    dtype = c.compute_dtype()
    return dtypes.float32 if dtype in (dtypes.float16, dtypes.bfloat16) else dtype


def operand_values(c: Conversion, dtype: DType) -> dict[str, Callable[[], Value]]:
    """Return functions that add an operand to the graph, converted to the type that expressions read it as."""
    values: dict[str, Callable[[], Value]] = {}
    for position, operand in enumerate(c.call.record.operands):
        if c.has(position):
            target = {"mask": dtypes.bool_, "index": dtypes.int64}.get(operand.type, dtype)
            values[operand.name] = partial(c.cast_input, position, target)
    return values


def convert_pointwise(c: Conversion) -> RowResult:
    """Convert a pointwise op by its spec's expressions."""
    from ...codegen.expr import free_names  # lazy: start-up

    dtype = compute_dtype_of(c)
    evaluator = _Evaluator(c, dtype, operand_values(c, dtype))
    results: list[Value] = []
    for expr, result in zip(_pointwise_expressions(c.call.record).values(), c.results, strict=False):
        value = evaluator.value(expr, result.dtype)
        names = set(free_names(expr))
        read_all = all(not c.is_tensor(o.name) or o.name in names for o in c.call.record.operands)
        if not read_all and not any(
            c.is_tensor(n) and c.shape(n) == result.shape for n in names if n in evaluator.operands
        ):
            value = c.graph.op("Expand", value, c.sizes(result.shape))
        results.append(value)
    return results


def convert_rowwise(c: Conversion) -> RowResult:
    """Convert a rowwise op by its spec's expressions."""
    c = _without_absent(c)
    dtype = compute_dtype_of(c)
    shape = c.shape(0)
    if c.call.record.detail.get("rows") == "normalized_shape":
        count = len(c.static("normalized_shape"))
        axes = tuple(range(len(shape) - count, len(shape)))
    else:
        axes = (c.static("dim") % len(shape),)
    rows = RowLayout(axes, product([shape[a] for a in axes]), shape)
    operands = operand_values(c, dtype)
    for operand in c.call.record.operands:
        if operand.name in operands and operand.scope == "row" and c.is_tensor(operand.name):
            operands[operand.name] = _with_row_axes(c, operands[operand.name], rows, operand.name)
    evaluator = _Evaluator(c, dtype, operands, rows)
    results: list[Value] = []
    for (expr, scope), result in zip(_rowwise_results(c.call.record).values(), c.results, strict=False):
        if scope == "column":
            raise c.unsupported("it sums over rows")
        value = evaluator.value(expr, result.dtype)
        if scope == "full" and expr.scope not in ("full", "column"):
            value = c.graph.op("Expand", value, c.sizes(result.shape))
        elif scope == "row" and len(result.shape) == len(shape) - len(axes):
            value = c.graph.op("Squeeze", value, c.graph.ints(axes))
        results.append(value)
    return results


def _without_absent(c: Conversion) -> Conversion:
    """Return the call as one of the op's variant without the optional operands that are None."""
    record = c.call.record
    optional = [operand.name for operand in record.operands if operand.role == "optional"]
    variant = record.variants.get(tuple(c.has(name) for name in optional))
    return c if variant is None else Conversion(replace(c.call, record=registry[variant]), c.graph, c.contents)


def _with_row_axes(c: Conversion, value: Callable[[], Value], rows: RowLayout, operand: str) -> Callable[[], Value]:
    """Return an operand that has one element for each row with dimensions of size 1 in the place of the rows."""
    if len(c.shape(operand)) == len(rows.shape):
        return value
    return lambda: c.graph.op("Unsqueeze", value(), c.graph.ints(rows.axes))


_REDUCE = {"add": "ReduceSum", "mul": "ReduceProd", "maximum": "ReduceMax", "minimum": "ReduceMin",
           "logical_or": "ReduceMax", "logical_and": "ReduceMin"}  # fmt: skip


def reduced_axes(c: Conversion) -> tuple[list[int], bool]:
    """Return the dimensions that a reduction reduces, and whether they stay with size 1."""
    ndim = max(len(ref.shape) for ref in c.call.refs())
    dim, keepdim = c.static("dim", None), bool(c.static("keepdim", False))
    dims = range(ndim) if dim is None or dim == () else (dim,) if isinstance(dim, int) else dim
    return sorted(d % ndim for d in dims) if ndim else [], keepdim


def convert_reduction(c: Conversion) -> RowResult:
    """Convert a reduction by its spec, if each field of its state is combined with itself by one operator."""
    dtype = compute_dtype_of(c)
    if (requested := c.static("dtype", None)) is not None and requested.kind == "f":
        dtype = requested if requested.itemsize >= dtype.itemsize else dtype
    elif c.results[0].dtype is dtypes.int64 and dtype.kind in "bui":  # sums of integers are int64
        dtype = dtypes.int64
    reduction = _reduction(c.call.record)
    axes, keepdim = reduced_axes(c)
    shape = max((ref.shape for ref in c.call.refs()), key=len)
    elements = _Evaluator(c, dtype, operand_values(c, dtype))
    fields: dict[str, Callable[[], Value]] = {}
    for name, expr in reduction.map.items():
        fields[name] = partial(_reduce_field, c, reduction, name, elements, expr, axes, keepdim)
    operands = operand_values(c, dtype)
    scalars = {
        o.name: operands[o.name] for o in c.call.record.operands if o.name in operands and not c.is_tensor(o.name)
    }
    finish = _Evaluator(c, dtype, {**scalars, **fields}, count=product([shape[a] for a in axes]))
    results: list[Value] = []
    for expr, result in zip(reduction.finish.values(), c.results, strict=False):
        results.append(finish.value(expr, result.dtype))
    return results


def _reduce_field(
    c: Conversion, reduction: Reduction, name: str, elements: _Evaluator, expr: Expr, axes: Sequence[int], keepdim: bool
) -> Value:
    """Reduce one field of the state, whose combination must be `a op b` of that field."""
    combine = reduction.combine[name]
    names = [arg.value for arg in combine.args]
    op_type = _REDUCE.get(combine.fn)
    if op_type is None or sorted(map(str, names)) != sorted(reduction.operands(name)):
        raise c.unsupported("the exporter's table has no row for this op")
    graph, value = c.graph, elements.typed(expr)
    if expr.type == "mask":
        number = graph.cast(value, dtypes.bool_, dtypes.int32)
        return graph.cast(reduce_node(graph, op_type, number, axes, keepdim), dtypes.int32, dtypes.bool_)
    return reduce_node(graph, op_type, value, axes, keepdim)


def reduce_node(graph: Graph, op_type: str, value: Value, axes: Sequence[int], keepdim: bool) -> Value:
    """Add a reduction. Since opset 18 the axes are an input; that of ReduceSum is one since opset 13."""
    if not axes:  # of a tensor without dimensions
        return graph.op("Identity", value)
    if graph.opset >= 18 or op_type == "ReduceSum":
        return graph.op(op_type, value, graph.ints(axes), keepdims=int(keepdim))
    return graph.op(op_type, value, axes=list(axes), keepdims=int(keepdim))


def evaluate(c: Conversion, expr: Expr, dtype: DType, operands: Mapping[str, Callable[[], Value]]) -> Value:
    """Return an expression's value.

    Args:
        c: The call.
        expr: The expression.
        dtype: The dtype in which it is computed, and of the result.
        operands: Functions that return the values of its names.
    """
    return _Evaluator(c, dtype, operands).value(expr, dtype)


class _Evaluator:
    """Adds the nodes of expressions that share operands."""

    def __init__(
        self, c: Conversion, dtype: DType, operands: Mapping[str, Callable[[], Value]], rows: RowLayout | None = None,
        count: Int | None = None,
    ):  # fmt: skip
        self.c, self.graph, self.dtype, self.operands, self.rows = c, c.graph, dtype, operands, rows
        self.count = rows.length if rows is not None else count
        self._values: dict[Expr, Value] = {}
        self._names: dict[str, Value] = {}

    def value(self, expr: Expr, dtype: DType) -> Value:
        """Return the value of an expression as a result of a dtype."""
        source = {"mask": dtypes.bool_, "index": dtypes.int64}.get(expr.type, self.dtype)
        return self.graph.cast(self.typed(expr), source, dtype)

    def typed(self, expr: Expr) -> Value:
        """Return the value of an expression in its own type."""
        from ...codegen.expr import topological  # lazy: start-up

        for node in topological([expr], self._values):
            self._values[node] = self._node(node)
        return self._values[expr]

    def _dtype_of(self, node: Expr) -> DType:
        return {"mask": dtypes.bool_, "index": dtypes.int64}.get(node.type, self.dtype)

    def _node(self, node: Expr) -> Value:
        """Add the nodes of one function, whose arguments have been evaluated."""
        if node.fn == "const":
            return self._constant(node)
        if node.fn == "name":
            return self._name(str(node.value))
        values = [self._values[arg] for arg in node.args]
        if node.fn.startswith("row_"):
            return self._reduce_row(node, values[0])
        function = FUNCTIONS.get(node.fn)
        result = None
        if function is not None:
            operand = node.args[-1] if node.fn == "where" else node.args[0]
            result = function(Arguments(self.graph, values, self._dtype_of(operand), self.dtype))
        if result is None:
            raise self.c.unsupported(f"ONNX has no operator for its function {node.fn!r} of {self.dtype.name}")
        return result

    def _constant(self, node: Expr) -> Value:
        value: Any = node.value
        is_fraction = isinstance(value, float) and not (math.isfinite(value) and value.is_integer())
        if node.type == "value" and self.dtype.kind != "f" and is_fraction:
            raise self.c.unsupported(f"its formula has the number {value} for {self.dtype.name}")
        return self.graph.number(value, self._dtype_of(node))

    def _name(self, name: str) -> Value:
        if name not in self._names:
            self._names[name] = self._read_name(name)
        return self._names[name]

    def _read_name(self, name: str) -> Value:
        if name in self.operands:
            return self.operands[name]()
        if name == "n" and self.count is not None:
            count = self.count
            if isinstance(count, Size):
                vector = self.c.sizes([count])
                scalar = self.graph.op("Squeeze", vector, self.graph.ints([0]))
                return self.graph.cast(scalar, dtypes.int64, self.dtype)
            return self.graph.number(count, self.dtype)
        if name == "index" and self.rows is not None and len(self.rows.axes) == 1:
            return self._positions(self.rows)
        raise self.c.unsupported(f"its formula reads {name!r}")

    def _positions(self, rows: RowLayout) -> Value:
        """Return the position of each element in its row, shaped so that it broadcasts."""
        graph = self.graph
        length = graph.op("Squeeze", self.c.sizes([rows.length]), graph.ints([0]))
        zero, one = graph.number(0, dtypes.int64), graph.number(1, dtypes.int64)
        positions = graph.op("Range", zero, length, one)
        trailing = range(1, len(rows.shape) - rows.axes[0])
        return graph.op("Unsqueeze", positions, graph.ints(trailing)) if trailing else positions

    def _reduce_row(self, node: Expr, value: Value) -> Value:
        assert self.rows is not None
        op_type = {"row_sum": "ReduceSum", "row_max": "ReduceMax", "row_min": "ReduceMin", "row_prod": "ReduceProd"}[
            node.fn
        ]
        if node.args[0].scope == "column":  # one element for each position: it lacks the dimensions before
            raise self.c.unsupported("its formula reduces an operand without rows")
        return reduce_node(self.graph, op_type, value, self.rows.axes, True)
