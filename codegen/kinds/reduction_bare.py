"""The variant of a reduction without the results that only its gradient reads, for calls without gradient."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..expr import Expr, Operand, free_names, substitute, to_text, topological, variable
from ..model import Op
from .reduction_spec import Reduction, parse_reduction

__all__ = ["bare"]

_ORDER_INDEPENDENT = ("maximum", "minimum", "logical_and", "logical_or")  # same bits in any order


def bare(op: Op) -> dict[str, object] | None:
    """Return the spec of `op` without the results that only its gradient reads, for calls without gradient.

    Return None if the op saves no such results, if a parameter would be unused, or if the bits of the other results
    could change: schedules depend on the size of the state, so the order of combination may differ, and a call must
    give the same bits with and without a gradient.
    """
    reduction = parse_reduction(op)
    finish = {k: e for k, e in reduction.finish.items() if k not in reduction.saved}
    fields = _needed_fields(reduction, finish.values())
    combine = {f: reduction.combine[f] for f in fields}
    used_names = free_names(*(reduction.map[f] for f in fields), *finish.values())
    if not reduction.saved or not all(e.fn in _ORDER_INDEPENDENT for e in combine.values()):
        return None
    if not {p.name for p in op.operands} <= set(used_names) or "acc" in used_names:
        return None
    texts: dict[str, object]
    if len(fields) == 1:  # schedules use more accumulators for a state without fields
        (only,) = fields
        names = dict(zip(reduction.operands(only), ("a", "b"), strict=True))
        texts = {
            "identity": _identity_text(reduction.identity[only]),
            "map": to_text(reduction.map[only]),
            "combine": to_text(_rename_operands(combine[only], names)),
            "finish": {k: to_text(_rename_operands(e, {only: "acc"})) for k, e in finish.items()},
        }
    else:
        texts = {
            "identity": {f: _identity_text(reduction.identity[f]) for f in fields},
            "map": {f: to_text(reduction.map[f]) for f in fields},
            "combine": {f: to_text(e) for f, e in combine.items()},
            "finish": {k: to_text(e) for k, e in finish.items()},
        }
    signature = f"{op.name}_bare({op.signature.partition('(')[2]}"
    base_spec = {k: v for k, v in op.spec.items() if k not in ("grad", "reference", "alias")}
    return {**base_spec, "op": signature, "reduce": texts, "grad": "none"}


def _needed_fields(reduction: Reduction, results: Iterable[Expr]) -> list[str]:
    """Return the state fields on which `results` depend, in the order of the state."""
    field_of_operand = {n: f for f in reduction.map for n in reduction.operands(f)}
    needed: set[str] = set()
    pending = [n for n in free_names(*results) if n in reduction.map]
    while pending:
        field = pending.pop()
        if field not in needed:
            needed.add(field)
            pending += [field_of_operand[n] for n in free_names(reduction.combine[field]) if n in field_of_operand]
    return [f for f in reduction.map if f in needed]


def _rename_operands(expr: Expr, names: Mapping[str, str]) -> Expr:
    """Rename operands in `expr`. names: old name -> new name."""
    free = [e for e in topological([expr]) if e.fn == "name" and e.value in names]
    return substitute(expr, {str(e.value): variable(names[str(e.value)], Operand(e.type, e.scope)) for e in free})


def _identity_text(identity: Expr | str) -> str:
    return identity if isinstance(identity, str) else to_text(identity)
