"""Rowwise ops, such as softmax and layer norm: every result element depends on the elements of its row.

A row is the `n` elements along the dimension `dim`, or along the last dimensions, whose sizes are `normalized_shape`.

Expressions may use sum, mean, max, min and prod of a row, its length `n`, and `index`, the position in the row. A
result that varies along the row has the input's shape; any other has one element per row. An expression may be wrapped
in one of two functions that change this:

    broadcast(x)     the input's shape, even if x has one element per row
    column_sum(x)    the sum over all rows: one element per position in the row, as operands annotated `Row` have

Gradients reuse the op's results but recompute row statistics such as a mean: the row is in the cache then, and another
sweep over it costs less than saving one more result in every forward call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..expr import canonical, free_names, row_stages
from ..fields import LET, OUT, TOGETHER, Fields
from ..model import Op, SpecError
from . import OutputRow, Rendered, Source, result_rule
from .rowwise_gradients import derive
from .rowwise_opencl import OpenCLRenderer, choose_cached_argument
from .rowwise_spec import Result, results, row_argument, spec_gradients
from .rowwise_triton import triton_source
from .rowwise_variants import variant

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["DEFAULT_DTYPES", "FIELDS", "REQUIRED", "Result", "check", "derive", "render", "results", "variant"]

FIELDS: Fields = {
    "let": LET,
    "out": OUT,
    "save": ((list,), "named values that gradients read, besides those that the generator saves by itself"),
    "rows": ((str,), "the parameter that defines a row: dim (the default) or normalized_shape"),
    "together": TOGETHER,
    "order": ((int,), "the order of the derivative, in specs that the generator derives"),
}
REQUIRED = ("out",)
DEFAULT_DTYPES = "float"


def check(op: Op) -> None:
    """Raise `SpecError` if parameters, expressions and the field `rows` do not fit together."""
    rows = row_argument(op)
    declarations = {"dim": "dim: int = -1", "normalized_shape": "normalized_shape: tuple[int, ...]"}
    if rows not in declarations:
        raise SpecError(f"must be dim or normalized_shape, not {rows[:40]!r}", file=op.file, line=op.line, field="rows")
    if rows not in {p.name for p in op.statics}:
        suggestion = f"add {declarations[rows]}"
        raise SpecError(f"the signature lacks {rows!r}", file=op.file, line=op.line, field="op", suggestion=suggestion)
    if not any(p.is_tensor and p.scope == "full" for p in op.operands):
        raise SpecError("a rowwise op needs an operand that has the rows", file=op.file, line=op.line, field="op")
    parsed_results = results(op)
    if not op.is_derived:
        used_names = set(free_names(*(r.expr for r in parsed_results.values())))
        for p in op.operands:
            if p.name not in used_names and p.role != "absent":
                raise SpecError(
                    f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="out"
                )
    if isinstance(op.grad, Mapping):
        spec_gradients(op)


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules, for OpenCL and Triton."""
    canonical_results = {k: Result(canonical(r.expr), r.scope) for k, r in results(op).items()}
    program = row_stages({k: r.expr for k, r in canonical_results.items()})
    cached_reduction, cached_program = choose_cached_argument(canonical_results, program)
    renderer = OpenCLRenderer(op, canonical_results, cached_program)
    opencl_text, called_functions = renderer.render(environment, cached_reduction, program.outputs)
    types_and_scopes = {k: (r.expr.type, r.scope) for k, r in canonical_results.items()}
    sources = {
        "opencl": Source(opencl_text, called_functions),
        "triton": triton_source(op, renderer.title(), types_and_scopes, program, environment),
    }
    outputs = tuple(
        OutputRow(name, type, result_rule(op, type), scope, differentiable=type == "value" and op.grad != "none")
        for name, (type, scope) in types_and_scopes.items()
    )
    detail: dict[str, object] = {"rows": row_argument(op)}
    if cached_reduction is not None:
        detail["caches_row"] = True
    return Rendered(outputs, sources, detail)
