"""Parse signatures of ops: Python syntax, with a whitelist of annotations and literal defaults."""

from __future__ import annotations

import ast
import difflib
import keyword
import math
import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from .model import MISSING, Param, SpecError

if TYPE_CHECKING:
    from .expr.nodes import Scope, Type

__all__ = ["annotation_table", "c_names", "check_name", "parse_signature"]

# annotation -> (role, scope, type, annotation in the binding)
_ANNOTATIONS: dict[str, tuple[str, Scope, Type, str]] = {
    "": ("tensor", "full", "value", "Tensor"),
    "Tensor": ("tensor", "full", "value", "Tensor"),
    "Tensor | None": ("optional", "full", "value", "Tensor | None"),
    "list[Tensor]": ("list", "full", "value", "Sequence[Tensor]"),
    "Row": ("tensor", "column", "value", "Tensor"),
    "Row | None": ("optional", "column", "value", "Tensor | None"),
    "None": ("absent", "column", "value", "None"),  # an optional operand, in the variant of the op without it
    "PerRow": ("tensor", "row", "value", "Tensor"),
    "Mask": ("tensor", "full", "mask", "Tensor"),
    "Index": ("tensor", "full", "index", "Tensor"),
    "RowIndex": ("tensor", "row", "index", "Tensor"),
    "Scalar": ("scalar", "scalar", "value", "Number"),
    "float": ("number", "scalar", "value", "float"),
    "int": ("static", "scalar", "value", "int"),
    "int | None": ("static", "scalar", "value", "int | None"),
    "bool": ("static", "scalar", "value", "bool"),
    "str": ("static", "scalar", "value", "str"),
    "tuple[int, ...]": ("static", "scalar", "value", "Sequence[int]"),
    "tuple[int, ...] | None": ("static", "scalar", "value", "Sequence[int] | None"),
    "int | tuple[int, ...]": ("static", "scalar", "value", "int | Sequence[int]"),
    "int | tuple[int, ...] | None": ("static", "scalar", "value", "int | Sequence[int] | None"),
    "DType": ("static", "scalar", "value", "DTypeLike"),
    "DType | None": ("static", "scalar", "value", "DTypeLike | None"),
    "Seed": ("seed", "scalar", "index", "int"),
    "Generator | None": ("static", "scalar", "value", "Generator | None"),
}
_LITERAL = re.compile(r"Literal\[[^\]]*\]")
_NAME = re.compile(r"[a-z][a-z0-9_]*\Z")
# Names that a parameter must not have in kernels: variables of the templates, words of C, and OpenCL functions that
# emitted text calls.
_RESERVED = frozenset(
    """
    geo dyn i n row rows chunk end begin at rest index size stride double float int long short char half uint
    ulong uchar ushort bool signed unsigned auto const static volatile restrict register inline extern struct
    union enum typedef switch case default do goto sizeof void kernel global local private constant image1d_t
    event_t sampler_t vector this main min max abs exp log sin cos tan step sign clamp mix half_t input_t pow
    round floor ceil typeof asm noreturn generic pipe complex imaginary quad uniform queue_t size_t ptrdiff_t
    intptr_t uintptr_t image2d_t image3d_t image2d_array_t image1d_array_t image1d_buffer_t reserve_id_t
    clk_event_t ndrange_t acos acosh acospi asin asinh asinpi atan atan2 atan2pi atanh atanpi cbrt cosh cospi
    erfc erf exp2 exp10 expm1 fabs fdim fma fmax fmin fmod fract frexp hypot ilogb ldexp lgamma lgamma_r log2
    log10 log1p logb mad maxmag minmag modf nan nextafter pown powr remainder remquo rint rootn rsqrt sincos
    sinh sinpi sqrt tanh tanpi tgamma trunc abs_diff add_sat hadd rhadd mad_hi mad_sat mul_hi rotate sub_sat
    upsample popcount clz ctz mad24 mul24 degrees radians smoothstep cross dot distance length normalize isequal
    isnotequal isgreater isgreaterequal isless islessequal islessgreater isfinite isinf isnan isnormal isordered
    isunordered signbit any all bitselect select barrier mem_fence prefetch shuffle shuffle2 printf copysign
    first second state
    """.split()  # noqa: SIM905
)
_RESERVED_C_PATTERN = re.compile(
    r"(u?(char|short|int|long)|float|double|half|bool)\d+\Z|(as|convert|native|half|atomic|atom|async|sub_group|work_group|"
    r"vload|vstore|read|write|image)_|vload\d|vstore\d"
)
# Prefixes of generated functions, and numbered variables of the templates and of emitted text, such as `t0`.
_RESERVED_PATTERN = re.compile(r"(wg_|get_|[trwxyposv]\d+\Z|uniform(_lanes)?\d+\Z)")


def annotation_table() -> Mapping[str, tuple[str, str, str, str]]:
    """Return annotation -> (role, scope, type, annotation in the generated function), for the language reference."""
    return MappingProxyType(_ANNOTATIONS)


