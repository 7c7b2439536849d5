"""Load a YAML spec file into checked `Op`s, or report all its errors at once, with file, line, field and suggestion.

A spec file is untrusted data. `spec_yaml` reads it without constructing anything. Names must be identifiers,
expressions pass the whitelist of `expr.parse`, and a `custom` op, whose kernel is code, needs a trusted caller.
"""

from __future__ import annotations

import difflib
import math
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Protocol

from .effects import collisions, effect_errors
from .fields import Fields, expression_text
from .kind_modules import kind_module, kind_names
from .model import (
    AUTOCAST,
    AUTOCAST_LISTS,
    DERIVED_FILE,
    DTYPES,
    KINDS,
    LAYOUTS,
    RESULT_DTYPES,
    RESULTS,
    Op,
    Param,
    SpecError,
    SpecErrors,
    names_of,
)
from .signature import c_names, check_name, parse_signature
from .spec_yaml import MAX_BYTES, Located, read_entries

__all__ = [
    "COMMON",
    "KIND_FIELDS",
    "NAMESPACES",
    "OPERATORS",
    "REQUIRED",
    "collisions",
    "load_file",
    "load_text",
    "op_from_mapping",
]

_MAX_NAME_LENGTH = 60

COMMON: Fields = {
    "op": ((str,), "the signature, as in Python"),
    "kind": ((str,), f"one of {', '.join(KINDS)}"),
    "doc": ((str,), "what the op computes; the first line is the summary"),
    "example": ((str,), "one call and the text of its result, for the docstring: CALL -> RESULT"),
    "dtypes": ((str,), f"allowed dtypes of operands: {', '.join(DTYPES)}"),
    "result": ((str,), f"the result's dtype: {', '.join(RESULTS)}, like:NAME or a dtype"),
    "operator": ((str,), "the Python operator that calls it"),
    "grad": ((str, dict), "`none`, or the gradient of each operand; absent: derived"),
    "reference": ((str,), "an independent NumPy or SciPy function, for tests"),
    "namespace": ((str,), "torch, nn.functional or hidden"),
    "public_name": ((str,), "of a hidden op: the function that users call, which messages of errors name"),
    "method": ((bool,), "whether Tensor has a method of this name (default true)"),
    "inplace": ((bool,), "whether there is an in-place form NAME_ that overwrites the first operand"),
    "alias": ((str, list), "other names"),
    "sample": ((dict,), "ranges of test inputs by operand: [low, high]"),
    "autocast": ((str, dict), f"under autocast: {', '.join(AUTOCAST)}; or by device {{cpu: ..., gpu: ...}}"),
}
KIND_FIELDS: dict[str, Fields] = {kind: kind_module(kind).FIELDS for kind in KINDS}
REQUIRED: dict[str, tuple[str, ...]] = {kind: kind_module(kind).REQUIRED for kind in KINDS}
_REFERENCE = re.compile(r"(numpy|numpy\.linalg|scipy\.special|math)\.[a-z][a-z0-9_]*\Z")
OPERATORS = (
    "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "~", "<<", ">>", "==", "!=", "<", "<=", ">", ">=",
    "neg", "abs",
)  # fmt: skip
NAMESPACES = ("torch", "nn.functional", "special", "hidden")


def load_file(path: Path, *, trust: bool = False) -> list[Op]:
    """Load the ops of a file. Raises `SpecErrors` with all errors of the file."""
    try:
        if path.stat().st_size > MAX_BYTES:
            raise SpecErrors([SpecError(f"a spec file is at most {MAX_BYTES >> 20} MiB", file=str(path), line=1)])
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecErrors([SpecError(f"cannot be read: {error.strerror or error}", file=str(path))]) from None
    except UnicodeDecodeError as error:
        raise SpecErrors([SpecError(f"is not UTF-8 text: {error.reason}", file=str(path), line=1)]) from None
    return load_text(text, str(path), trust=trust)


def load_text(text: str, file: str = "<text>", *, trust: bool = False) -> list[Op]:
    """Load the ops of a YAML text. Raises `SpecErrors` with all errors of the text."""
    entries, errors = read_entries(text, file)
    ops: list[Op] = []
    for entry in entries:
        try:
            op = _parse_op(entry, file, trust, errors)
        except SpecError as error:
            errors.extend(_with_line(error, entry, file))
            continue
        if op is not None:
            ops.append(op)
    errors += collisions(ops)
    if errors:
        raise SpecErrors(sorted(errors, key=lambda e: e.line))
    return ops


