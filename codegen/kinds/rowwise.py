"""Rowwise ops (softmax, layer norm): a row of length n is the elements along `dim` or `normalized_shape`.

    let:   named values, in order; each may use the earlier ones
    out:   an expression, or a mapping from result names to expressions
    rows:  dim or normalized_shape, the static parameter that defines a row (default: dim)

Expressions may use sum, mean, max, min and prod of a row, its length `n`, and `index`, the position in the row. A
result that varies along the row has the input's shape; any other has one element per row. Two outermost functions
change that: `broadcast(x)` always has the input's shape, and `column_sum(x)` sums over the rows and has one element per
position in the row, like a `Row` operand. Its partial sums go through scratch memory.

Gradients reuse the op's results but recompute row statistics such as a mean: the row is in the cache then, and another
sweep over it costs less than saving one more result in every forward call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ..expr import canonical, free_names, row_stages
from ..fields import OUT, TOGETHER, Fields
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
    "let": ((dict,), "named intermediate values"),
    "out": OUT,
    "save": ((list,), "values saved for backward besides those inferred"),
    "rows": ((str,), "the parameter that defines a row: dim or normalized_shape"),
    "together": TOGETHER,
    "order": ((int,), "of a derived op: the order of derivative"),
}
REQUIRED = ("out",)
DEFAULT_DTYPES = "float"


def check(op: Op) -> None:
    """Raise `SpecError` if the spec is wrong."""
    rows = row_argument(op)
    if rows not in ("dim", "normalized_shape"):
        raise SpecError(f"must be dim or normalized_shape, not {rows[:40]!r}", file=op.file, line=op.line, field="rows")
    if rows not in {p.name for p in op.statics}:
        parameter_text = "dim: int = -1" if rows == "dim" else "normalized_shape: tuple[int, ...]"
        raise SpecError(
            f"the signature lacks {rows!r}", file=op.file, line=op.line, field="op", suggestion=f"add {parameter_text}"
        )
    if not any(p.is_tensor and p.scope == "full" for p in op.operands):
        raise SpecError("a rowwise op needs an operand that has the rows", file=op.file, line=op.line, field="op")
    parsed_results = results(op)
    if op.file != "<derived>":
        used_names = set(free_names(*(r.expr for r in parsed_results.values())))
        for p in op.operands:
            if p.name not in used_names and p.role != "absent":
                raise SpecError(
                    f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="out"
                )
    if isinstance(op.grad, Mapping):
        spec_gradients(op)


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels of all schedules."""
    canonical_results = {k: Result(canonical(r.expr), r.scope) for k, r in results(op).items()}
    program = row_stages({k: r.expr for k, r in canonical_results.items()})
    uncached_exprs, uncached = {k: program.outputs[k] for k in canonical_results}, program
    cached_reduction, program = choose_cached_argument(canonical_results, program)
    writer = OpenCLRenderer(op, canonical_results, program)
    text, used = writer.render(environment, cached_reduction, uncached_exprs)
    outputs = tuple(
        OutputRow(k, r.expr.type, result_rule(op, r.expr.type), r.scope,
                  r.expr.type == "value" and op.grad != "none")
        for k, r in canonical_results.items()
    )  # fmt: skip
    detail: dict[str, object] = {"rows": row_argument(op)}
    if cached_reduction is not None:
        detail["keep"] = True
    scopes = {k: (r.expr.type, r.scope) for k, r in canonical_results.items()}
    sources = {"opencl": Source(text, used), "triton": triton_source(op, writer.title(), scopes, uncached, environment)}
    return Rendered(outputs, sources, detail)
