"""Dialects of row kernels: how what is one a row is spelled among vectors."""

from __future__ import annotations

from ..expr import Expr, OpenCL, Piece

__all__ = ["ACROSS", "LETTER", "SPREAD"]

LETTER = {"value": "V", "mask": "M", "index": "L"}


class Spread(OpenCL):
    """The vector dialect where what is one a row is spread by a macro: it is one number where a vector is a stretch of
    a row, and a vector where it goes across rows."""

    def operand(self, node: Expr, spelled: str) -> Piece:
        if node.scope == "row":
            return Piece(f"SPREAD_{LETTER[node.type]}({spelled})")
        return super().operand(node, spelled)


class Across(OpenCL):
    """What is one a row, for several rows at once: vectors, which need no spreading."""

    def operand(self, node: Expr, spelled: str) -> Piece:
        return Piece(spelled) if node.scope == "row" else super().operand(node, spelled)


SPREAD, ACROSS = Spread(lanes=True), Across(lanes=True)
