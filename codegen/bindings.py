"""Generate the Python function of an op: text of its signature, docstring and body, for the templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .docstrings import docstring, inplace_docstring
from .kinds import OutputRow
from .kinds.composite import python_body
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


def bindings(data: RecordData, callables: Mapping[str, str]) -> list[Binding]:
    """Return the op's function and, if the spec has `inplace`, its in-place form `NAME_`.

    callables: the ops that a composite may call -> their names in the module.
    """
    op = data.op
    functions = [_composite(op, callables) if op.kind == "composite" else _function(data)]
    if op.inplace:
        functions.append(_inplace(op, data.rendered.outputs))
    return functions


def _function(data: RecordData) -> Binding:
    op = data.op
    visible_count = sum(not o.saved for o in data.rendered.outputs)
    takes_out = op.kind in _KINDS_WITH_OUT and visible_count == 1 and "out" not in {p.name for p in op.params}
    takes_out = takes_out and (op.kind != "rowwise" or op.namespace == "torch")
    writes_out_directly = len(data.rendered.outputs) == 1 and op.kind != "rowwise"
    numpy_names = _numpy_names(op)
    positional = [p for p in op.params if not p.keyword]
    parameters = [_optional_parameter(p) if p in numpy_names.optional else _parameter(op, p) for p in positional]
    keyword = [_parameter(op, p) for p in op.params if p.keyword]
    if takes_out:
        keyword.append("out: Tensor | None = None")
    keyword += numpy_names.parameters
    signature = ", ".join(parameters + (["*", *keyword] if keyword else []))
    operands, statics = _arguments(op)
    call_name = "_call" if visible_count == 1 else "_call_multiple"
    call_text = f"{call_name}(_op_{op.name}, {operands}" + (f", {statics})" if statics != "()" else ")")
    body = list(numpy_names.body)
    if takes_out:
        store_text = f"_call_into(_op_{op.name}, {operands}, {statics}, (out,), in_place=False)"
        body += [
            "if out is not None:",
            f"    return {store_text if writes_out_directly else f'_copy_to_out({call_text}, out, {op.name!r})'}",
        ]
    body.append(f"return {call_text}")
    returns = "Tensor" if visible_count == 1 else "tuple[Tensor, ...]"
    docstring_text = docstring(op, data.rendered.outputs, takes_out=takes_out, alias_count=len(numpy_names.parameters))
    return Binding(op.name, signature, returns, docstring_text, tuple(body), repr(op.namespace), op.method)


@dataclass(frozen=True, slots=True)
class _NumpyNames:
    """`axis` and `keepdims`, NumPy's names for `dim` and `keepdim`: parameters, and statements that resolve them.

    optional: `dim`, if it has no default: it becomes optional, because `axis` may replace it.
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
    later_required = [p for p in op.params[op.params.index(dim) + 1 :] if p.default is MISSING and not p.keyword]
    if dim.keyword or dim.role != "static" or (required and later_required):
        return _NumpyNames()
    annotation = dim.annotation if "None" in dim.annotation else f"{dim.annotation} | None"
    default = "_REQUIRED" if required else repr(dim.default)
    needs_resolving = "dim is None or axis is not None" if required else "axis is not None"
    if "keepdim" not in params:
        body = (f"if {needs_resolving}:", f"    dim = _resolve_axis_alias({op.name!r}, dim, {default}, axis)")
        return _NumpyNames((f"axis: {annotation} = None",), body, (dim,) if required else ())
    body = (
        f"if {needs_resolving} or keepdims is not None:",
        f"    dim, keepdim = _resolve_axis_aliases({op.name!r}, dim, {default}, axis, keepdim, keepdims)",
    )
    parameters = (f"axis: {annotation} = None", "keepdims: bool | None = None")
    return _NumpyNames(parameters, body, (dim,) if required else ())


def _optional_parameter(param: Param) -> str:
    return f"{param.name}: {param.annotation} | None = None"


def _inplace(op: Op, outputs: Sequence[OutputRow]) -> Binding:
    first_parameter, *other_parameters = (_parameter(op, p) for p in op.params if not p.keyword)
    keyword = [_parameter(op, p) for p in op.params if p.keyword]
    all_parameters = [
        first_parameter.replace(": Tensor | Number", ": Tensor"),
        *other_parameters,
        *(["*", *keyword] if keyword else []),
    ]
    parameters = ", ".join(all_parameters)
    operands, statics = _arguments(op)
    first = op.operands[0].name
    body = (f"return _call_into(_op_{op.name}, {operands}, {statics}, ({first},), in_place=True)",)
    return Binding(
        f"{op.name}_", parameters, "Tensor", inplace_docstring(op, outputs), body, repr(op.namespace), op.method
    )


def _composite(op: Op, callables: Mapping[str, str]) -> Binding:
    keyword = [_parameter(op, p) for p in op.params if p.keyword]
    positional = [_parameter(op, p) for p in op.params if not p.keyword]
    signature = ", ".join(positional + (["*", *keyword] if keyword else []))
    return Binding(
        op.name,
        signature,
        "Tensor",
        docstring(op),
        tuple(python_body(op, callables)),
        repr(op.namespace),
        op.method,
    )


def _arguments(op: Op) -> tuple[str, str]:
    names = [f"*{p.name}" if p.role == "list" else p.name for p in op.operands]
    operands = f"({', '.join(names)},)" if names else "()"
    statics = [_static(p) for p in op.statics]
    return operands, f"({', '.join(statics)},)" if statics else "()"


def _static(param: Param) -> str:
    """Print a static argument. Lists become tuples, because statics are part of the key of cached plans."""
    if "Sequence" in param.annotation:
        return f"_tuple({param.name}) if _isinstance({param.name}, _list) else {param.name}"
    return param.name


def _parameter(op: Op, param: Param) -> str:
    annotation = param.annotation
    if op.takes_numbers and param.role == "tensor" and param.type == "value" and param.scope == "full":
        annotation = "Tensor | Number"
    return f"{param.name}: {annotation}{default_text(param.default)}"