def check_name(name: str, what: str) -> None:
    """Raise `SpecError` unless `name` is safe as a Python and as an OpenCL C identifier."""
    if not _NAME.match(name) or len(name) > 60:
        raise SpecError(f"{what} {name[:80]!r} must be lower-case letters, digits and underscores, at most 60 of them")
    if keyword.iskeyword(name) or "__" in name:
        raise SpecError(f"{what} {name!r} has a meaning in Python", suggestion=f"try {name}_value")


def c_names(names: Iterable[str]) -> dict[str, str]:
    """Return kernel names for the operands whose names clash with C or the templates: the name with an underscore."""
    all_names = list(names)
    kernel_names: dict[str, str] = {}
    for name in all_names:
        if name in _RESERVED or _RESERVED_PATTERN.match(name) or _RESERVED_C_PATTERN.match(name):
            candidate = f"{name}_"
            while candidate in all_names or candidate in kernel_names.values():
                candidate += "_"
            kernel_names[name] = candidate
    return kernel_names


def parse_signature(text: str) -> tuple[str, tuple[Param, ...]]:
    """Parse a signature such as `sum(input, dim: int | None = None, *, keepdim: bool = False)`: name and parameters."""
    if len(text) > 2000:
        raise SpecError("a signature is at most 2000 characters")
    if not (text.isascii() and text.isprintable()) or "#" in text:
        raise SpecError(f"{text[:80]!r} is not a signature", suggestion="one line of plain ASCII, without a comment")
    try:
        tree = ast.parse(f"def {text}: pass")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SpecError(
            f"{text[:80]!r} is not a signature", suggestion="write it as in Python: name(input, alpha: Scalar = 1)"
        ) from None
    function = tree.body[0]
    if (
        len(tree.body) != 1
        or not isinstance(function, ast.FunctionDef)
        or function.returns
        or getattr(function, "type_params", None)
        or [type(statement) for statement in function.body] != [ast.Pass]
    ):
        raise SpecError(f"{text[:80]!r} is not one signature")
    arguments = function.args
    if arguments.vararg or arguments.kwarg or arguments.posonlyargs:
        raise SpecError("a signature has no *args, **kwargs or '/'")
    check_name(function.name, "the op's name")
    positional = arguments.args
    defaults: list[ast.expr | None] = [None] * (len(positional) - len(arguments.defaults)) + list(arguments.defaults)
    params = [_param(a, d, False) for a, d in zip(positional, defaults, strict=True)]
    params += [_param(a, d, True) for a, d in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    names = [p.name for p in params]
    for name in names:
        if names.count(name) > 1:
            raise SpecError(f"parameter {name!r} stands twice in the signature")
    return function.name, tuple(params)


def _param(argument: ast.arg, default: ast.expr | None, keyword_only: bool) -> Param:
    check_name(argument.arg, "the parameter")
    annotation = ast.unparse(argument.annotation) if argument.annotation else ""
    meaning = _ANNOTATIONS.get(annotation)
    if meaning is None and _LITERAL.fullmatch(annotation) and _strings_only(argument.annotation):
        meaning = ("static", "scalar", "value", annotation)
    if meaning is None:
        matches = difflib.get_close_matches(annotation, _ANNOTATIONS, 1)
        raise SpecError(
            f"parameter {argument.arg}: unknown annotation {annotation[:60]!r}",
            suggestion=f"did you mean {matches[0]!r}?"
            if matches
            else f"one of {', '.join(filter(None, _ANNOTATIONS))}",
        )
    role, scope, type, binding_annotation = meaning
    value: object = MISSING
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except (ValueError, TypeError, SyntaxError, RecursionError, MemoryError):
            raise SpecError(f"parameter {argument.arg}: the default must be a literal") from None
        if not _is_plain(value):
            raise SpecError(
                f"parameter {argument.arg}: the default must be None, a finite number, a string or a tuple of them"
            )
    return Param(argument.arg, role, binding_annotation, value, keyword_only, scope, type)


def _is_plain(value: object) -> bool:
    """Return True if `repr` of a default is source that evaluates to it: no infinity, no set, no huge value."""
    if isinstance(value, tuple):
        return len(value) <= 16 and all(_is_plain(v) and not isinstance(v, tuple) for v in value)
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, int):
        return abs(value) < 2**64
    return value is None or (isinstance(value, str) and len(value) <= 100)


def _strings_only(annotation: ast.expr | None) -> bool:
    """Return True if all items of an annotation `Literal[…]` are strings that are identifiers."""
    if not isinstance(annotation, ast.Subscript):
        return False
    inner = annotation.slice
    items = inner.elts if isinstance(inner, ast.Tuple) else [inner]
    return all(isinstance(i, ast.Constant) and isinstance(i.value, str) and i.value.isidentifier() for i in items)
