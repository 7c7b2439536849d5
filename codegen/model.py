"""What a spec says, parsed and checked: frozen, and free of YAML and of any target.

An `Op` is one entry of a spec file, or one that the program wrote itself: a derivative is an op too, made from the
spec of the op it belongs to (`derive.py`) and rendered by the same code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "AUTOCAST", "AUTOCAST_LISTS", "DTYPES", "KINDS", "MISSING", "RESULTS", "RESULT_DTYPES", "Op", "Param", "SpecError",
    "SpecErrors",
]  # fmt: skip

KINDS = (
    "pointwise", "reduction", "scan", "rowwise", "contraction", "random", "view", "index", "sort", "window",
    "composite", "custom",
)  # fmt: skip
DTYPES = ("float", "numeric", "integer", "integral", "bool", "all")
RESULTS = ("promote", "float", "bool", "index", "accumulate")
RESULT_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
AUTOCAST = ("lower", "float32", "widest", "refuse")
AUTOCAST_LISTS = ("cpu", "gpu")  # autocast treats ops on the device `cpu` by one list, on all others by another
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()


class SpecError(ValueError):
    """One thing wrong with a spec: where, which field, what was found, and what would be right."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, field: str = "", suggestion: str | None = None):
        self.message, self.file, self.line, self.field, self.suggestion = message, file, line, field, suggestion
        super().__init__(str(self))

    def __str__(self) -> str:
        at = f":{self.line}" if self.line else ""
        place = f"{self.file or '<spec>'}{at}: " if self.line or self.file else ""
        named = f"{self.field}: " if self.field else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{place}{named}{self.message}{hint}"


class SpecErrors(SpecError):
    """Everything wrong with a spec file, at once."""

    def __init__(self, errors: list[SpecError]):
        self.errors = errors
        super().__init__("")

    def __str__(self) -> str:
        return "\n".join(str(e) for e in self.errors)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of an op's signature.

    role: `tensor`, `optional` (a tensor or None), `list`, `scalar` (a number, weak in promotion), `number` (a float
    used in an expression), or `static` (resolved before rendering). scope: `full`, `column` (one a position in the
    row: `Row`), `row` (one a row: `PerRow`). annotation: as Python writes it in the binding.
    """

    name: str
    role: str
    annotation: str
    default: Any = MISSING
    keyword: bool = False
    scope: Literal["full", "column", "row", "scalar"] = "full"
    type: Literal["value", "mask", "index"] = "value"

    @property
    def is_tensor(self) -> bool:
        return self.role in ("tensor", "optional", "list")


@dataclass(frozen=True, slots=True)
class Op:
    """One op. `fields` keeps what only its kind reads; `spec` is the entry as written, for deriving later.

    autocast: what happens to floating operands under autocast, by `AUTOCAST_LISTS`: a word of `AUTOCAST`, or "" for
    nothing; empty where the spec says nothing.
    """

    name: str
    kind: str
    params: tuple[Param, ...]
    doc: str = ""
    dtypes: str = "numeric"
    result: str = "promote"
    outputs: Mapping[str, str] = field(default_factory=dict)
    grad: Mapping[str, str] | str | None = None
    operator: str | None = None
    reference: str | None = None
    namespace: str = "torch"
    method: bool = True
    inplace: bool = False
    alias: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    fields: Mapping[str, Any] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    @property
    def operands(self) -> tuple[Param, ...]:
        """Parameters that reach kernels: tensors and numbers, in order."""
        return tuple(p for p in self.params if p.role != "static")

    @property
    def statics(self) -> tuple[Param, ...]:
        """Parameters resolved before a kernel is chosen."""
        return tuple(p for p in self.params if p.role == "static")

    def param(self, name: str) -> Param:
        """The parameter called `name`."""
        return next(p for p in self.params if p.name == name)