def op_from_mapping(entry: Mapping[str, object], file: str = DERIVED_FILE, *, trust: bool = True) -> Op:
    """Build an op from a mapping instead of YAML, such as a derived gradient. Raises `SpecErrors`."""
    located = Located()
    located.update(entry)
    signature = entry.get("op")
    if isinstance(signature, str):
        located["op"] = _shortened(signature)
    errors: list[SpecError] = []
    try:
        op = _parse_op(located, file, trust, errors)
    except SpecError as error:
        errors.extend(_with_line(error, located, file))
        op = None
    if errors or op is None:
        raise SpecErrors(errors)
    return op


def _shortened(signature: str) -> str:
    """Shorten the op's name in `signature` if it is too long: names of higher derivatives grow."""
    name, bracket, rest = signature.partition("(")
    if len(name) <= _MAX_NAME_LENGTH:
        return signature
    return f"{name[: _MAX_NAME_LENGTH - 10].rstrip('_')}_x{zlib.crc32(name.encode()):08x}{bracket}{rest}"


def _with_line(error: SpecError, entry: Located, file: str) -> list[SpecError]:
    """Add the line of the field that `error` names."""
    if isinstance(error, SpecErrors):
        return [e for inner in error.errors for e in _with_line(inner, entry, file)]
    first = error.field.partition(".")[0]
    line = entry.line_of(error.field) or entry.lines.get(first) or entry.line
    return [SpecError(error.message, file=file, line=line, field=error.field, suggestion=error.suggestion)]


def _parse_op(entry: Located, file: str, trust: bool, errors: list[SpecError]) -> Op | None:
    """Return the op of an entry. If fields are wrong, append their errors and return None.

    Raises:
        SpecError: An expression, the signature or a name is wrong.
    """
    error_count = len(errors)

    def report(message: str, field: str, suggestion: str | None = None) -> None:
        errors.append(
            SpecError(message, file=file, line=entry.lines.get(field) or entry.line, field=field, suggestion=suggestion)
        )

    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in kind_names():
        report(f"unknown kind {kind!r}" if "kind" in entry else "is missing", "kind", _suggest(kind, kind_names()))
        return None
    module = kind_module(kind)
    allowed = COMMON | module.FIELDS
    for key, value in entry.items():
        if key not in allowed:
            report(f"unknown field {key[:60]!r} of a {kind} op", key, _suggest(key, allowed))
        elif (
            value is None
            or not isinstance(value, allowed[key][0])
            or (isinstance(value, bool) and bool not in allowed[key][0])
        ):
            expected_types = " or ".join(sorted({t.__name__ for t in allowed[key][0]}))
            report(f"must be {expected_types}, not {type(value).__name__} {str(value)[:60]!r}", key)
    for key in ("op", *module.REQUIRED):
        if key not in entry:
            report("is missing", key)
    _check_choices(entry, report)
    for key, value in entry.items():
        if key in allowed:
            _check_nested(key, value, report)
    if kind == "custom" and not trust:
        report("a custom op is code; load it with trust=True if you wrote it", "kind")
    if len(errors) > error_count:
        return None
    signature = _text(entry, "op")
    name, params = parse_signature(signature)
    outputs = _outputs(entry)
    _check_parameters(params, outputs, derived=file == DERIVED_FILE)
    grad = entry.get("grad")
    gradients = {k: expression_text(v) for k, v in grad.items()} if isinstance(grad, dict) else None
    op = Op(
        name=name, kind=kind, params=params, doc=_text(entry, "doc").strip(), example=_text(entry, "example").strip(),
        dtypes=_text(entry, "dtypes", getattr(module, "DEFAULT_DTYPES", "numeric")),
        result=_text(entry, "result", "promote"), outputs=outputs,
        grad=_optional_text(entry, "grad") if gradients is None else gradients,
        operator=_optional_text(entry, "operator"), reference=_optional_text(entry, "reference"),
        namespace=_text(entry, "namespace", "torch"), public_name=_text(entry, "public_name"),
        method=bool(entry.get("method", True)), inplace=bool(entry.get("inplace", False)), alias=_aliases(entry),
        autocast=_autocast(entry.get("autocast"), kind),
        fields={k: v for k, v in entry.items() if (k in module.FIELDS and k != "out") or k == "sample"},
        spec={k: _plain_value(v) for k, v in entry.items()}, file=file, line=entry.lines.get("op", entry.line),
    )  # fmt: skip
    for alias_name in op.alias:
        check_name(alias_name, "the alias")
    if "public_name" in entry:
        check_name(op.public_name, "the public name")
    _check_operand_fields(op)
    if file != DERIVED_FILE and (unread := effect_errors(op, entry)):
        raise SpecErrors(unread)
    module.check(op)
    return op


