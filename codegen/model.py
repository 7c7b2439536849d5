"""The data model of specs: frozen dataclasses, independent of YAML and of any target.

An `Op` is one entry of a spec file or a derived entry: a gradient is an op too, generated from the spec of its op
(`expr/derive.py`) and rendered by the same code. `loader.py` builds and checks ops, `render.py` renders them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

__all__ = [
    "AUTOCAST", "AUTOCAST_LISTS", "DTYPES", "KINDS", "MISSING", "RESULTS", "RESULT_DTYPES", "TARGETS", "Op", "Param",
    "SpecError", "SpecErrors",
]  # fmt: skip

KINDS = (
    "pointwise", "reduction", "scan", "rowwise", "contraction", "random", "view", "index", "sort", "window",
    "composite", "custom",
)  # fmt: skip
DTYPES = ("float", "numeric", "integer", "integral", "bool", "all")  # values of the spec field `dtypes`
TARGETS = ("opencl", "triton")  # languages of kernels
RESULTS = ("promote", "float", "bool", "index", "accumulate")  # rules of the spec field `result`; it may name a dtype
RESULT_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
AUTOCAST = ("lower", "float32", "widest", "refuse")  # values of the spec field `autocast`
AUTOCAST_LISTS = ("cpu", "gpu")  # autocast has one list for the device `cpu` and one for all others
MISSING: Any = type("Missing", (), {"__repr__": lambda self: "MISSING"})()  # the default of a required parameter


class SpecError(ValueError):
    """One error in a spec: file, line, field, message, and a suggestion."""

    def __init__(self, message: str, *, file: str = "", line: int = 0, field: str = "", suggestion: str | None = None):
        self.message, self.file, self.line, self.field, self.suggestion = message, file, line, field, suggestion
        super().__init__(str(self))

    def __str__(self) -> str:
        line_text = f":{self.line}" if self.line else ""
        location = f"{self.file or '<spec>'}{line_text}: " if self.line or self.file else ""
        field_text = f"{self.field}: " if self.field else ""
        hint = f" ({self.suggestion})" if self.suggestion else ""
        return f"{location}{field_text}{self.message}{hint}"


class SpecErrors(SpecError):
    """All errors of a spec file, one per line of its text."""

    def __init__(self, errors: list[SpecError]):
        self.errors = errors
        super().__init__("")

    def __str__(self) -> str:
        return "\n".join(str(e) for e in self.errors)


@dataclass(frozen=True, slots=True)
class Param:
    """One parameter of an op's signature.

    Attributes:
        name: the parameter's name.
        role: `tensor`, `optional` (a tensor or None), `list` (of tensors), `scalar` (a number, weak in promotion),
            `number` (a float that takes no part in promotion), `static` (resolved before a kernel is chosen), `seed`,
            or `absent` (an optional operand, in the variant of the kernel for calls that pass None).
        annotation: the annotation in the generated function.
        default: the default, or MISSING.
        keyword: whether it is keyword-only.
        scope: how many elements the operand has: one per element of the result (`full`), per position in the row
            (`column`, annotated `Row`), per row (`row`, annotated `PerRow`), or one for all (`scalar`).
        type: `value`, `mask` (read as truth values) or `index` (int64).
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
    """One op. Most attributes are fields of its spec entry, which `loader.COMMON` describes.

    Attributes:
        params: the parameters of the signature (spec field `op`), in order.
        outputs: result name -> text of its expression.
        autocast: a word of `AUTOCAST`, or "" for no cast, for each of `AUTOCAST_LISTS`; () without the spec field.
        fields: the fields that only the op's kind reads.
        spec: the entry as written, from which derivatives are derived later.
        file, line: where the entry is.
    """

    name: str
    kind: str
    params: tuple[Param, ...]
    doc: str = ""
    example: str = ""
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
        """The parameters that kernels get: tensors and numbers, in order."""
        return tuple(p for p in self.params if p.role != "static")

    @property
    def statics(self) -> tuple[Param, ...]:
        """The parameters that are resolved before a kernel is chosen."""
        return tuple(p for p in self.params if p.role == "static")

    def param(self, name: str) -> Param:
        """Return the parameter called `name`."""
        return next(p for p in self.params if p.name == name)
