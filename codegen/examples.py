"""Read the examples of specs, `CALL -> RESULT`, and write them as doctests.

A call is Python without names of modules: `exp(tensor([0.0, 1.0])) -> tensor([1.0000, 2.7183])`. The doctest calls
`wg.exp(wg.tensor([0.0, 1.0]))`. The result is the text that Python prints, of one or several lines.
"""

from __future__ import annotations

import ast
import textwrap
from collections.abc import Iterator
from pathlib import Path

from .model import Op

__all__ = ["doctest_lines", "example_errors"]

_MAX_CALL = 100
_ARROW = " -> "
_MODULES = {"torch": "wg.", "nn.functional": "wg.nn.functional."}
_SYNTAX = (
    ast.Expression, ast.Call, ast.keyword, ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.List, ast.Tuple,
    ast.UnaryOp, ast.USub, ast.Load,
)  # fmt: skip
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
    own = Path(op.file).resolve().parent == Path(__file__).resolve().parent / "specs"
    names = dict.fromkeys((op.name, *op.alias), _MODULES[op.namespace] if own else "")
    nodes = [node for node in ast.walk(ast.parse(call, mode="eval")) if isinstance(node, ast.Name)]
    for node in sorted(nodes, key=lambda node: node.col_offset, reverse=True):
        call = call[: node.col_offset] + names.get(node.id, "wg.") + call[node.col_offset :]
    return [f">>> {call}", *result.splitlines()]


def _parts(example: str) -> tuple[str, str]:
    """Return the call and the printed result of an example; an empty result without an arrow."""
    call, _, result = example.partition(_ARROW)
    return call.strip(), textwrap.dedent(result).rstrip()
