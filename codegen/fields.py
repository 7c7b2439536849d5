"""Types of the tables of spec fields: field -> (allowed types, description).

The language reference and the JSON schema are generated from these tables. `loader.COMMON` has the fields of all ops,
`FIELDS` of a module in `kinds` those of its kind, and `UNREAD` those common fields that have no effect on its kind.
"""

from __future__ import annotations

__all__ = ["LET", "OUT", "TOGETHER", "Field", "Fields", "Unread", "expression_text"]

Field = tuple[tuple[type, ...], str]
Fields = dict[str, Field]
Unread = dict[str, Field]  # common field -> (types of values without effect, remedy)
LET: Field = ((dict,), "named intermediate values, in order; each may use the earlier ones")
OUT: Field = ((str, dict, int, float, bool), "the result: an expression, or several by name")
TOGETHER: Field = ((bool,), "whether one op computes the gradients of all operands")


def expression_text(value: object) -> str:
    """Return an expression as text: YAML reads `0` and `true` as a number and a boolean."""
    return value if isinstance(value, str) else repr(value)
