"""One audited call."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from .operands import Operands

__all__ = ["Call", "Case"]

Call = Callable[[], object]
_LABELS = {"float32": "f32", "tf32": "tf32", "bfloat16": "bf16", "float16": "f16"}


@dataclass(frozen=True, slots=True)
class Case:
    """One call.

    Attributes:
        group: The part of the table.
        label: What is called, at which size.
        precision: `float32`, `tf32` (float32 operands whose products may round to tf32), `bfloat16` or `float16`.
        prepare: Returns the call.
        flops: Operations of its matrix products.
    """

    group: str
    label: str
    precision: str
    prepare: Callable[[Operands], Call]
    flops: float = 0.0

    @property
    def name(self) -> str:
        """The name by which bars and users find the case: label and precision."""
        return f"{self.label} {_LABELS[self.precision]}"

    @property
    def dtype(self) -> str:
        """The name of the dtype of its operands."""
        return "float32" if self.precision == "tf32" else self.precision
