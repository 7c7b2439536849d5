"""Parse the expressions of a spec, and the named values (field `let`) that they use."""

from __future__ import annotations

from collections.abc import Mapping

from ..expr import Expr, ExprError, Operand, parse, substitute
from ..fields import expression_text
from ..model import Op, SpecError
from ..signature import check_name

__all__ = ["let_texts", "operand_table", "parse_field", "parse_lets"]


def operand_table(op: Op) -> dict[str, Operand]:
    """Return the operands that expressions of `op` may use, by name."""
    return {p.name: Operand(p.type, p.scope) for p in op.operands}


def parse_field(op: Op, field: str, text: str, table: Mapping[str, Operand], **options: bool) -> Expr:
    """Parse `text`, the value of the spec field `field`. Raises `SpecError`."""
    try:
        return parse(text, operands=table, **options)
    except ExprError as error:
        raise SpecError(
            error.message + (f" at column {error.column}" if error.column is not None else ""),
            file=op.file, line=op.line, field=field,
            suggestion=error.suggestion and f"did you mean {error.suggestion!r}?",
        ) from None  # fmt: skip


def let_texts(op: Op) -> dict[str, str]:
    """Return the text of each named value, in order."""
    return {key: expression_text(value) for key, value in op.mapping_field("let").items()}


def parse_lets(op: Op, **options: bool) -> tuple[dict[str, Operand], dict[str, Expr]]:
    """Return the names that results may use, and the named values as expressions of operands.

    Args:
        op: The op.
        options: Options of `parse`.

    Raises:
        SpecError: A named value has the name of a parameter or a result, or its expression is wrong.
    """
    table = operand_table(op)
    lets: dict[str, Expr] = {}
    for key, text in let_texts(op).items():
        if key in table or key in op.outputs:
            raise SpecError(
                f"{key!r} is a parameter or a result already", file=op.file, line=op.line, field=f"let.{key}"
            )
        check_name(key, "the let value")
        lets[key] = substitute(parse_field(op, f"let.{key}", text, table, **options), lets)
        table[key] = Operand(lets[key].type, lets[key].scope)
    return table, lets
