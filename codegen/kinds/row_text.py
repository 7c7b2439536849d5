"""Names and expression text of derived rowwise ops."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

from ..expr import Expr, Operand, call, to_text, topological, variable

__all__ = ["shared_parts", "short_name"]

_MAX_NAME_LENGTH = 60


def short_name(op_name: str) -> str:
    """Return `op_name`; if it is too long, its beginning and a checksum of the whole name."""
    if len(op_name) <= _MAX_NAME_LENGTH:
        return op_name
    return f"{op_name[: _MAX_NAME_LENGTH - 10].rstrip('_')}_x{zlib.crc32(op_name.encode()):08x}"


def shared_parts(exprs: Sequence[Expr], used_names: set[str]) -> tuple[dict[str, str], list[str]]:
    """Print `exprs`, with a let for each shared subexpression: fully expanded, the text can grow exponentially.

    Args:
        exprs: The expressions.
        used_names: Names that no let may have; gets the names of the lets.

    Returns:
        The text of each let by name, and the texts of `exprs`, which use these names.
    """
    order = topological(exprs)
    uses = Counter(arg for node in order for arg in node.args)
    uses.update(exprs)
    lets: dict[str, str] = {}
    nodes_with_lets: dict[Expr, Expr] = {}
    for node in order:
        new_node = call(node.fn, *(nodes_with_lets[arg] for arg in node.args)) if node.args else node
        if node.args and uses[node] > 1:
            key = next(f"part_{i}" for i in range(len(lets), 1_000_000) if f"part_{i}" not in used_names)
            used_names.add(key)
            lets[key] = to_text(new_node)
            new_node = variable(key, Operand(node.type, node.scope))
        nodes_with_lets[node] = new_node
    return lets, [to_text(nodes_with_lets[expr]) for expr in exprs]
