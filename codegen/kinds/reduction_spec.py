"""Read the spec of an op that combines states: a reduction, a scan or a window op."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from ..expr import Expr, Operand, canonical, const, free_names, substitute, to_text
from ..fields import expression_text
from ..model import Op, SpecError
from ..signature import check_name
from .spec_expressions import operand_table, parse_field

__all__ = ["ELEMENT_COUNT", "LIMITS", "Reduction", "parse_reduction", "spec_error", "with_visible_outputs"]

LIMITS = {"lowest": "LOWEST", "highest": "HIGHEST"}  # identities that depend on the dtype -> macro of the templates
ELEMENT_COUNT = Operand("value", "scalar")  # the name `n` in `finish`: the number of reduced elements
_PARTS = ("identity", "map", "combine", "finish")


@dataclass(frozen=True)
class Reduction:
    """A parsed `reduce:` field. Keys are state fields, of `finish` results. An identity is a constant or a limit."""

    identity: Mapping[str, Expr | str]
    map: Mapping[str, Expr]
    combine: Mapping[str, Expr]
    finish: Mapping[str, Expr]
    single: bool
    saved: tuple[str, ...] = ()

    def operands(self, field: str) -> tuple[str, str]:
        """Return the names in `combine` of `field` of the two states."""
        return ("a", "b") if self.single else (f"a_{field}", f"b_{field}")

    @property
    def reads_index(self) -> bool:
        """Whether `map` reads `index`, the position of the element."""
        return "index" in free_names(*self.map.values())


def parse_reduction(op: Op, extra_operands: Mapping[str, Operand] = MappingProxyType({})) -> Reduction:
    """Parse and check the `reduce:` field of `op`.

    Args:
        extra_operands: names that `map` may use besides the op's operands.

    Raises:
        SpecError: names the field that is wrong.
    """
    spec = op.fields.get("reduce")
    if not isinstance(spec, Mapping) or not set(_PARTS) - {"finish"} <= set(spec):
        raise spec_error(op, "reduce", "a reduction needs `reduce:` with identity, map and combine")
    unknown = set(spec) - {*_PARTS, "let", "save"}
    if unknown:
        raise spec_error(op, "reduce", f"unknown fields {', '.join(sorted(map(str, unknown)))}")
    single = not isinstance(spec["map"], Mapping)
    part_texts = {part: _part_texts(op, part, spec[part], single) for part in ("identity", "map", "combine")}
    for part in ("identity", "combine"):
        if set(part_texts[part]) != set(part_texts["map"]):
            raise spec_error(
                op, f"reduce.{part}", f"has fields {sorted(part_texts[part])}, map has {sorted(part_texts['map'])}"
            )
    table = operand_table(op)
    for field in part_texts["map"]:
        if field in table or field in ("a", "b", "n", "index"):
            raise spec_error(op, "reduce.map", f"the field {field!r} has the name of a parameter or of the language")
    map_exprs = {
        f: _parse(op, f"reduce.map.{f}", text, {**table, **extra_operands, "index": Operand("index", "full")})
        for f, text in part_texts["map"].items()
    }
    state_operands = {f: Operand(e.type, "full") for f, e in map_exprs.items()}
    scalars = {p.name: table[p.name] for p in op.operands if not p.is_tensor}
    reduction = Reduction({}, map_exprs, {}, {}, single)
    pairs = {operand: state_operands[f] for f in state_operands for operand in reduction.operands(f)}
    combine_exprs = _parse_combine(op, part_texts["combine"], spec.get("let", {}), pairs)
    finish = spec.get("finish", "acc" if single else {f: f for f in state_operands})
    finish_exprs = {
        k: _parse(op, f"reduce.finish.{k}", text, {**state_operands, **scalars, "n": ELEMENT_COUNT})
        for k, text in (finish if isinstance(finish, Mapping) else {"out": finish}).items()
    }
    for result in finish_exprs:
        check_name(result, "the result")
        if result in table:
            raise spec_error(op, "reduce.finish", f"the result {result!r} has the name of a parameter")
    identity = {f: _parse_identity(op, f, text, state_operands[f]) for f, text in part_texts["identity"].items()}
    for field, expr in combine_exprs.items():
        if expr.type != state_operands[field].type:
            raise spec_error(
                op, f"reduce.combine.{field}", f"gives a {expr.type}, but map gives a {state_operands[field].type}",
                "use `or`, `and` for truth values, where(mask, 1, 0) to count them",
            )  # fmt: skip
    saved = spec.get("save", [])
    if not isinstance(saved, list) or (saved and saved != list(finish_exprs)[1:][-len(saved) :]):
        raise spec_error(
            op, "reduce.save", f"must list the last of the results {', '.join(finish_exprs)}, after one that is visible"
        )
    return Reduction(identity, map_exprs, combine_exprs, finish_exprs, single, tuple(saved))


def _part_texts(op: Op, part: str, spec: object, single: bool) -> dict[str, object]:
    if isinstance(spec, Mapping) == single:
        message = "map, identity and combine are all expressions, or all mappings by field"
        raise spec_error(op, f"reduce.{part}", message)
    texts = dict(spec) if isinstance(spec, Mapping) else {"acc": spec}
    for field in texts:
        check_name(str(field), "the field")
    return texts


def _parse_combine(
    op: Op, texts: Mapping[str, object], let_texts: object, state_operands: Mapping[str, Operand]
) -> dict[str, Expr]:
    table, values = dict(state_operands), dict[str, Expr]()
    if not isinstance(let_texts, Mapping):
        raise spec_error(op, "reduce.let", "a mapping from names to expressions")
    for let, text in let_texts.items():
        check_name(str(let), "the let value")
        if let in table:
            raise spec_error(op, "reduce.let", f"the name {let!r} is taken")
        values[let] = substitute(_parse(op, f"reduce.let.{let}", text, table), values)
        table[let] = Operand(values[let].type, values[let].scope)
    return {f: substitute(_parse(op, f"reduce.combine.{f}", t, table), values) for f, t in texts.items()}


def _parse_identity(op: Op, field: str, text: object, state: Operand) -> Expr | str:
    if isinstance(text, str) and text in LIMITS:
        if state.type != "value":
            raise spec_error(op, f"reduce.identity.{field}", f"{text} is for values; this field is a {state.type}")
        return text
    expr = canonical(_parse(op, f"reduce.identity.{field}", text, {}))
    if expr.fn != "const":
        raise spec_error(op, f"reduce.identity.{field}", "a number, true, false, lowest or highest")
    if (expr.type == "mask") != (state.type == "mask"):
        raise spec_error(
            op, f"reduce.identity.{field}", f"{to_text(expr)} is no {state.type}", "truth values have true or false"
        )
    return const(int(expr.value), "index") if state.type == "index" and isinstance(expr.value, int) else expr


def _parse(op: Op, field: str, text: object, table: Mapping[str, Operand]) -> Expr:
    return parse_field(op, _spec_field(field), expression_text(text), table)


def spec_error(op: Op, field: str, message: str, suggestion: str | None = None) -> SpecError:
    """Return the error about a field of `op`, such as `reduce.map.acc`."""
    return SpecError(message, file=op.file, line=op.line, field=_spec_field(field), suggestion=suggestion)


def _spec_field(path: str) -> str:
    """Return the path as written in the spec, without the implicit names of a single state and a single result."""
    return path.removesuffix(".acc").removesuffix(".out")


def with_visible_outputs(op: Op, reduction: Reduction) -> Op:
    """Return `op` with the results that callers get as `outputs`: gradients are named after them."""
    return replace(op, outputs={k: to_text(e) for k, e in reduction.finish.items() if k not in reduction.saved})
