"""The data model of specs: frozen dataclasses, independent of YAML and of any target.

An `Op` is one entry of a spec file or a derived entry: a gradient is an op too, generated from the spec of its op
(`expr/derive.py`) and rendered by the same code. `loader.py` builds and checks ops, `render.py` renders them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .expr.nodes import Scope, Type

__all__ = [
    "AUTOCAST", "AUTOCAST_LISTS", "DERIVED_FILE", "DTYPES", "KINDS", "LAYOUTS", "MISSING", "RESULTS", "RESULT_DTYPES",
    "TARGETS", "Missing", "Op", "Param", "SpecError", "SpecErrors",
]  # fmt: skip

KINDS = (
    "pointwise", "reduction", "scan", "rowwise", "contraction", "random", "view", "index", "sort", "window",
    "composite", "custom",
)  # fmt: skip
DTYPES = ("float", "numeric", "integer", "integral", "bool", "all")  # values of the spec field `dtypes`
TARGETS = ("opencl", "triton")  # languages of kernels
# Rules of the spec field `result`, which may also name a dtype.
RESULTS = ("promote", "float", "bool", "index", "accumulate", "truth")
RESULT_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64")
LAYOUTS = ("contiguous", "channels_last")  # values of the spec field `layout`
AUTOCAST = ("lower", "float32", "widest", "refuse")  # values of the spec field `autocast`
DERIVED_FILE = "<derived>"  # stands for the file of entries that the generator derives from others
AUTOCAST_LISTS = ("cpu", "gpu")  # autocast has one list for the device `cpu` and one for all others


class Missing:
    """The type of `MISSING`, which stands for the default of a required parameter."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING = Missing()


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
    default: object = MISSING
    keyword: bool = False
    scope: Scope = "full"
    type: Type = "value"

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
    public_name: str = ""
    method: bool = True
    inplace: bool = False
    alias: tuple[str, ...] = ()
    autocast: tuple[str, ...] = ()
    fields: Mapping[str, object] = field(default_factory=dict)
    spec: Mapping[str, object] = field(default_factory=dict)
    file: str = ""
    line: int = 0

    @property
    def is_derived(self) -> bool:
        """Whether the entry was derived from another op, as a gradient, and is not in a file."""
        return self.file == DERIVED_FILE

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

    @property
    def takes_numbers(self) -> bool:
        """True if a number may stand for a tensor: in calls of several tensors whose elements are combined singly."""
        return self.kind in ("pointwise", "random", "composite") and sum(p.is_tensor for p in self.params) > 1

    @property
    def signature(self) -> str:
        """The signature as written in the spec field `op`."""
        return str(self.spec["op"])

    def text_field(self, field: str, default: str = "") -> str:
        """Return a field of the op's kind that is text, or `default` if the spec lacks it."""
        value = self.fields.get(field, default)
        if isinstance(value, str):
            return value
        raise self._field_error(field, "text", value)

    def mapping_field(self, field: str) -> Mapping[str, object]:
        """Return a field of the op's kind that is a mapping; an empty one if the spec lacks it."""
        value = self.fields.get(field, {})
        if isinstance(value, Mapping):
            return value
        raise self._field_error(field, "a mapping", value)

    def names_field(self, field: str) -> tuple[str, ...]:
        """Return a field of the op's kind that is a list of names; an empty one if the spec lacks it."""
        return names_of(self.fields.get(field, ()), field)

    def sample_range(self, operand: str) -> tuple[float, float] | None:
        """Return the range of an operand's test inputs, from the spec field `sample`; None if the spec has none."""
        match self.mapping_field("sample").get(operand):
            case [int() | float() as low, int() | float() as high]:
                return low, high
        return None

    def _field_error(self, field: str, expected: str, value: object) -> SpecError:
        message = f"must be {expected}, not {type(value).__name__} {str(value)[:60]!r}"
        return SpecError(message, file=self.file, line=self.line, field=field)


def names_of(value: object, field: str) -> tuple[str, ...]:
    """Return the strings of a list of names, the value of a spec field. Raises `SpecError` for any other value."""
    if isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise SpecError(f"must be a list of names, not {str(value)[:60]!r}", field=field)