def _text(entry: Located, field: str, default: str = "") -> str:
    """Return a field that is text, or `default` if the entry lacks it."""
    value = entry.get(field, default)
    if isinstance(value, str):
        return value
    raise SpecError(f"must be str, not {type(value).__name__} {str(value)[:60]!r}", field=field)


def _optional_text(entry: Located, field: str) -> str | None:
    return _text(entry, field) if field in entry else None


def _aliases(entry: Located) -> tuple[str, ...]:
    """Return the other names of the op: the field `alias` is one name or a list."""
    value = entry.get("alias", ())
    return (value,) if isinstance(value, str) else names_of(value, "alias")


def _outputs(entry: Located) -> dict[str, str]:
    """Return the text of each result's expression. A single one without a name is called `out`."""
    if "out" not in entry:
        return {}
    out = entry["out"]
    texts = out if isinstance(out, dict) else {"out": out}
    outputs = {k: expression_text(v) for k, v in texts.items()}
    if not outputs:
        raise SpecError("at least one result", field="out")
    for output in outputs:
        check_name(output, "the result")
    return outputs


def _autocast(value: object, kind: str) -> tuple[str, ...]:
    """Return the autocast word for the device `cpu` and the one for all other devices."""
    if value is None:
        return ()
    if kind in ("composite", "view"):
        raise SpecError(f"a {kind} op computes nothing itself: say it of the ops that do", field="autocast")
    lists = value if isinstance(value, Mapping) else dict.fromkeys(AUTOCAST_LISTS, value)
    for name, word in lists.items():
        if name not in AUTOCAST_LISTS:
            hint = f"known: {', '.join(AUTOCAST_LISTS)}"
            raise SpecError(f"unknown list {str(name)[:40]!r}", field="autocast", suggestion=hint)
        if word not in AUTOCAST:
            raise SpecError(f"unknown word {str(word)[:40]!r}", field="autocast", suggestion=_suggest(word, AUTOCAST))
    return tuple(str(lists.get(name, "")) for name in AUTOCAST_LISTS) if lists else ()


def _check_parameters(params: Iterable[Param], outputs: Mapping[str, str], *, derived: bool) -> None:
    """Check that no parameter has the name of a result."""
    for p in params:
        if p.name in outputs or (p.name == "out" and not derived):
            raise SpecError(f"{p.name!r} is a parameter, and also a result", field="op")


def _check_operand_fields(op: Op) -> None:
    """Check the fields that name operands."""
    names = {p.name for p in op.operands}
    if op.result.startswith("like:") and op.result.removeprefix("like:") not in names:
        raise SpecError(f"{op.result!r} names no operand", field="result", suggestion=_suggest(op.result[5:], names))
    for name, bounds in op.mapping_field("sample").items():
        if name not in names:
            raise SpecError(f"{name[:40]!r} is no operand", field="sample", suggestion=_suggest(name, names))
        if not _is_range(bounds):
            raise SpecError(f"{name}: expected [low, high], found {str(bounds)[:60]}", field="sample")
    if op.inplace and (op.kind not in ("pointwise",) or not op.operands or not op.operands[0].is_tensor):
        raise SpecError(
            "only a pointwise op whose first parameter is a tensor has a form that writes in place", field="inplace"
        )
    if op.kind in _STATE_FIELD:
        reserved = c_names([*names, *_state_field_names(op)])
        if reserved:
            message = f"{next(iter(reserved))!r} has a meaning in kernels; choose another name"
            raise SpecError(message, field=_STATE_FIELD[op.kind])


