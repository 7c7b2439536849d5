"""OpenCL dialects of row kernels: how they write a per-row value inside a vector expression."""

from __future__ import annotations

from ..expr import Expr, OpenCL, Piece

__all__ = ["ACROSS", "BROADCAST", "LETTER"]

LETTER = {"value": "V", "mask": "M", "index": "L"}


class Broadcast(OpenCL):
    """The vector dialect that broadcasts per-row values with a macro.

    Where a vector holds elements of one row, the macro broadcasts a scalar. Where a vector holds elements of several
    rows, the per-row value is already a vector.
    """

    def operand(self, node: Expr, kernel_name: str) -> Piece:
        if node.scope == "row":
            return Piece(f"BROADCAST_{LETTER[node.type]}({kernel_name})")
        return super().operand(node, kernel_name)


class Across(OpenCL):
    """The dialect for several rows at once: per-row values are vectors and need no broadcast."""

    def operand(self, node: Expr, kernel_name: str) -> Piece:
        return Piece(kernel_name) if node.scope == "row" else super().operand(node, kernel_name)


BROADCAST, ACROSS = Broadcast(lanes=True), Across(lanes=True)
