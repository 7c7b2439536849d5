"""Reject spec fields that have no effect, because nothing reads them.

A name or operator that two ops define is an error as well: the second one would replace the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from .examples import example_errors
from .kind_modules import kind_module
from .model import TARGETS, Op, SpecError

__all__ = ["UNARY_OPERATORS", "collisions", "effect_errors"]

UNARY_OPERATORS = ("~", "neg", "abs")
_NAME = re.compile(r"[A-Za-z_]\w*")
_RESULT_ROLES = ("value", "kept")
_SECTIONS = ("Args:", "Returns:", "Raises:")


def effect_errors(op: Op, entry: Mapping[str, object]) -> list[SpecError]:
    """Return an error for each field of an entry that would have no effect, with the remedy as its suggestion.

    Args:
        op: The op.
        entry: The entry that it was made from, as written.
    """
    checks = (
        _empty, _unread, _doc, _example, _method, _alias, _public_name, _operator, _product, _save, _let, _custom,
        _order,
    )  # fmt: skip
    return [
        SpecError(message, field=field, suggestion=remedy)
        for check in checks
        for field, message, remedy in check(op, entry)
    ]


def collisions(ops: Iterable[Op]) -> list[SpecError]:
    """Return an error for everything that two of `ops` define: a name of an op, alias or in-place form, an operator."""
    definitions: dict[tuple[bool, str], Op] = {}
    errors = []
    for op in ops:
        names = [(op.name, "op"), *((alias, "alias") for alias in op.alias)]
        names += [(f"{op.name}_", "inplace")] if op.inplace else []
        names += [(op.operator, "operator")] if op.operator else []
        for name, field in names:
            key = (field == "operator", name)
            if key in definitions:
                other = definitions[key]
                location = f"line {other.line}" if other.file == op.file else f"{other.file}:{other.line}"
                message = f"{name!r} is defined already in {location}"
                remedy = f"let one of {other.name} and {op.name} have it" if other is not op else "write it once"
                errors.append(SpecError(message, file=op.file, line=op.line, field=field, suggestion=remedy))
            definitions[key] = op
    return errors


Errors = Iterator[tuple[str, str, str]]  # field, message, remedy


def _empty(op: Op, entry: Mapping[str, object]) -> Errors:
    for field, value in entry.items():
        if isinstance(value, (dict, list)) and not value:
            content = "mapping" if isinstance(value, dict) else "list"
            yield field, f"{op.name}: an empty {content}", f"leave `{field}` out, or write what belongs into it"


def _unread(op: Op, entry: Mapping[str, object]) -> Errors:
    for field, (types, remedy) in getattr(kind_module(op.kind), "UNREAD", {}).items():
        if isinstance(entry.get(field), types) and entry[field]:
            yield field, f"{op.name}: nothing reads {str(entry[field])[:40]!r} of an op of kind {op.kind}", remedy


def _doc(op: Op, entry: Mapping[str, object]) -> Errors:
    if "doc" in entry and not op.doc:
        yield "doc", f"{op.name}: no text", "say what the op computes, or leave `doc` out"
    for section in _SECTIONS:
        if section in map(str.strip, op.doc.splitlines()):
            remedy = "write it as prose; this section is generated from signature and dtypes"
            yield "doc", f"{op.name}: the docstring would have the section {section!r} twice", remedy


def _example(op: Op, entry: Mapping[str, object]) -> Errors:
    if "example" not in entry:
        return
    for message, remedy in example_errors(op):
        yield "example", message, remedy
    if "Example:" in map(str.strip, op.doc.splitlines()):
        remedy = "leave one of them out"
        yield "example", f"{op.name}: the text of `doc` has the section 'Example:' already", remedy


def _method(op: Op, entry: Mapping[str, object]) -> Errors:
    if entry.get("method") is not True:
        return
    if op.namespace != "torch":
        remedy = "leave `method` out, or write namespace: torch"
        yield "method", f"{op.name}: a function of the namespace {op.namespace} has no method", remedy
    elif not op.params or not op.params[0].is_tensor:
        remedy = "let the first parameter be a tensor, or write method: false"
        yield "method", f"{op.name}: a method's first parameter is the tensor itself", remedy


def _alias(op: Op, entry: Mapping[str, object]) -> Errors:
    if op.alias and op.namespace == "hidden":
        remedy = "leave `alias` out, or write namespace: torch, nn.functional or special"
        yield "alias", f"{op.name}: a hidden op has no public names, so nobody can call {op.alias[0]!r}", remedy


def _public_name(op: Op, entry: Mapping[str, object]) -> Errors:
    if op.public_name and op.namespace != "hidden":
        remedy = "leave `public_name` out, or write namespace: hidden"
        yield "public_name", f"{op.name}: users call it by its own name, which messages of errors have", remedy


def _operator(op: Op, entry: Mapping[str, object]) -> Errors:
    if op.operator is None:
        return
    required = 1 if op.operator in UNARY_OPERATORS else 2
    positional = [p for p in op.operands if not p.keyword]
    if len(positional) < required or not positional[0].is_tensor:
        remedy = f"write a signature such as {op.name}({', '.join(('input', 'other')[:required])})"
        message = f"{op.name}: {op.operator!r} is called with {required} operands, the first one a tensor"
        yield "operator", message, remedy
    elif required == 1 and len(positional) > 1:
        yield "operator", f"{op.name}: {op.operator!r} is called with one operand", "let the op have one operand"


def _product(op: Op, entry: Mapping[str, object]) -> Errors:
    for key in op.mapping_field("product"):
        if key not in ("op", "grad"):
            yield f"product.{key}", f"{op.name}: unknown part {key[:40]!r}", "known: op, grad"


def _save(op: Op, entry: Mapping[str, object]) -> Errors:
    if op.kind != "rowwise":
        return
    values = [*op.mapping_field("let"), *op.outputs]
    for name in op.names_field("save"):
        if name not in values:
            yield "save", f"{op.name}: {name[:40]!r} is no value of this op", f"known: {', '.join(values)}"


def _let(op: Op, entry: Mapping[str, object]) -> Errors:
    values = op.mapping_field("let")
    texts = {**values, **op.outputs, "save": " ".join(op.names_field("save"))}
    grads = op.grad.values() if isinstance(op.grad, Mapping) else ()
    for name in values:
        used = [text for key, text in texts.items() if key != name] + list(grads)
        if not any(name in _NAME.findall(str(text)) for text in used):
            yield f"let.{name}", f"{op.name}: {name!r} is used nowhere", "use it in `out`, or remove it"


def _custom(op: Op, entry: Mapping[str, object]) -> Errors:
    if op.kind != "custom":
        return
    for target in op.mapping_field("sources"):
        if target not in TARGETS:
            yield "sources", f"{op.name}: no device runs kernels in {target[:40]!r}", f"known: {', '.join(TARGETS)}"
    for name, role in op.outputs.items():
        if role not in _RESULT_ROLES:
            yield "out", f"{op.name}: unknown role {role[:40]!r} of {name}", f"known: {', '.join(_RESULT_ROLES)}"


def _order(op: Op, entry: Mapping[str, object]) -> Errors:
    if "order" in entry:
        yield "order", f"{op.name}: only derived ops have an order", "leave `order` out"
