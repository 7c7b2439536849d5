"""From a YAML file to checked `Op`s, or to every error in it at once, each with file, line, field and a suggestion.

A spec file is data from a stranger: it is composed to plain nodes (no tags, no anchors, no duplicate keys, bounded in
size and depth), names must be identifiers, expressions go through the whitelist of `expr.parse`, and a `custom` op,
whose kernel is code, is only taken from a trusted caller.
"""

from __future__ import annotations

import difflib
import math
import re
import zlib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .kinds import kind_module
from .model import AUTOCAST, AUTOCAST_LISTS, DTYPES, KINDS, RESULT_DTYPES, RESULTS, Op, SpecError, SpecErrors
from .signature import c_names, check_name, parse_signature

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

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 20
_MAX_OPS = 2000
_LONGEST_NAME = 60

# field -> (types it may have, what it is): the loader's own table, from which the reference and the schema are made
COMMON: dict[str, tuple[tuple[type, ...], str]] = {
    "op": ((str,), "the signature, as in Python"),
    "kind": ((str,), f"one of {', '.join(KINDS)}"),
    "doc": ((str,), "what it computes; the first line is the summary"),
    "dtypes": ((str,), f"what the operands may be: {', '.join(DTYPES)}"),
    "result": ((str,), f"the result's dtype: {', '.join(RESULTS)}, like:NAME or a dtype"),
    "operator": ((str,), "the Python operator that calls it"),
    "grad": ((str, dict), "`none`, or the gradient of each operand; absent: derived"),
    "reference": ((str,), "an independent NumPy or SciPy function, for tests"),
    "namespace": ((str,), "torch, nn.functional, special or hidden"),
    "method": ((bool,), "whether Tensor has a method of this name (default true)"),
    "inplace": ((bool,), "whether there is a form NAME_ that writes into its first operand"),
    "alias": ((str, list), "other names"),
    "sample": ((dict,), "ranges of test inputs by operand: [low, high]"),
    "autocast": ((str, dict), f"under autocast: {', '.join(AUTOCAST)}; or by device {{cpu: ..., gpu: ...}}"),
}
_OUT: tuple[tuple[type, ...], str] = ((str, dict, int, float, bool), "the result: an expression, or several by name")
_TOGETHER: tuple[tuple[type, ...], str] = ((bool,), "the gradients of all operands are one op with several results")
KIND_FIELDS: dict[str, dict[str, tuple[tuple[type, ...], str]]] = {
    "pointwise": {
        "out": _OUT,
        "unused": ((bool,), "operands may be unused"),
        "together": _TOGETHER,
        "layout": ((str,), "`contiguous`: fresh results are, whatever the operands' strides"),
        "multi_tensor": ((bool,), "also one kernel for many tensors at once, each result new_NAME written over NAME"),
        "product": ((dict,), "operands that are a matrix product with an earlier step: of the `op`, of its `grad`"),
        "flag": ((str,), "of a multi-tensor op, the operand of one element that becomes 1 where its result is above 0"),
    },
    "random": {"out": _OUT},
    "reduction": {
        "reduce": ((dict,), "identity, map, combine, finish (and let)"),
        "empty": ((str,), "`error` or `identity`: reducing nothing"),
    },
    "scan": {"scan": ((dict,), "identity, map, combine, finish (and let)")},
    "rowwise": {
        "let": ((dict,), "named intermediate values"),
        "out": _OUT,
        "save": ((list,), "values kept for backward beside those inferred"),
        "rows": ((str,), "how a row is given: dim or normalized_shape"),
        "together": _TOGETHER,
        "order": ((int,), "of a derived op: how many derivatives it is away from one that was written"),
    },
    "contraction": {
        "out": ((str,), "the equation, as in einsum"),
        "epilogue": ((str,), "what is stored: an expression of acc, an element of the product, and of other operands"),
    },
    "view": {"view": ((str,), "the geometry function")},
    "index": {"index": ((str,), "the access pattern")},
    "sort": {"sort": ((str,), "what is asked for: order, top or search")},
    "window": {
        "window": ((dict,), "over, identity, map, combine, finish (and let)"),
        "gradient": ((str,), "the op that is the gradient of the first operand"),
    },
    "composite": {"out": ((str,), "an expression over other ops"), "let": ((dict,), "named intermediate values")},
    "custom": {
        "template": ((str,), "the kernel's template file"),
        "plan": ((str,), "the planner"),
        "rules": ((str,), "the module with the gradients"),
        "out": _OUT,
        "sources": ((dict,), "kernel text by target"),
    },
}
REQUIRED = {
    "pointwise": ("out",), "random": ("out",), "reduction": ("reduce",), "scan": ("scan",), "rowwise": ("out",),
    "contraction": ("out",), "view": ("view",), "index": ("index",), "sort": ("sort",), "window": ("window",),
    "composite": ("out",), "custom": (),
}  # fmt: skip
_REFERENCE = re.compile(r"(numpy|numpy\.linalg|scipy\.special|math)\.[a-z][a-z0-9_]*\Z")
OPERATORS = (
    "+", "-", "*", "/", "//", "%", "**", "@", "&", "|", "^", "~", "<<", ">>", "==", "!=", "<", "<=", ">", ">=",
    "neg", "abs",
)  # fmt: skip
NAMESPACES = ("torch", "nn.functional", "special", "hidden")


