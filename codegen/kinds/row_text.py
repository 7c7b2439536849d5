"""Names and text of derived rowwise ops."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

from ..expr import Expr, Operand, call, name, to_text, topological

__all__ = ["shared_parts", "short_name"]

_LONGEST_NAME = 60


def short_name(called: str) -> str:
    """`called`, or its beginning and a number made of the whole, if it is too long for a name."""
    if len(called) <= _LONGEST_NAME:
        return called
    return f"{called[: _LONGEST_NAME - 10].rstrip('_')}_x{zlib.crc32(called.encode()):08x}"


def shared_parts(exprs: Sequence[Expr], taken: set[str]) -> tuple[dict[str, str], list[str]]:
    """`exprs` as text, with a let for each part used more than once: written out, it would grow without end."""
    order = topological(exprs)
    uses = Counter(arg for node in order for arg in node.args)
    uses.update(exprs)
    lets: dict[str, str] = {}
    new: dict[Expr, Expr] = {}
    for node in order:
        made = call(node.fn, *(new[arg] for arg in node.args)) if node.args else node
        if node.args and uses[node] > 1:
            key = next(f"part_{i}" for i in range(len(lets), 1_000_000) if f"part_{i}" not in taken)
            taken.add(key)
            lets[key] = to_text(made)
            made = name(key, Operand(node.type, node.scope))
        new[node] = made
    return lets, [to_text(new[expr]) for expr in exprs]
