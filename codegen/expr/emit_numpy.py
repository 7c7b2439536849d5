"""Print expressions as NumPy code, for tests and `weftgrad check`: `np` is numpy and `sp` is scipy.special."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

from .emit import ATOM, Block, Dialect, Piece, emit
from .nodes import Expr


class _NumPy(Dialect):
    target = "numpy"
    function_prefix = "np."
    infix: ClassVar[Mapping[str, int]] = {
        "==": 4, "!=": 4, "<": 4, "<=": 4, ">": 4, ">=": 4, "|": 5, "^": 6, "&": 7, "<<": 8, ">>": 8,
        "+": 9, "-": 9, "*": 10, "/": 10,
    }  # fmt: skip
    prefix: ClassVar[Mapping[str, int]] = {"-": 11, "~": 11}
    comparisons = frozenset(("==", "!=", "<", "<=", ">", ">="))

    def literal(self, node: Expr) -> Piece:
        value = node.value
        if isinstance(value, float) and not math.isfinite(value):
            return Piece("np.nan") if math.isnan(value) else Piece("np.inf" if value > 0 else "(-np.inf)")
        text = repr(value)
        return Piece(text, self.prefix["-"] if text.startswith("-") else ATOM)

    def declare(self, node: Expr, local: str, text: str) -> str:
        return f"{local} = {text}"


_NUMPY = _NumPy()


def emit_numpy(outputs: Mapping[str, Expr], *, local: str = "t", names: Mapping[str, str] | None = None) -> Block:
    """Print `outputs` as Python statements and expressions of arrays that broadcast against each other.

    A row reduction reduces the last axis with keepdims=True. Operands of scope `row` have length 1 in the last axis,
    operands of scope `column` in all other axes. Random functions are called by their plain names.
    """
    return emit(outputs, _NUMPY, local=local, names=names)
