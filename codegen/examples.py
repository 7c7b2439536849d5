"""Read the examples of specs, `CALL -> RESULT`, and write them as doctests.

A call is Python without names of modules: `exp(tensor([0.0, 1.0])) -> tensor([1.0000, 2.7183])`. The doctest calls
`wg.exp(wg.tensor([0.0, 1.0]))`. The result is the text that Python prints, of one or several lines.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path

from .model import Op

__all__ = ["doctest_lines", "example_errors", "inplace_doctest_lines"]

_MAX_CALL = 100
_ARROW = " -> "
_MODULES = {"torch": "wg.", "nn.functional": "wg.nn.functional.", "special": "wg.special."}
_SYNTAX = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.List, ast.Tuple,
    ast.UnaryOp, ast.USub, ast.Load,
)  # fmt: skip
# A number, or nested lists of numbers: what `tensor([...])` of an example contains.
Elements = bool | int | float | list["Elements"]
_REMEDY = "write CALL -> RESULT, such as exp(tensor([0.0])) -> tensor([1.])"


def example_errors(op: Op) -> Iterator[tuple[str, str]]:
    """Yield the message and remedy of each error in the field `example` of `op`."""
    if not op.example:
        yield f"{op.name}: no text", "write CALL -> RESULT, or leave `example` out"
        return
    if op.namespace not in _MODULES:
        yield f"{op.name}: a function of the namespace {op.namespace} has no public docstring", "leave `example` out"
        return
    call, result = _parts(op.example)
    lines = result.splitlines()
    if "\n" in call or not lines:
        yield f"{op.name}: no ' -> ' after a call of one line", _REMEDY
    elif len(call) > _MAX_CALL or not call.isascii():
        yield f"{op.name}: a call has at most {_MAX_CALL} characters, all of ASCII", _REMEDY
    elif any(not line.strip() or line.lstrip().startswith((">>>", "...")) for line in lines):
        yield f"{op.name}: a line of the result is empty or begins with a prompt", "write the lines that Python prints"
    else:
        yield from _call_errors(op, call)


def _call_errors(op: Op, call: str) -> Iterator[tuple[str, str]]:
    try:
        tree = ast.parse(call, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        yield f"{op.name}: {call[:40]!r} is not a Python expression", _REMEDY
        return
    for node in ast.walk(tree):
        if not isinstance(node, _SYNTAX) or (isinstance(node, ast.Attribute) and node.attr.startswith("_")):
            text = (ast.get_source_segment(call, node) or type(node).__name__)[:40]
            yield f"{op.name}: {text!r} is not part of an example", "call functions with literals"
            return
    names = (op.name, *op.alias)
    calls = [node.func for node in ast.walk(tree) if isinstance(node, ast.Call)]
    if not any(isinstance(function, ast.Name) and function.id in names for function in calls):
        yield f"{op.name}: the example does not call the op", f"call {' or '.join(names)}"


def doctest_lines(op: Op) -> list[str]:
    """Return the lines of the doctest of an op with an example."""
    call, result = _parts(op.example)
    prefix = _MODULES[op.namespace] if _is_own(op) else ""
    return [f">>> {_qualify(call, dict.fromkeys((op.name, *op.alias), prefix))}", *result.splitlines()]


def inplace_doctest_lines(op: Op) -> list[str]:
    """Return the lines of a doctest of the in-place form, from the example of the op.

    The first operand is written with the elements of the result's dtype, or the result with those of the operand's: an
    in-place form does not change the dtype. Empty if the result has another shape, or the example is not of this form.
    """
    call, result = _parts(op.example)
    function = ast.parse(call, mode="eval").body if call else None
    if not isinstance(function, ast.Call) or not isinstance(function.func, ast.Name) or not function.args:
        return []
    operand, output = _elements(function.args[0]), _result_elements(result)
    if function.func.id not in (op.name, *op.alias) or not operand or not output or _shape(operand) != _shape(output):
        return []
    operand_type, output_type = _element_type(operand), _element_type(output)
    operand_text = ast.get_source_segment(call, function.args[0]) or ""
    if output_type is float and operand_type is not float:
        operand_text = f"tensor({_convert(operand, float)!r})"
    elif output_type is bool and operand_type is int:
        result = f"tensor({_convert(output, int)!r})"
    elif output_type is not operand_type:
        return []
    others = call[function.args[0].end_col_offset : -1].removeprefix(",").strip()
    if _is_own(op) and op.method:
        text = f"{operand_text}.{op.name}_({others})"
    else:
        text = f"{op.name}_({operand_text}{', ' if others else ''}{others})"
    return [
        f">>> {_qualify(text, {f'{op.name}_': _MODULES[op.namespace] if _is_own(op) else ''})}",
        *result.splitlines(),
    ]


def _is_own(op: Op) -> bool:
    """Return True if the op comes from the package's specs, so that its function is in a public namespace."""
    return Path(op.file).resolve().parent == Path(__file__).resolve().parent / "specs"


def _qualify(call: str, prefixes: Mapping[str, str]) -> str:
    """Write the module in front of each name in a call: that in `prefixes`, else `wg.`."""
    nodes = [node for node in ast.walk(ast.parse(call, mode="eval")) if isinstance(node, ast.Name)]
    for node in sorted(nodes, key=lambda node: node.col_offset, reverse=True):
        call = call[: node.col_offset] + prefixes.get(node.id, "wg.") + call[node.col_offset :]
    return call


def _elements(node: ast.expr) -> list[Elements] | None:
    """Return the nested lists in `tensor([...])`; None if `node` is not such a call with literals only."""
    if not isinstance(node, ast.Call) or len(node.args) != 1 or node.keywords:
        return None
    if not isinstance(node.func, ast.Name) or node.func.id != "tensor":
        return None
    try:
        elements = ast.literal_eval(node.args[0])
    except ValueError:  # such as nan
        return None
    return elements if isinstance(elements, list) and elements else None


def _result_elements(text: str) -> list[Elements] | None:
    try:
        return _elements(ast.parse(text, mode="eval").body)
    except SyntaxError:  # a result is any text that Python prints
        return None


def _shape(elements: Elements) -> list[int]:
    return [len(elements), *_shape(elements[0])] if isinstance(elements, list) else []


def _flatten(elements: Elements) -> Iterator[bool | int | float]:
    if not isinstance(elements, list):
        yield elements
        return
    for element in elements:
        yield from _flatten(element)


def _element_type(elements: Elements) -> type[bool] | type[int] | type[float]:
    types = {type(element) for element in _flatten(elements)}
    return next((t for t in (float, int) if t in types), bool)


def _convert(elements: Elements, element_type: type[int] | type[float]) -> Elements:
    return [_convert(e, element_type) for e in elements] if isinstance(elements, list) else element_type(elements)


def _parts(example: str) -> tuple[str, str]:
    """Return the call and the printed result of an example; an empty result without an arrow."""
    call, _, result = example.partition(_ARROW)
    return call.strip(), textwrap.dedent(result).rstrip()
