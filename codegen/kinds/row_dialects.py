"""OpenCL dialects of row kernels: how they write an operand of row scope."""

from __future__ import annotations

from ..expr import Expr, OpenCL, Piece

__all__ = ["ACROSS", "BROADCAST", "MACRO_SUFFIX"]

MACRO_SUFFIX = {"value": "V", "mask": "M", "index": "L"}  # of BROADCAST_: the name of the vector type


class Broadcast(OpenCL):
    """The vector dialect that broadcasts per-row values with a macro.

    The template defines the macro: a cast of the scalar where a vector holds elements of one row, nothing
    (`SCHEDULE_COLUMNS`) where it holds elements of several rows, whose per-row values are vectors.
    """

    def operand(self, node: Expr, name: str) -> Piece:
        if node.scope == "row":
            return Piece(f"BROADCAST_{MACRO_SUFFIX[node.type]}({name})")
        return super().operand(node, name)


class Across(OpenCL):
    """The dialect of expressions that compute per-row values of several rows at once.

    Operands of a row are vectors; scalars are still broadcast.
    """

    def operand(self, node: Expr, name: str) -> Piece:
        return Piece(name) if node.scope == "row" else super().operand(node, name)


BROADCAST, ACROSS = Broadcast(lanes=True), Across(lanes=True)