class Located(dict[str, Any]):
    """A mapping that remembers the line of each key."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: dict[str, int] = {}
        self.line = 0


def load_file(path: Path, *, trust: bool = False) -> list[Op]:
    """The ops of a file. Raises `SpecErrors` with everything that is wrong."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise SpecErrors([SpecError(f"a spec file is at most {_MAX_BYTES >> 20} MiB", file=str(path), line=1)])
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise SpecErrors([SpecError(f"cannot be read: {error.strerror or error}", file=str(path))]) from None
    except UnicodeDecodeError as error:
        raise SpecErrors([SpecError(f"is not UTF-8 text: {error.reason}", file=str(path), line=1)]) from None
    return load_text(text, str(path), trust=trust)


def load_text(text: str, file: str = "<text>", *, trust: bool = False) -> list[Op]:
    """The ops of a YAML text. Raises `SpecErrors` with everything that is wrong."""
    entries, errors = _compose(text, file)
    ops: list[Op] = []
    for entry in entries:
        try:
            op = _op(entry, file, trust, errors)
        except SpecError as error:
            errors.extend(_placed(error, entry, file))
            continue
        if op is not None:
            ops.append(op)
    errors += collisions(ops)
    if errors:
        raise SpecErrors(sorted(errors, key=lambda e: e.line))
    return ops


def collisions(ops: Iterable[Op]) -> list[SpecError]:
    """An error for every name that two of `ops` define: as their own, an alias, or a form that writes in place."""
    seen: dict[str, tuple[str, Op]] = {}
    errors = []
    for op in ops:
        own = [(op.name, "op"), *((alias, "alias") for alias in op.alias)]
        if op.inplace:
            own.append((f"{op.name}_", "inplace"))
        for name, field in own:
            if name in seen:
                _, other = seen[name]
                place = f"line {other.line}" if other.file == op.file else f"{other.file}:{other.line}"
                errors.append(
                    SpecError(f"{name!r} is defined already in {place}", file=op.file, line=op.line, field=field)
                )
            seen[name] = (field, op)
    return errors


def op_from_mapping(entry: Mapping[str, Any], file: str = "<derived>", *, trust: bool = True) -> Op:
    """One op from an entry that is no YAML: what the program derived. Raises `SpecErrors`."""
    located = Located()
    located.update(entry)
    if isinstance(entry.get("op"), str):
        located["op"] = _shortened(entry["op"])
    errors: list[SpecError] = []
    try:
        op = _op(located, file, trust, errors)
    except SpecError as error:
        errors.extend(_placed(error, located, file))
        op = None
    if errors or op is None:
        raise SpecErrors(errors)
    return op


def _shortened(signature: str) -> str:
    """`signature` with a name that fits: those of derivatives of derivatives grow."""
    name, bracket, rest = signature.partition("(")
    if len(name) <= _LONGEST_NAME:
        return signature
    return f"{name[: _LONGEST_NAME - 10].rstrip('_')}_x{zlib.crc32(name.encode()):08x}{bracket}{rest}"


def _placed(error: SpecError, entry: Located, file: str) -> list[SpecError]:
    """`error` with the line of the field it names."""
    if isinstance(error, SpecErrors):
        return [e for inner in error.errors for e in _placed(inner, entry, file)]
    first = error.field.partition(".")[0]
    line = _line_of(entry, error.field) or entry.lines.get(first) or entry.line
    return [SpecError(error.message, file=file, line=line, field=error.field, suggestion=error.suggestion)]


