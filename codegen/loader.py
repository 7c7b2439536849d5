"""From a YAML file to checked `Op`s, or to every error in it at once, each with file, line, field and a suggestion.

A spec file is data from a stranger: it is composed to plain nodes (no tags, no anchors, no duplicate keys, bounded in
size and depth), names must be identifiers, expressions go through the whitelist of `expr.parse`, and a `custom` op,
whose kernel is code, is only taken from a trusted caller.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from .kinds import kind_module
from .model import DTYPES, KINDS, RESULTS, Op, SpecError, SpecErrors
from .signature import check_name, parse_signature

__all__ = ["COMMON", "KIND_FIELDS", "load_file", "load_text", "op_from_mapping"]

_MAX_BYTES = 1 << 20
_MAX_DEPTH = 20
_MAX_OPS = 2000

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
}
_OUT: tuple[tuple[type, ...], str] = ((str, dict, int, float, bool), "the result: an expression, or several by name")
KIND_FIELDS: dict[str, dict[str, tuple[tuple[type, ...], str]]] = {
    "pointwise": {
        "out": _OUT,
        "unused": ((bool,), "operands may be unused"),
        "layout": ((str,), "`contiguous`: fresh results are, whatever the operands' strides"),
    },
    "random": {"out": _OUT},
    "reduction": {
        "reduce": ((dict,), "identity, map, combine, finish (and let)"),
        "empty": ((str,), "`error` or `identity`: reducing nothing"),
    },
    "rowwise": {
        "let": ((dict,), "named intermediate values"),
        "out": _OUT,
        "save": ((list,), "values kept for backward beside those inferred"),
        "rows": ((str,), "how a row is given: dim or normalized_shape"),
    },
    "contraction": {"out": ((str,), "the equation, as in einsum")},
    "view": {"view": ((str,), "the geometry function")},
    "index": {"index": ((str,), "the access pattern")},
    "composite": {"out": ((str,), "an expression over other ops"), "let": ((dict,), "named intermediate values")},
    "custom": {
        "template": ((str,), "the kernel's template file"),
        "plan": ((str,), "the planner"),
        "out": _OUT,
        "sources": ((dict,), "kernel text by target"),
    },
}
_REQUIRED = {"pointwise": ("out",), "random": ("out",), "reduction": ("reduce",), "rowwise": ("out",),
             "contraction": ("out",), "view": ("view",), "index": ("index",), "composite": ("out",), "custom": ()}  # fmt: skip
_REFERENCE = re.compile(r"(numpy|scipy\.special|math)(\.[a-z_][a-z0-9_]*)+\Z", re.IGNORECASE)
_OPERATORS = tuple("+ - * / // % ** @ & | ^ ~ << >> == != < <= > >= neg abs".split())
_NAMESPACES = ("torch", "nn.functional", "special", "hidden")


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
    except UnicodeDecodeError as error:
        raise SpecErrors([SpecError(f"is not UTF-8 text: {error.reason}", file=str(path), line=1)]) from None
    return load_text(text, str(path), trust=trust)


def load_text(text: str, file: str = "<text>", *, trust: bool = False) -> list[Op]:
    """The ops of a YAML text. Raises `SpecErrors` with everything that is wrong."""
    entries, errors = _compose(text, file)
    ops: list[Op] = []
    seen: dict[str, int] = {}
    for entry in entries:
        try:
            op = _op(entry, file, trust, errors)
        except SpecError as error:
            errors.extend(_placed(error, entry, file))
            continue
        if op is None:
            continue
        if op.name in seen:
            errors.append(SpecError(f"{op.name!r} is defined already in line {seen[op.name]}", file=file, line=op.line, field="op"))
        seen[op.name] = op.line
        ops.append(op)
    if errors:
        raise SpecErrors(sorted(errors, key=lambda e: e.line))
    return ops


def op_from_mapping(entry: Mapping[str, Any], file: str = "<derived>", *, trust: bool = True) -> Op:
    """One op from an entry that is no YAML: what the program derived. Raises `SpecErrors`."""
    located = Located()
    located.update(entry)
    errors: list[SpecError] = []
    try:
        op = _op(located, file, trust, errors)
    except SpecError as error:
        errors.extend(_placed(error, located, file))
        op = None
    if errors or op is None:
        raise SpecErrors(errors)
    return op


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
        for token in yaml.scan(text, Loader=yaml.SafeLoader):
            if isinstance(token, (yaml.AnchorToken, yaml.AliasToken, yaml.TagToken)):
                line = token.start_mark.line + 1
                return [], [SpecError("anchors, aliases and tags are not part of the spec language", file=file, line=line)]
        documents = list(yaml.compose_all(text, Loader=yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        return [], [SpecError(f"not YAML: {error.problem}", file=file, line=mark.line + 1 if mark else 1)]
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
            errors.append(SpecError("an op is a mapping that begins with 'op:'", file=file, line=node.start_mark.line + 1))
    return entries, errors


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
            return int(text.replace("_", ""), 0)
        if kind == "float":
            return float(text.replace("_", "").replace(".inf", "inf").replace(".nan", "nan"))
    except ValueError:
        return text
    if kind == "bool":
        return text.lower() in ("true", "yes", "on")
    return None if kind == "null" else text


def _op(entry: Located, file: str, trust: bool, errors: list[SpecError]) -> Op | None:
    before = len(errors)

    def report(message: str, field: str, suggestion: str | None = None) -> None:
        errors.append(SpecError(message, file=file, line=entry.lines.get(field) or entry.line, field=field, suggestion=suggestion))

    kind = entry.get("kind")
    if not isinstance(kind, str) or kind not in KINDS:
        report(f"unknown kind {kind!r}" if "kind" in entry else "is missing", "kind", _near(kind, KINDS))
        return None
    allowed = COMMON | KIND_FIELDS[kind]
    for key, value in entry.items():
        if key not in allowed:
            report(f"unknown field {key[:60]!r} of a {kind} op", key, _near(key, allowed))
        elif value is None or not isinstance(value, allowed[key][0]) or (isinstance(value, bool) and bool not in allowed[key][0]):
            wanted = " or ".join(sorted({t.__name__ for t in allowed[key][0]}))
            report(f"must be {wanted}, not {type(value).__name__} {str(value)[:60]!r}", key)
    for key in ("op", *_REQUIRED[kind]):
        if key not in entry:
            report("is missing", key)
    _choices(entry, report)
    if kind == "custom" and not trust:
        report("a custom op is code; load it with trust=True if you wrote it", "kind")
    if len(errors) > before:
        return None
    name, params = parse_signature(entry["op"])
    out = entry.get("out", {})
    outputs = {"out": _text(out)} if not isinstance(out, dict) else {k: _text(v) for k, v in out.items()}
    for output in outputs:
        check_name(output, "the result")
    grad = entry.get("grad")
    alias = entry.get("alias", ())
    op = Op(
        name=name, kind=kind, params=params, doc=str(entry.get("doc", "")).strip(), dtypes=entry.get("dtypes", _default_dtypes(kind)),
        result=entry.get("result", "promote"), outputs=outputs if "out" in entry else {},
        grad={k: _text(v) for k, v in grad.items()} if isinstance(grad, dict) else grad, operator=entry.get("operator"),
        reference=entry.get("reference"), namespace=entry.get("namespace", "torch"), method=entry.get("method", True),
        inplace=entry.get("inplace", False), alias=(alias,) if isinstance(alias, str) else tuple(alias),
        fields={k: v for k, v in entry.items() if k in KIND_FIELDS[kind] and k != "out"} | ({"sample": entry["sample"]} if "sample" in entry else {}),
        spec=_plain(entry), file=file, line=entry.lines.get("op", entry.line),
    )  # fmt: skip
    for each in op.alias:
        check_name(each, "the alias")
    kind_module(kind).check(op)
    return op


def _choices(entry: Located, report: Any) -> None:
    """Check the fields that are one of a few words."""
    for key, known in (("dtypes", DTYPES), ("operator", _OPERATORS), ("namespace", _NAMESPACES)):
        if isinstance(entry.get(key), str) and entry[key] not in known:
            report(f"unknown {key} {entry[key][:40]!r}", key, _near(entry[key], known))
    result = entry.get("result")
    if isinstance(result, str) and result not in RESULTS and not re.match(r"like:[a-z_0-9]+\Z|[a-z]+[0-9]*\Z", result):
        report(f"unknown result rule {result[:40]!r}", "result", _near(result, RESULTS))
    grad = entry.get("grad")
    if isinstance(grad, str) and grad != "none":
        report(f"must be 'none' or a mapping, not {grad[:40]!r}", "grad", "write grad: {input: ...}")
    reference = entry.get("reference")
    if isinstance(reference, str) and (not _REFERENCE.match(reference) or "._" in reference):
        report(f"{reference[:60]!r} is not a function of numpy, scipy.special or math", "reference")


def _default_dtypes(kind: str) -> str:
    return {"rowwise": "float", "random": "all", "view": "all", "index": "all"}.get(kind, "numeric")


def _text(value: Any) -> str:
    """An expression as text: YAML reads `0` and `true` as other things."""
    return value if isinstance(value, str) else repr(value)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _plain(v) for k, v in value.items()}
    return [_plain(v) for v in value] if isinstance(value, list) else value


def _near(word: Any, known: Iterable[str]) -> str | None:
    names = list(known)
    near = difflib.get_close_matches(str(word), names, 1)
    return f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
