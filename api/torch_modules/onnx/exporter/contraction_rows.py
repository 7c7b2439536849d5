"""Rows for matrix products and other contractions of two tensors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING

from ...runtime.records import OpRecord
from .conversion import Conversion, Row, RowResult, Rows
from .expressions import evaluate
from .graph import Value

if TYPE_CHECKING:
    from ...codegen.expr import Expr

__all__ = ["CONTRACTION_ROWS", "convert_contraction"]


def _linear(c: Conversion) -> RowResult:
    """Gemm for matrices, else a product with the transposed weight."""
    graph, dtype = c.graph, c.compute_dtype()
    operands = [c.cast_input(i, dtype) for i in range(len(c.call.operands))]
    if len(c.shape(0)) == 2 and len(c.shape(1)) == 2 and dtype.kind == "f":
        return graph.op("Gemm", *operands, transB=1)
    order = [*range(len(c.shape(1)) - 2), len(c.shape(1)) - 1, len(c.shape(1)) - 2]
    product = graph.op("MatMul", operands[0], graph.op("Transpose", operands[1], perm=order))
    return graph.op("Add", product, operands[2]) if len(operands) > 2 else product


def _matmul(c: Conversion) -> RowResult:
    dtype = c.compute_dtype()
    return c.graph.op("MatMul", c.cast_input(0, dtype), c.cast_input(1, dtype))


def _outer(c: Conversion) -> RowResult:
    graph, dtype = c.graph, c.compute_dtype()
    column = graph.op("Unsqueeze", c.cast_input(0, dtype), graph.ints([1]))
    return graph.op("Mul", column, c.cast_input(1, dtype))


def _gemm(names: tuple[str, str, str]) -> Row:
    """Return the row of `beta * input + alpha * a @ b`. `names` are those of a, b and input."""

    def row(c: Conversion) -> RowResult:
        dtype = c.compute_dtype()
        a, b, addend = (c.cast_input(name, dtype) for name in names)
        alpha, beta = float(c.constant_number("alpha")), float(c.constant_number("beta"))
        return c.graph.op("Gemm", a, b, addend, alpha=alpha, beta=beta)

    return row


@cache
def _epilogue(record: OpRecord) -> Expr | None:
    from ...codegen.kinds import contraction  # lazy: start-up
    from ...codegen.loader import op_from_mapping

    return contraction.epilogue(op_from_mapping(record.spec))


def convert_contraction(c: Conversion) -> RowResult:
    """Convert a contraction to an Einsum, and its epilogue by the spec's expression."""
    record, graph = c.call.record, c.graph
    equation, factors = record.detail.get("equation"), record.detail.get("factors")
    if equation is None:
        raise c.unsupported("the exporter's table has no row for this op")
    dtype = c.compute_dtype()
    names = factors or tuple(operand.name for operand in record.operands[:2])
    product = graph.op("Einsum", *(c.cast_input(name, dtype) for name in names), equation=equation)
    epilogue = _epilogue(record) if record.spec.get("epilogue") else None
    if epilogue is None:
        return graph.cast(product, dtype, c.results[0].dtype)
    others = [operand.name for operand in record.operands if operand.name not in names]
    values: Mapping[str, Value] = {name: c.cast_input(name, dtype) for name in others}
    operands = {name: lambda v=value: v for name, value in {**values, "acc": product}.items()}
    return graph.cast(evaluate(c, epilogue, dtype, operands), dtype, c.results[0].dtype)


CONTRACTION_ROWS: Rows = {
    "linear_bias": _linear, "linear_product": _linear, "matmul_batched": _matmul, "mm": _matmul, "bmm": _matmul,
    "mv": _matmul, "vm": _matmul, "bmv": _matmul, "dot": _matmul, "outer": _outer,
    "addmm_product": _gemm(("mat1", "mat2", "input")),
}  # fmt: skip
