"""The table of ops: which function converts a call."""

from __future__ import annotations

from .contraction_rows import CONTRACTION_ROWS, convert_contraction
from .conversion import Conversion, Row
from .expressions import convert_pointwise, convert_reduction, convert_rowwise
from .index_rows import INDEX_ROWS
from .layer_rows import LAYER_ROWS
from .pointwise_rows import POINTWISE_ROWS
from .recurrent_rows import RECURRENT_ROWS
from .reduction_rows import REDUCTION_ROWS

__all__ = ["KINDS", "TABLE", "find_row"]

TABLE: dict[str, Row] = {
    **CONTRACTION_ROWS, **INDEX_ROWS, **LAYER_ROWS, **POINTWISE_ROWS, **RECURRENT_ROWS, **REDUCTION_ROWS,
}  # fmt: skip
"""Rows by the name of the op."""

KINDS: dict[str, Row] = {
    "pointwise": convert_pointwise, "rowwise": convert_rowwise, "reduction": convert_reduction,
    "contraction": convert_contraction,
}  # fmt: skip
"""How ops without a row are converted, by their kind: from the formulas of their specs."""


def find_row(c: Conversion) -> Row:
    """Return the row of a call's op.

    Raises:
        UnsupportedOperatorError: There is none.
    """
    record = c.call.record
    row = TABLE.get(record.name)
    if row is None and (record.spec or record.kind == "contraction"):
        row = KINDS.get(record.kind)
    if row is not None:
        return row
    reason = "the exporter's table has no row for this op"
    if record.kind == "random":
        reason = "it draws random numbers; export the model in evaluation mode"
    raise c.unsupported(reason)