def _is_range(bounds: object) -> bool:
    """Return True for a list of two finite numbers, the smaller one first."""
    if not isinstance(bounds, list) or len(bounds) != 2 or not all(type(b) in (int, float) for b in bounds):
        return False
    return all(map(math.isfinite, bounds)) and bounds[0] < bounds[1]


_STATE_FIELD = {"reduction": "reduce", "scan": "scan", "window": "window"}  # kind -> the field with its state


def _state_field_names(op: Op) -> list[str]:
    mapped = op.mapping_field(_STATE_FIELD[op.kind]).get("map")
    return list(mapped) if isinstance(mapped, dict) else []


_SCALARS = (str, int, float, bool)


class _Report(Protocol):
    """Adds an error about a field of the entry."""

    def __call__(self, message: str, field: str, suggestion: str | None = None) -> None: ...


def _check_nested(key: str, value: object, report: _Report) -> None:
    """Check the contents of lists and mappings."""
    if key in ("alias", "save") and isinstance(value, list):
        for element in value:
            if not isinstance(element, str):
                report(f"a list of names, not of {type(element).__name__} {str(element)[:40]!r}", key)
    if key in ("grad", "out", "let") and isinstance(value, dict):
        for key_name, element in value.items():
            if not isinstance(element, _SCALARS):
                report(f"{key_name[:40]}: an expression, not {type(element).__name__} {str(element)[:40]!r}", key)
    if key in ("reduce", "scan", "window") and isinstance(value, dict):
        for part, element in value.items():
            parts = list(element.values()) if isinstance(element, dict) else element if part == "save" else [element]
            if not isinstance(parts, list) or not all(isinstance(p, _SCALARS) for p in parts):
                report(f"{part[:40]}: an expression, or a mapping from fields to expressions", key)


def _check_choices(entry: Located, report: _Report) -> None:
    """Check the fields that have a fixed set of values."""
    for key, known in (("dtypes", DTYPES), ("operator", OPERATORS), ("namespace", NAMESPACES)):
        word = entry.get(key)
        if isinstance(word, str) and word not in known:
            report(f"unknown {key} {word[:40]!r}", key, _suggest(word, known))
    result = entry.get("result")
    rules = (*RESULTS, *RESULT_DTYPES)
    if isinstance(result, str) and result not in rules and not re.match(r"like:[a-z_0-9]+\Z", result):
        report(f"unknown result rule {result[:40]!r}", "result", _suggest(result, rules))
    layout = entry.get("layout")
    if isinstance(layout, str) and layout not in LAYOUTS:
        report(f"unknown layout {layout[:40]!r}", "layout", _suggest(layout, LAYOUTS))
    grad = entry.get("grad")
    if isinstance(grad, str) and grad != "none":
        report(f"must be 'none' or a mapping, not {grad[:40]!r}", "grad", "write grad: {input: ...}")
    reference = entry.get("reference")
    if isinstance(reference, str) and not _REFERENCE.match(reference):
        report(f"{reference[:60]!r} is not a function of numpy, numpy.linalg, scipy.special or math", "reference")
    elif isinstance(reference, str):
        module_name, _, function = reference.rpartition(".")
        module = sys.modules.get(module_name)  # a module that nobody imported is not imported for this check
        if module is not None and not callable(getattr(module, function, None)):
            report(f"{module_name} has no function {function!r}", "reference", _suggest(function, dir(module)))


def _plain_value(value: object) -> object:
    """Return a field's value as a literal of dicts, lists, strings and numbers, for the record."""
    if isinstance(value, dict):
        return {k: _plain_value(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # records are printed as literals, and infinity has none
    return [_plain_value(v) for v in value] if isinstance(value, list) else value


def _suggest(word: object, candidates: Iterable[str]) -> str | None:
    """Return the candidate that is most like a wrong word, as a question, or all of them."""
    names = list(candidates)
    if not names:
        return None
    matches = difflib.get_close_matches(str(word), names, 1)
    return f"did you mean {matches[0]!r}?" if matches else f"known: {', '.join(names)}"
