"""Generate documentation: the language reference, a JSON Schema for editors, and specs as YAML.

All of it is generated from the tables that the loader, the signature parser and the vocabulary use, so it cannot
disagree with them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

from .expr import Function, functions
from .expr.parse import CONSTANTS, ROW_NAMES
from .kind_modules import kind_module
from .loader import COMMON, KIND_FIELDS, NAMESPACES, OPERATORS, REQUIRED
from .model import AUTOCAST, AUTOCAST_LISTS, DTYPES, KINDS, RESULT_DTYPES, RESULTS
from .signature import annotation_table

__all__ = ["DTYPE_TEXT", "json_schema", "language_reference", "schema_text", "spec_text"]

_TYPES = {str: "string", dict: "object", list: "array", bool: "boolean", int: "integer", float: "number"}
_CHOICES: dict[str, tuple[str, ...]] = {"dtypes": DTYPES, "operator": OPERATORS, "namespace": NAMESPACES}
DTYPE_TEXT = {
    "float": "floating dtypes", "numeric": "integers and floating dtypes", "integer": "integers",
    "integral": "integers and bool", "bool": "bool", "all": "every dtype",
}  # fmt: skip
_AUTOCAST_TEXT = {
    "lower": "cast to autocast's half dtype",
    "float32": "cast to float32, unless the call names a dtype",
    "widest": "cast to the widest dtype among the operands",
    "refuse": "the call is an error",
}

# YAML


def spec_text(spec: Mapping[str, object]) -> str:
    """Print an entry of a spec file as YAML that loads as the same entry."""
    lines = [f"{'- ' if i == 0 else '  '}{line}" for i, line in enumerate(_block_lines(spec))]
    return "\n".join(lines) + "\n"


def _block_lines(mapping: Mapping[str, object]) -> list[str]:
    lines: list[str] = []
    for key, value in mapping.items():
        if isinstance(value, Mapping) and value:
            lines += [f"{key}:", *(f"  {line}" for line in _block_lines(value))]
        elif isinstance(value, str) and "\n" in value and value == value.strip() and value.isprintable() is False:
            plain = all(line.isprintable() and line == line.rstrip() for line in value.split("\n"))
            if plain and not value.startswith(" "):
                lines += [f"{key}: |-", *(f"  {line}" if line else "" for line in value.split("\n"))]
            else:
                lines.append(f"{key}: {json.dumps(value)}")
        else:
            lines.append(f"{key}: {_flow_text(value)}")
    return lines


def _flow_text(value: object) -> str:
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_flow_text(v) for v in value)}]"
    if isinstance(value, Mapping):
        return "{}"
    if isinstance(value, str):
        plain = re.fullmatch(r"[A-Za-z(][A-Za-z0-9_ .+*/()<=^|-]*[A-Za-z0-9_)]|[A-Za-z]", value)
        word = value.lower() in ("true", "false", "null", "yes", "no", "on", "off", "y", "n")
        return value if plain and not word else json.dumps(value, ensure_ascii=True)
    return str(value).lower() if isinstance(value, bool) else repr(value)


# The language


def language_reference() -> str:
    """Return the reference of the spec language, as Markdown."""
    parts = [
        "# The spec language",
        "A spec file is a YAML list of ops. Anchors, aliases and tags are not part of it, and nothing in it is run: "
        "expressions are Python syntax, read against the tables on this page.",
        "## Fields of every op",
        _fields_table(COMMON, ("op", "kind")),
        "## Fields by kind",
    ]
    for kind in KINDS:
        kind_prose = _kind_prose(kind)
        if kind_prose is None:
            continue
        parts += [f"### {kind}", kind_prose, _fields_table(KIND_FIELDS[kind], REQUIRED[kind])]
    parts += [
        "## Parameters",
        "`op:` is a Python signature. A parameter's annotation says what it is:",
        _table(("annotation", "is", "in the function"), _annotation_rows()),
        "`Literal['a', 'b']` is a static argument, one of some words. Defaults are literals.",
        "## Dtypes",
        _table(("dtypes:", "takes"), [(f"`{d}`", DTYPE_TEXT[d]) for d in DTYPES]),
        "`result:` is " + ", ".join(f"`{r}`" for r in RESULTS) + ", `like:NAME` (that operand's dtype), or one of "
        + ", ".join(f"`{d}`" for d in RESULT_DTYPES) + ".",
        "## Examples",
        "`example:` is one call of the op and the text that Python prints for its result: "
        "`exp(tensor([0.0, 1.0])) -> tensor([1.0000, 2.7183])`. Arguments are literals and calls of weftgrad's "
        "functions without the name of a module. A result of several lines needs a block (`example: |`). "
        "The docstring has the call as a doctest, `>>> wg.exp(wg.tensor([0.0, 1.0]))`.",
        "## Autocast",
        "What happens to floating operands (float64 excepted) of calls inside `with autocast(...)`: " + "; ".join(
            f"`{word}`: {meaning}" for word, meaning in _AUTOCAST_TEXT.items())
        + ". An op without the field takes them as they are. PyTorch's lists for CPUs and for GPUs differ: one word is "
        "for both, a mapping has one for the device `cpu` and one for every other.",
        "## Expressions",
        "Names are the parameters; constants are " + ", ".join(f"`{c}`" for c in CONSTANTS)
        + "; in a row, also " + ", ".join(f"`{n}`" for n in ROW_NAMES)
        + ". Operators are Python's, with `a if mask else b` and chained comparisons. Functions:",
        _table(("function", "derivative"), [_function_row(f) for f in functions().values()]),
        "In a row, `sum(x)`, `mean(x)`, `max(x)`, `min(x)` and `prod(x)` reduce it. Derivatives are written with `g`, "
        "the gradient that arrives, and `y`, the function's value.",
    ]  # fmt: skip
    return "\n\n".join(parts) + "\n"


def _fields_table(fields: Mapping[str, tuple[tuple[type, ...], str]], required: Iterable[str]) -> str:
    rows = []
    for name, (types, meaning) in fields.items():
        type_text = " or ".join("mapping" if t is dict else _TYPES[t] for t in types)
        rows.append((f"`{name}`" + (" (required)" if name in required else ""), type_text, meaning))
    return _table(("field", "type", "meaning"), rows)


def _kind_prose(kind: str) -> str | None:
    """Return the docstring of the kind's module as Markdown; None if this version has no such kind."""
    try:
        prose = (kind_module(kind).__doc__ or "").strip()
    except ModuleNotFoundError:
        return None
    blocks = re.split(r"\n\n", prose)
    return "\n\n".join(f"```text\n{b}\n```" if b.startswith("    ") else b for b in blocks)


