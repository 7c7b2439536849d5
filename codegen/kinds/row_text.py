"""Names and expression text of derived rowwise ops."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Sequence

from ..expr import Expr, Operand, call, name, to_text, topological

__all__ = ["shared_parts", "short_name"]

_MAX_NAME_LENGTH = 60


def short_name(op_name: str) -> str:
    """Return `op_name`; if it is too long, its beginning and a checksum of the whole name."""
    if len(op_name) <= _MAX_NAME_LENGTH:
        return op_name
    return f"{op_name[: _MAX_NAME_LENGTH - 10].rstrip('_')}_x{zlib.crc32(op_name.encode()):08x}"


def shared_parts(exprs: Sequence[Expr], used_names: set[str]) -> tuple[dict[str, str], list[str]]:
    """Print `exprs`, with a let for each shared subexpression: fully expanded, the text can grow exponentially."""
    order = topological(exprs)
    uses = Counter(arg for node in order for arg in node.args)
    uses.update(exprs)
    lets: dict[str, str] = {}
    rebuilt_nodes: dict[Expr, Expr] = {}
    for node in order:
        rebuilt = call(node.fn, *(rebuilt_nodes[arg] for arg in node.args)) if node.args else node
        if node.args and uses[node] > 1:
            key = next(f"part_{i}" for i in range(len(lets), 1_000_000) if f"part_{i}" not in used_names)
            used_names.add(key)
            lets[key] = to_text(rebuilt)
            rebuilt = name(key, Operand(node.type, node.scope))
        rebuilt_nodes[node] = rebuilt
    return lets, [to_text(rebuilt_nodes[expr]) for expr in exprs]