def _line_of(entry: Located, path: str) -> int:
    here: Any = entry
    line = 0
    for part in path.split("."):
        if not isinstance(here, Located) or part not in here.lines:
            break
        line = here.lines[part]
        here = here[part]
    return line


def _compose(text: str, file: str) -> tuple[list[Located], list[SpecError]]:
    import yaml

    errors: list[SpecError] = []
    if len(text) > _MAX_BYTES:
        return [], [SpecError(f"a spec is at most {_MAX_BYTES >> 20} MiB", file=file, line=1)]
    try:
        depth = 0
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            depth += isinstance(token, _OPENING(yaml)) - isinstance(token, _CLOSING(yaml))
            if depth > _MAX_DEPTH:  # before the parser sees it, which is quadratic in depth
                line = token.start_mark.line + 1
                return [], [SpecError(f"nested deeper than {_MAX_DEPTH}", file=file, line=line)]
            if isinstance(token, (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken)):
                line = token.start_mark.line + 1
                return [], [
                    SpecError("anchors, aliases and tags are not part of the spec language", file=file, line=line)
                ]
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        shown = f"not YAML: {error.problem}"
        hint = "quote a value that has ': ' or '#' in it, or begins with one of [{&*!|>%@`" if mark else None
        return [], [SpecError(shown, file=file, line=mark.line + 1 if mark else 1, suggestion=hint)]
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        return [], [SpecError(f"not YAML: {type(error).__name__}: {str(error)[:200]}", file=file, line=1)]
    if len(documents) != 1 or not isinstance(documents[0], yaml.SequenceNode):
        return [], [SpecError("a spec file is one list of ops: lines that begin with '- op:'", file=file, line=1)]
    entries = []
    if len(documents[0].value) > _MAX_OPS:
        return [], [SpecError(f"a spec file has at most {_MAX_OPS} ops", file=file, line=1)]
    for node in documents[0].value:
        value = _value(node, file, errors, 0)
        if isinstance(value, Located):
            entries.append(value)
        else:
            errors.append(
                SpecError("an op is a mapping that begins with 'op:'", file=file, line=node.start_mark.line + 1)
            )
    return entries, errors


def _OPENING(yaml: Any) -> tuple[type, ...]:
    return (
        yaml.BlockSequenceStartToken, yaml.BlockMappingStartToken,
        yaml.FlowSequenceStartToken, yaml.FlowMappingStartToken,
    )  # fmt: skip


def _CLOSING(yaml: Any) -> tuple[type, ...]:
    return (yaml.BlockEndToken, yaml.FlowSequenceEndToken, yaml.FlowMappingEndToken)


def _value(node: Any, file: str, errors: list[SpecError], depth: int) -> Any:
    import yaml

    line = node.start_mark.line + 1
    if depth > _MAX_DEPTH:
        errors.append(SpecError(f"nested deeper than {_MAX_DEPTH}", file=file, line=line))
        return None
    if isinstance(node, yaml.MappingNode):
        found = Located()
        found.line = line
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, yaml.ScalarNode) else repr(key_node.tag)
            at = key_node.start_mark.line + 1
            if not isinstance(key_node, yaml.ScalarNode):
                errors.append(SpecError("a key must be a plain word", file=file, line=at))
                continue
            if key in found:
                errors.append(SpecError(f"{key!r} is given twice", file=file, line=at, field=key))
            found[key] = _value(value_node, file, errors, depth + 1)
            found.lines[key] = at
            text = found[key] if isinstance(found[key], str) else ""
            if node.flow_style and (")" in key or (text.count("(") != text.count(")"))):
                errors.append(
                    SpecError("a comma ends a value inside {...}", file=file, line=at, field=key, suggestion="quote it")
                )
        return found
    if isinstance(node, yaml.SequenceNode):
        return [_value(child, file, errors, depth + 1) for child in node.value]
    return _scalar(node.tag, node.value)