def _annotation_rows() -> list[tuple[str, str, str]]:
    return [
        (f"`{annotation or '(none)'}`", _role(*row[:3]), f"`{row[3]}`")
        for annotation, row in annotation_table().items()
    ]


def _role(role: str, scope: str, type: str) -> str:
    kinds = {
        "tensor": "a tensor", "optional": "a tensor or None", "list": "tensors",
        "scalar": "a number, weak in promotion",
        "number": "a number, no part in promotion", "static": "resolved before a kernel is chosen",
        "seed": "a random stream", "absent": "an optional operand that is missing",
    }  # fmt: skip
    scopes = {"column": ", one element a position in the row", "row": ", one element a row"}
    types = {"mask": ", read as truth values", "index": ", of int64"}
    tensor = role in ("tensor", "optional", "list")
    return kinds.get(role, role) + (scopes.get(scope, "") + types.get(type, "") if tensor else "")


def _function_row(function: Function) -> tuple[str, str]:
    call_text = f"`{function.name}({', '.join(function.args)})`"
    symbol = f" `{function.symbol}`" if function.symbol else ""
    rules = function.grad
    if rules is None:
        return call_text + symbol, "none"
    return call_text + symbol, "; ".join(f"{a}: `{r}`" for a, r in rules.items()) or "zero"


def _table(headings: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    return "\n".join(lines)


# The schema


def json_schema() -> dict[str, object]:
    """Return a JSON Schema (2020-12) of spec files, with which an editor can check and complete them."""
    kinds = []
    for kind in KINDS:
        own = {**COMMON, **KIND_FIELDS[kind]}
        properties = {name: _property(name, types, meaning) for name, (types, meaning) in own.items()}
        properties["kind"] = {"const": kind, "description": COMMON["kind"][1]}
        kinds.append({
            "title": kind, "type": "object", "properties": properties, "additionalProperties": False,
            "required": ["op", "kind", *REQUIRED[kind]],
        })  # fmt: skip
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "weftgrad ops",
        "type": "array",
        "items": {
            "type": "object",
            "required": ["op", "kind"],
            "properties": {"kind": {"enum": list(KINDS)}},
            "oneOf": kinds,
        },
    }


def _property(name: str, types: tuple[type, ...], meaning: str) -> dict[str, object]:
    schema: dict[str, object] = {"description": meaning}
    type_names = [_TYPES[t] for t in types]
    schema["type"] = type_names[0] if len(type_names) == 1 else type_names
    if name in _CHOICES:
        schema["enum"] = list(_CHOICES[name])
    if name == "autocast":
        words = {"enum": list(AUTOCAST)}
        lists = {"type": "object", "properties": dict.fromkeys(AUTOCAST_LISTS, words), "additionalProperties": False}
        schema["anyOf"] = [words, lists]
    if name == "result":
        schema["anyOf"] = [{"enum": [*RESULTS, *RESULT_DTYPES]}, {"pattern": "^like:[a-z_0-9]+$"}]
    return schema


def schema_text() -> str:
    """Return `json_schema` as text."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=True) + "\n"
