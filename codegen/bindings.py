"""The Python side of an op: signature, docstring and body of its function, as text for the templates."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .model import MISSING, Op, Param
from .render import RecordData, default_text

__all__ = ["Binding", "bindings"]

_KINDS_WITH_OUT = ("pointwise", "reduction", "contraction", "rowwise")
_KINDS_WITH_DIM = ("reduction", "rowwise", "view")


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
    visible = sum(not o.saved for o in data.rendered.outputs)
    takes_out = op.kind in _KINDS_WITH_OUT and visible == 1 and "out" not in {p.name for p in op.params}
    takes_out = takes_out and (op.kind != "rowwise" or op.namespace == "torch")
    direct = len(data.rendered.outputs) == 1 and op.kind != "rowwise"  # whether the kernel itself can write to `out`
    numpy = _numpy_names(op)
    parameters = [_parameter(p) if p not in numpy.optional else _optional(p) for p in op.params if not p.keyword]
    keyword = [_parameter(p) for p in op.params if p.keyword]
    if takes_out:
        keyword.append("out: Tensor | None = None")
    keyword += numpy.parameters
    signature = ", ".join(parameters + (["*", *keyword] if keyword else []))
    operands, statics = _arguments(op)
    called = f"_call(_op_{op.name}, {operands}" + (f", {statics})" if statics != "()" else ")")
    body = list(numpy.body)
    if takes_out:
        written = f"_call_into(_op_{op.name}, {operands}, {statics}, (out,), in_place=False)"
        body += ["if out is not None:", f"    return {written if direct else f'_store({called}, out, {op.name!r})'}"]
    body.append(f"return {called}")
    returns = "Tensor" if visible == 1 else "tuple[Tensor, ...]"
    return Binding(op.name, signature, returns, docstring(op, takes_out), tuple(body), repr(op.namespace), op.method)


@dataclass(frozen=True, slots=True)
class _NumpyNames:
    """`axis` and `keepdims`, which PyTorch takes for `dim` and `keepdim`: parameters, and lines that translate.

    optional: `dim` where it had no default and now needs one.
    """

    parameters: tuple[str, ...] = ()
    body: tuple[str, ...] = ()
    optional: tuple[Param, ...] = ()


def _numpy_names(op: Op) -> _NumpyNames:
    params = {p.name: p for p in op.params}
    dim = params.get("dim")
    if op.kind not in _KINDS_WITH_DIM or op.namespace == "hidden" or dim is None or {"axis", "keepdims"} & set(params):
        return _NumpyNames()
    required = dim.default is MISSING
    behind = [p for p in op.params[op.params.index(dim) + 1 :] if p.default is MISSING and not p.keyword]
    if dim.keyword or dim.role != "static" or (required and behind):
        return _NumpyNames()
    annotation = dim.annotation if "None" in dim.annotation else f"{dim.annotation} | None"
    default = "_REQUIRED" if required else repr(dim.default)
    asked = "dim is None or axis is not None" if required else "axis is not None"
    if "keepdim" not in params:
        body = (f"if {asked}:", f"    dim = _spelled_dim({op.name!r}, dim, {default}, axis)")
        return _NumpyNames((f"axis: {annotation} = None",), body, (dim,) if required else ())
    body = (
        f"if {asked} or keepdims is not None:",
        f"    dim, keepdim = _spelled({op.name!r}, dim, {default}, axis, keepdim, keepdims)",
    )
    names = (f"axis: {annotation} = None", "keepdims: bool | None = None")
    return _NumpyNames(names, body, (dim,) if required else ())


def _optional(param: Param) -> str:
    return f"{param.name}: {param.annotation} | None = None"


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
    names = len(_numpy_names(op).parameters)
    if names:
        plural = "`axis` and `keepdims` are other names of `dim` and `keepdim`"
        facts.append(f"{plural if names > 1 else '`axis` is another name of `dim`'}, as in NumPy.")
    if takes_out:
        facts.append("`out` receives the result; it must have its shape, or no elements: then it gets memory for it.")
    body = lines + (["", *facts] if facts else [])
    closes_behind = len(body) == 1 and not body[0].endswith(('"', "\\"))
    return '"""' + "\n".join(body) + ('"""' if closes_behind else '\n"""')


def _inside_quotes(line: str) -> str:
    """A line of prose so that it cannot end a triple-quoted string, nor show other than it reads (controls, bidi)."""
    text = line.rstrip().replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)