def _scalar(tag: str, text: str) -> Any:
    kind = tag.rpartition(":")[2]
    try:
        if kind == "int":
            number = int(text.replace("_", ""), 0) if len(text) < 40 else None
            return text if number is None or abs(number) >= 2**64 else number
        if kind == "float":
            return float(text.replace("_", "").lower().replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    if kind == "bool":  # YAML's yes, no, on and off may be anybody's parameters
        return text.lower() == "true" if text.lower() in ("true", "false") else text
    return None if kind == "null" else text


def _op(entry: Located, file: str, trust: bool, errors: list[SpecError]) -> Op | None:
    before = len(errors)

    def report(message: str, field: str, suggestion: str | None = None) -> None:
        errors.append(
            SpecError(message, file=file, line=entry.lines.get(field) or entry.line, field=field, suggestion=suggestion)
        )

    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        report(f"unknown kind {kind!r}" if "kind" in entry else "is missing", "kind", _near(kind, KINDS))
        return None
    allowed = COMMON | KIND_FIELDS[kind]
    for key, value in entry.items():
        if key not in allowed:
            report(f"unknown field {key[:60]!r} of a {kind} op", key, _near(key, allowed))
        elif (
            value is None
            or not isinstance(value, allowed[key][0])
            or (isinstance(value, bool) and bool not in allowed[key][0])
        ):
            wanted = " or ".join(sorted({t.__name__ for t in allowed[key][0]}))
            report(f"must be {wanted}, not {type(value).__name__} {str(value)[:60]!r}", key)
    for key in ("op", *REQUIRED[kind]):
        if key not in entry:
            report("is missing", key)
    _choices(entry, report)
    for key, value in entry.items():
        if key in allowed:
            _nested(key, value, report)
    if kind == "custom" and not trust:
        report("a custom op is code; load it with trust=True if you wrote it", "kind")
    if len(errors) > before:
        return None
    name, params = parse_signature(entry["op"])
    out = entry.get("out", {})
    outputs = {"out": _text(out)} if not isinstance(out, dict) else {k: _text(v) for k, v in out.items()}
    if not outputs and "out" in entry:
        raise SpecError("at least one result", field="out")
    for output in outputs:
        check_name(output, "the result")
    _parameters(entry["op"], params, outputs if "out" in entry else {}, derived=file == "<derived>")
    grad = entry.get("grad")
    alias = entry.get("alias", ())
    op = Op(
        name=name, kind=kind, params=params, doc=str(entry.get("doc", "")).strip(),
        dtypes=entry.get("dtypes", _default_dtypes(kind)),
        result=entry.get("result", "promote"), outputs=outputs if "out" in entry else {},
        grad={k: _text(v) for k, v in grad.items()} if isinstance(grad, dict) else grad, operator=entry.get("operator"),
        reference=entry.get("reference"), namespace=entry.get("namespace", "torch"), method=entry.get("method", True),
        inplace=entry.get("inplace", False), alias=(alias,) if isinstance(alias, str) else tuple(alias),
        autocast=_autocast(entry.get("autocast"), kind),
        fields={k: v for k, v in entry.items() if (k in KIND_FIELDS[kind] and k != "out") or k == "sample"},
        spec=_plain(entry), file=file, line=entry.lines.get("op", entry.line),
    )  # fmt: skip
    for each in op.alias:
        check_name(each, "the alias")
    _operands_exist(op)
    try:
        module = kind_module(kind)
    except ModuleNotFoundError:
        raise SpecError(f"{kind} ops are not part of this version", field="kind") from None
    module.check(op)
    return op


def _autocast(given: Any, kind: str) -> tuple[str, ...]:
    """The words for the device `cpu` and for all others."""
    if given is None:
        return ()
    if kind in ("composite", "view"):
        raise SpecError(f"a {kind} op computes nothing itself: say it of the ops that do", field="autocast")
    lists = dict.fromkeys(AUTOCAST_LISTS, given) if isinstance(given, str) else given
    for name, word in lists.items():
        if name not in AUTOCAST_LISTS:
            hint = f"known: {', '.join(AUTOCAST_LISTS)}"
            raise SpecError(f"unknown list {str(name)[:40]!r}", field="autocast", suggestion=hint)
        if word not in AUTOCAST:
            raise SpecError(f"unknown word {str(word)[:40]!r}", field="autocast", suggestion=_near(word, AUTOCAST))
    return tuple(lists.get(name, "") for name in AUTOCAST_LISTS) if lists else ()


def _parameters(signature: str, params: tuple[Any, ...], outputs: Mapping[str, str], *, derived: bool) -> None:
    """Check that names of parameters and results are apart."""
    for p in params:
        if p.name in outputs or (p.name == "out" and not derived):
            raise SpecError(f"{p.name!r} is a parameter, and also a result", field="op")


def _operands_exist(op: Op) -> None:
    """Check the fields that name operands."""
    names = {p.name for p in op.operands}
    if op.result.startswith("like:") and op.result.removeprefix("like:") not in names:
        raise SpecError(f"{op.result!r} names no operand", field="result", suggestion=_near(op.result[5:], names))
    for name, bounds in op.fields.get("sample", {}).items():
        numbers = isinstance(bounds, list) and len(bounds) == 2 and all(type(b) in (int, float) for b in bounds)
        if name not in names:
            raise SpecError(f"{name[:40]!r} is no operand", field="sample", suggestion=_near(name, names))
        if not numbers or not all(map(math.isfinite, bounds)) or not bounds[0] < bounds[1]:
            raise SpecError(f"{name}: expected [low, high], found {str(bounds)[:60]}", field="sample")
    if op.inplace and (op.kind not in ("pointwise",) or not op.operands or not op.operands[0].is_tensor):
        raise SpecError(
            "only a pointwise op whose first parameter is a tensor has a form that writes in place", field="inplace"
        )
    if op.kind in _STATES:
        taken = c_names([*names, *_state_fields(op)])
        if taken:
            message = f"{next(iter(taken))!r} has a meaning in kernels; choose another name"
            raise SpecError(message, field=_STATES[op.kind])


_STATES = {"reduction": "reduce", "scan": "scan", "window": "window"}  # where kinds say what their states are


def _state_fields(op: Op) -> list[str]:
    mapped = op.fields.get(_STATES[op.kind], {}).get("map")
    return list(mapped) if isinstance(mapped, dict) else []


_SCALARS = (str, int, float, bool)


def _nested(key: str, value: Any, report: Any) -> None:
    """Check what stands inside lists and mappings."""
    if key in ("alias", "save") and isinstance(value, list):
        for item in value:
            if not isinstance(item, str):
                report(f"a list of names, not of {type(item).__name__} {str(item)[:40]!r}", key)
    if key in ("grad", "out", "let") and isinstance(value, dict):
        for inner, item in value.items():
            if not isinstance(item, _SCALARS):
                report(f"{inner[:40]}: an expression, not {type(item).__name__} {str(item)[:40]!r}", key)
    if key in ("reduce", "scan", "window") and isinstance(value, dict):
        for part, item in value.items():
            parts = list(item.values()) if isinstance(item, dict) else item if part == "save" else [item]
            if not isinstance(parts, list) or not all(isinstance(p, _SCALARS) for p in parts):
                report(f"{part[:40]}: an expression, or a mapping from fields to expressions", key)


def _choices(entry: Located, report: Any) -> None:
    """Check the fields that are one of a few words."""
    for key, known in (("dtypes", DTYPES), ("operator", OPERATORS), ("namespace", NAMESPACES)):
        if isinstance(entry.get(key), str) and entry[key] not in known:
            report(f"unknown {key} {entry[key][:40]!r}", key, _near(entry[key], known))
    result = entry.get("result")
    rules = (*RESULTS, *RESULT_DTYPES)
    if isinstance(result, str) and result not in rules and not re.match(r"like:[a-z_0-9]+\Z", result):
        report(f"unknown result rule {result[:40]!r}", "result", _near(result, rules))
    layout = entry.get("layout")
    if isinstance(layout, str) and layout != "contiguous":
        report(f"unknown layout {layout[:40]!r}", "layout", "known: contiguous")
    grad = entry.get("grad")
    if isinstance(grad, str) and grad != "none":
        report(f"must be 'none' or a mapping, not {grad[:40]!r}", "grad", "write grad: {input: ...}")
    reference = entry.get("reference")
    if isinstance(reference, str) and not _REFERENCE.match(reference):
        report(f"{reference[:60]!r} is not a function of numpy, numpy.linalg, scipy.special or math", "reference")


def _default_dtypes(kind: str) -> str:
    return {"rowwise": "float", "random": "all", "view": "all", "index": "all", "sort": "all"}.get(kind, "numeric")


def _text(value: Any) -> str:
    """An expression as text: YAML reads `0` and `true` as other things."""
    return value if isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return repr(value)  # what a record holds is written as a literal, and infinity has none
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _near(word: Any, known: Iterable[str]) -> str | None:
    names = list(known)
    if not names:
        return None
    near = difflib.get_close_matches(str(word), names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
