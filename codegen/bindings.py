"""The Python side of an op: signature, docstring and body of its function, as text for the templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import Op, Param
from .render import RecordData, default_text

__all__ = ["Binding", "bindings"]

_KINDS_WITH_OUT = ("pointwise", "reduction", "contraction")


@dataclass(frozen=True, slots=True)
class Binding:
    """One generated function."""

    name: str
    signature: str
    returns: str
    docstring: str
    body: tuple[str, ...]
    namespace: str
    method: bool


def bindings(data: RecordData, known: Mapping[str, str]) -> list[Binding]:
    """The op's function and, where the spec asks for one, the form that writes in place (`NAME_`).

    known: the ops that a composite may call, and how the module spells them.
    """
    op = data.op
    found = [_composite(op, known) if op.kind == "composite" else _function(data)]
    if op.inplace:
        found.append(_inplace(op))
    return found


def _function(data: RecordData) -> Binding:
    op = data.op
    visible = data.rendered.detail.get("visible", len(data.rendered.outputs))
    takes_out = op.kind in _KINDS_WITH_OUT and visible == 1 and len(data.rendered.outputs) == 1
    parameters = [_parameter(p) for p in op.params if not p.keyword]
    keyword = [_parameter(p) for p in op.params if p.keyword]
    if takes_out:
        keyword.append("out: Tensor | None = None")
    signature = ", ".join(parameters + (["*", *keyword] if keyword else []))
    operands, statics = _arguments(op)
    body = []
    if takes_out:
        body += [
            "if out is not None:",
            f"    return _call_into(_op_{op.name}, {operands}, {statics}, (out,), in_place=False)",
        ]
    called = f"_call(_op_{op.name}, {operands}" + (f", {statics})" if statics != "()" else ")")
    total = len(data.rendered.outputs)
    if visible < total:
        called += "[0]" if visible == 1 else f"[:{visible}]"
    body.append(f"return {called}")
    returns = "Tensor" if visible == 1 else "tuple[Tensor, ...]"
    return Binding(op.name, signature, returns, docstring(op, takes_out), tuple(body), repr(op.namespace), op.method)


def _inplace(op: Op) -> Binding:
    head, *rest = (_parameter(p) for p in op.params if not p.keyword)
    keyword = [_parameter(p) for p in op.params if p.keyword]
    every = [head.replace(": Tensor | Number", ": Tensor"), *rest, *(["*", *keyword] if keyword else [])]
    parameters = ", ".join(every)
    operands, statics = _arguments(op)
    first = op.operands[0].name
    body = (f"return _call_into(_op_{op.name}, {operands}, {statics}, ({first},), in_place=True)",)
    text = f'"""{op.name} written into {first}, which is returned; its version goes up by one."""'
    return Binding(f"{op.name}_", parameters, "Tensor", text, body, repr(op.namespace), op.method)


def _composite(op: Op, known: Mapping[str, str]) -> Binding:
    from .kinds.composite import python_body

    keyword = [_parameter(p) for p in op.params if p.keyword]
    plain = [_parameter(p) for p in op.params if not p.keyword]
    signature = ", ".join(plain + (["*", *keyword] if keyword else []))
    return Binding(
        op.name, signature, "Tensor", docstring(op, False), tuple(python_body(op, known)), repr(op.namespace), op.method
    )


def _arguments(op: Op) -> tuple[str, str]:
    names = [f"*{p.name}" if p.role == "list" else p.name for p in op.operands]
    operands = f"({', '.join(names)},)" if names else "()"
    statics = [_static(p) for p in op.statics]
    return operands, f"({', '.join(statics)},)" if statics else "()"


def _static(param: Param) -> str:
    """Statics are part of a plan's key, so lists become tuples."""
    if "Sequence" in param.annotation:
        return f"_tuple({param.name}) if _isinstance({param.name}, _list) else {param.name}"
    return param.name


def _parameter(param: Param) -> str:
    annotation = param.annotation
    if param.role == "tensor" and param.type == "value" and param.scope == "full":
        annotation = "Tensor | Number"
    return f"{param.name}: {annotation}{default_text(param.default)}"


def docstring(op: Op, takes_out: bool = False) -> str:
    """The docstring: the spec's prose, then operands, dtypes and what the result's dtype is."""
    lines = [_inside_quotes(line) for line in (op.doc or f"{op.name}.").splitlines()]
    kinds = {
        "float": "floating", "numeric": "integer and floating", "integer": "integer", "integral": "integer and bool",
        "bool": "bool", "all": "all",
    }  # fmt: skip
    facts = (
        [f"Dtypes: {kinds[op.dtypes]}; half types compute in float32."] if op.kind not in ("view", "composite") else []
    )
    if op.kind == "pointwise":
        facts.append("Shapes broadcast; numbers are weak in promotion.")
    if op.grad == "none":
        facts.append("Not differentiable.")
    if takes_out:
        facts.append("`out` receives the result; it must have its shape.")
    body = lines + (["", *facts] if facts else [])
    closes_behind = len(body) == 1 and not body[0].endswith(('"', "\\"))
    return '"""' + "\n".join(body) + ('"""' if closes_behind else '\n"""')


def _inside_quotes(line: str) -> str:
    """A line of prose so that it cannot end a triple-quoted string, nor show other than it reads (controls, bidi)."""
    text = line.rstrip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
