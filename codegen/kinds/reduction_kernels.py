"""Kernel text of ops that combine states: reductions, scans and window ops."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .. import triton
from ..expr import Block, Expr, canonical, emit_opencl, emit_triton, to_text
from ..model import Op
from . import Source
from .pointwise import math_functions
from .reduction_spec import LIMITS, Reduction

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["opencl_identity", "opencl_parts", "reduction_text", "triton_source"]


def opencl_parts(reduction: Reduction) -> dict[str, dict[str, Block]]:
    """Return `map`, `combine` and `finish` as OpenCL C, each for vectors and for scalars.

    In the text, `combine` reads the states `first` and `second`, and `finish` reads `state`.
    """
    combine_names = {
        operand: f"{state}.{field}"
        for field in reduction.map
        for state, operand in zip(("first", "second"), reduction.operands(field), strict=True)
    }
    state_names = {field: f"state.{field}" for field in reduction.map}
    no_names: dict[str, str] = {}
    parts: dict[str, dict[str, Block]] = {}
    for part, exprs, names in (
        ("map", reduction.map, no_names),
        ("combine", reduction.combine, combine_names),
        ("finish", reduction.finish, state_names),
    ):
        canonical_exprs = {k: canonical(e) for k, e in exprs.items()}
        parts[part] = {
            target: emit_opencl(canonical_exprs, dialect, wrap=True, names=names)
            for target, dialect in (("vector", "vector"), ("scalar", "row"))
        }
    return parts


def triton_source(
    op: Op, reduction: Reduction, environment: Environment, template: str, **template_values: object
) -> Source:
    """Render the Triton kernels from a template that combines states.

    Args:
        template: file name in `templates/triton`.
        template_values: more variables of the template.
    """
    pairs = [reduction.operands(f) for f in reduction.map]
    scalars = [p.name for p in op.operands if not p.is_tensor]
    inputs = [(p.name, p.type) for p in op.operands if p.is_tensor]
    kernel_names = triton.python_names(
        [*(n for n, _ in inputs), *scalars, *reduction.map, *(n for p in pairs for n in p)]
    )
    canonical_parts = [
        {k: canonical(e) for k, e in part.items()} for part in (reduction.map, reduction.combine, reduction.finish)
    ]
    blocks = [emit_triton(part, names=kernel_names) for part in canonical_parts]
    uses_compute_type = any(re.search(r"\bC\b", text) for text in (*blocks[1].statements, *blocks[1].values.values()))
    values = [a for (a, _), e in zip(pairs, reduction.map.values(), strict=True) if e.type == "value"]
    identities = {f: i if isinstance(i, str) else triton.number(i.value) for f, i in reduction.identity.items()}
    return triton.source(
        template,
        environment,
        math_functions(*blocks),
        op=op.name,
        inputs=[(kernel_names.get(n, n), t) for n, t in inputs],
        scalars=[kernel_names.get(n, n) for n in scalars],
        fields=[(kernel_names.get(f, f), e.type, LIMITS.get(i := identities[f], i)) for f, e in reduction.map.items()],
        outputs=[(k, e.type) for k, e in reduction.finish.items()],
        pairs=[(kernel_names.get(a, a), kernel_names.get(b, b)) for a, b in pairs],
        typed=kernel_names.get(values[0], values[0]) if uses_compute_type and values else None,
        limited=any(isinstance(i, str) for i in reduction.identity.values()),
        map=blocks[0],
        combine=blocks[1],
        finish=blocks[2],
        **template_values,
    )


def opencl_identity(identity: Expr | str) -> str:
    """Return an identity as OpenCL text without a cast: the template casts it to the scalar or vector type."""
    if isinstance(identity, str):
        return LIMITS[identity]
    text = emit_opencl({"": identity}, "row").values[""]
    return text.partition(")")[2]


def reduction_text(reduction: Reduction) -> str:
    """Return the expressions in one line, for the header of kernels."""
    parts = (("map", reduction.map), ("combine", reduction.combine), ("finish", reduction.finish))
    return ", ".join(f"{part} {_exprs_text(exprs)}" for part, exprs in parts)


def _exprs_text(exprs: Mapping[str, Expr]) -> str:
    return "; ".join(f"{k} = {to_text(e)}" for k, e in exprs.items())
