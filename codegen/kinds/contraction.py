"""Contraction: products of two tensors summed over the letters that the result does not have.

    out: an equation in letters, as in "...mk,...kn->...mn": a letter names a dimension, a leading `...` any number of
         them, broadcast

A letter stands in at least two of the three terms: in both operands (summed over, or a batch), or in one of them and
the result. So the gradient of an operand is the contraction of the incoming gradient with the other operand, and its
own equation is the same three terms in another order, to any order of derivative.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import triton
from ..model import Op, SpecError
from . import Derived, OutputRow, Rendered, Source, seed_name

__all__ = ["check", "derive", "render", "terms"]

_EXAMPLE = 'write for example out: "...mk,...kn->...mn"'


def terms(op: Op) -> tuple[str, str, str]:
    """The two operands' and the result's letters. Raises `SpecError` naming what is wrong with the equation."""
    if len(op.outputs) != 1:
        raise _error(op, f"a contraction has one result, not {len(op.outputs)}")
    text = "".join(str(next(iter(op.outputs.values()))).split())
    left, arrow, result = text.partition("->")
    if not arrow or "->" in result:
        raise _error(op, f"{text!r} is no equation: one '->' must part the operands from the result", _EXAMPLE)
    operands = left.split(",")
    if len(operands) != 2:
        raise _error(op, f"{text!r} has {len(operands)} operands; a contraction takes two", _EXAMPLE)
    first, second = operands
    for term in (first, second, result):
        _check_term(op, text, term)
    _check_places(op, text, (first, second, result))
    return first, second, result


def _check_term(op: Op, text: str, term: str) -> None:
    letters = term.removeprefix("...")
    if "." in letters:
        raise _error(op, f"{term!r} in {text!r}: '...' stands once, in front of the letters")
    for letter in letters:
        if not (letter.isascii() and letter.isalpha()):
            raise _error(op, f"{letter!r} in {text!r} is no letter", _EXAMPLE)
        if letters.count(letter) > 1:
            raise _error(op, f"{letter!r} stands twice in {term!r}: diagonals are not supported")


def _check_places(op: Op, text: str, found: tuple[str, str, str]) -> None:
    *operands, result = (["..."] * t.startswith("...") + list(t.removeprefix("...")) for t in found)
    for symbol in dict.fromkeys(s for t in (*operands, result) for s in t):
        among = sum(symbol in t for t in operands)
        if symbol in result and not among:
            raise _error(op, f"{symbol!r} of the result in {text!r} is in no operand")
        if symbol not in result and among == 1:
            hint = "reduce that operand first, or give the letter to the result"
            raise _error(op, f"{symbol!r} in {text!r} is in one operand only and not in the result", hint)


def _error(op: Op, message: str, suggestion: str | None = None) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field="out", suggestion=suggestion)


def check(op: Op) -> None:
    """Raise `SpecError` where the equation or the parameters do not fit a contraction."""
    terms(op)
    if len(op.operands) != 2 or any(p.role != "tensor" for p in op.operands):
        shown = ", ".join(p.name for p in op.operands)
        message = f"a contraction takes two tensors, not ({shown})"
        raise SpecError(message, file=op.file, line=op.line, field="op")
    if isinstance(op.grad, Mapping):
        message = "the gradient of a contraction follows from its equation; leave it out, or write grad: none"
        raise SpecError(message, file=op.file, line=op.line, field="grad")


def render(op: Op, environment: Any) -> Rendered:
    """The kernels, the same for every equation, and the equation for the planner."""
    first, second, result = terms(op)
    text = environment.get_template("opencl/contraction.cl.j2").render(epilogue=None)
    name = next(iter(op.outputs))
    outputs = (OutputRow(name, "value", op.result, "full", op.grad != "none"),)
    sources = {"opencl": Source(text), "triton": triton.source("contraction.py.j2", environment)}
    return Rendered(outputs, sources, {"equation": f"{first},{second}->{result}"})


def derive(op: Op) -> dict[str, Derived]:
    """A contraction an operand: the incoming gradient with the other operand. Sums over broadcast dimensions follow."""
    if op.grad == "none":
        return {}
    first, second, result = terms(op)
    seed = seed_name(op)
    a, b = (p.name for p in op.operands)
    return {
        a: _derived(op, a, (seed, b), f"{result},{second}->{first}"),
        b: _derived(op, b, (seed, a), f"{result},{first}->{second}"),
    }


def _derived(op: Op, parameter: str, operands: tuple[str, str], equation: str) -> Derived:
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(operands)})",
        "kind": "contraction",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": equation,
    }
    return Derived(operands, spec)
