"""Contraction: products of two tensors summed over the letters that the result does not have.

    out: an equation in letters, as in "...mk,...kn->...mn": a letter names a dimension, a leading `...` any number of
         them, broadcast

A letter stands in at least two of the three terms: in both operands (summed over, or a batch), or in one of them and
the result. So the gradient of an operand is the contraction of the incoming gradient with the other operand, and its
own equation is the same three terms in another order, to any order of derivative.

    epilogue: what is stored, an expression of `acc`, an element of the product, and of operands of its own

The tensors that the epilogue names broadcast to the result; the other two, in order, are the factors of the equation.
It is computed in the store of the kernel that sums the product, once, however many parts the sum is cut into:
`acc + bias` adds a bias, `beta * input + alpha * acc` is addmm. Gradients are derived where `acc` stands in it as a
term times numbers; for another epilogue, as `relu(acc + bias)`, write grad: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import triton
from ..expr import (
    Expr,
    ExprError,
    Operand,
    canonical,
    emit_opencl,
    emit_triton,
    free_names,
    gradient,
    name,
    substitute,
    to_text,
)  # fmt: skip
from ..model import Op, Param, SpecError
from ..signature import c_names
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name
from .pointwise import functions, operand_table, parsed

__all__ = ["check", "derive", "epilogue", "factors", "letters", "render", "terms"]

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


def epilogue(op: Op) -> Expr | None:
    """The expression that is stored in place of an element `acc` of the product; None where that is `acc` itself.
    Raises `SpecError`."""
    if "epilogue" not in op.fields:
        return None
    table = {**operand_table(op), "acc": Operand("value", "full")}
    return parsed(op, "epilogue", str(op.fields["epilogue"]), table)


def factors(op: Op) -> tuple[Param, ...]:
    """The tensors that are multiplied: those that no epilogue names."""
    expr = epilogue(op)
    own = set() if expr is None else set(free_names(expr))
    return tuple(p for p in op.operands if p.is_tensor and p.name not in own)


def letters(op: Op) -> dict[str, str]:
    """The letters of each tensor: those of its term; of one that the epilogue names, the result's."""
    first, second, result = terms(op)
    known = dict(zip((p.name for p in factors(op)), (first, second), strict=True))
    return {p.name: known.get(p.name, result) for p in op.operands if p.is_tensor}


def check(op: Op) -> None:
    """Raise `SpecError` where the equation, the epilogue or the parameters do not fit a contraction."""
    terms(op)
    expr = epilogue(op)
    used = set() if expr is None else set(free_names(expr))
    if any(p.name == "acc" for p in op.params):
        raise SpecError("'acc' is the product in an epilogue, and no parameter", file=op.file, line=op.line, field="op")
    if len(factors(op)) != 2 or any(p.role != "tensor" or p.type != "value" for p in op.operands if p.is_tensor):
        shown = ", ".join(p.name for p in op.operands)
        message = f"a contraction takes two tensors{' beside those of its epilogue' if used else ''}, not ({shown})"
        raise SpecError(message, file=op.file, line=op.line, field="op")
    for p in op.operands:
        if not p.is_tensor and p.name not in used:
            raise SpecError(f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="op")
    if expr is not None and (expr.type != "value" or "acc" not in used):
        message = "an epilogue is a value computed of acc, the product"
        raise SpecError(message, file=op.file, line=op.line, field="epilogue")
    if isinstance(op.grad, Mapping):
        message = "the gradient of a contraction follows from its equation; leave it out, or write grad: none"
        raise SpecError(message, file=op.file, line=op.line, field="grad")
    if expr is not None and op.grad != "none":
        _slope(op, expr)


def render(op: Op, environment: Any) -> Rendered:
    """The kernels, the same for every equation, with the epilogue in their stores; and the equation for the planner."""
    first, second, result = terms(op)
    output = next(iter(op.outputs))
    outputs = (OutputRow(output, "value", op.result, "full", op.grad != "none"),)
    detail: dict[str, Any] = {"equation": f"{first},{second}->{result}"}
    expr = epilogue(op)
    if expr is None:
        text = environment.get_template("opencl/contraction.cl.j2").render(epilogue=None)
        sources = {
            "opencl": Source(text),
            "triton": triton.source("contraction.py.j2", environment, epilogue=None),
        }
        return Rendered(outputs, sources, detail)
    expr = canonical(expr)
    given = [p.name for p in factors(op)]
    detail["factors"] = tuple(given)
    used = [p for p in op.operands if p.name not in given]
    called = {"title": to_text(expr)[:400], "count": sum(not p.is_tensor for p in used)}
    spelled = c_names(["acc", *(p.name for p in used)])
    blocks = {d: emit_opencl({"out": expr}, d, wrap=True, names=spelled) for d in ("vector", "row")}
    text = environment.get_template("opencl/contraction.cl.j2").render(
        epilogue=blocks, **called, **_parameters(used, spelled)
    )
    spelled = triton.python_names(["acc", *(p.name for p in used)])
    block = emit_triton({"out": expr}, names=spelled)
    sources = {
        "opencl": Source(text, functions(*blocks.values())),
        "triton": triton.source(
            "contraction.py.j2", environment, block.functions, epilogue=block, **called, **_parameters(used, spelled)
        ),
    }
    return Rendered(outputs, sources, detail)


def _parameters(used: list[Param], spelled: Mapping[str, str]) -> dict[str, list[str]]:
    """An epilogue's tensors and numbers, as a target spells them."""
    return {
        "tensors": [spelled.get(p.name, p.name) for p in used if p.is_tensor],
        "numbers": [spelled.get(p.name, p.name) for p in used if not p.is_tensor],
    }


def derive(op: Op) -> dict[str, Derived]:
    """For a factor, a contraction: the incoming gradient with the other one, times what the epilogue multiplies by. For
    an operand of the epilogue, its pointwise gradient. Sums over broadcast dimensions follow."""
    if op.grad == "none":
        return {}
    first, second, result = terms(op)
    seed = seed_name(op)
    a, b = (p.name for p in factors(op))
    expr = epilogue(op)
    slope = None if expr is None else _slope(op, expr)
    found = {
        a: _derived(op, a, (seed, b), f"{result},{second}->{first}", slope),
        b: _derived(op, b, (seed, a), f"{result},{first}->{second}", slope),
    }
    if expr is not None:
        wanted = [p.name for p in op.operands if p.is_tensor and p.name not in found]
        found |= {w: _beside(op, w, seed, expr) for w in wanted}
    return found


def _slope(op: Op, expr: Expr) -> Expr | None:
    """What the gradient of `acc` is multiplied by: an expression of numbers; None for 1. Raises `SpecError`."""
    try:
        found = gradient({"out": expr}, {"out": name("wg_seed", Operand("value", "full"))}, ["acc"])["acc"]
    except (ExprError, KeyError):
        found = None
    tensors = {p.name for p in op.operands if p.is_tensor} | {"acc"}
    if found is None or tensors & set(free_names(found)):
        raise SpecError(
            "its gradient depends on more than numbers", file=op.file, line=op.line, field="epilogue",
            suggestion="an op of such an epilogue is for forward only: write grad: none",
        )  # fmt: skip
    found = canonical(found)
    return None if to_text(found) == "wg_seed" else found


def _derived(op: Op, parameter: str, operands: tuple[str, str], equation: str, slope: Expr | None) -> Derived:
    used = [p for p in op.operands if slope is not None and p.name in free_names(slope)]
    numbers = "".join(f", {p.name}: {'Scalar' if p.role == 'scalar' else 'float'}" for p in used)
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(operands)}{numbers})",
        "kind": "contraction",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": equation,
    }
    if slope is not None:
        spec["epilogue"] = to_text(substitute(slope, {"wg_seed": name("acc", Operand("value", "full"))}))
    return Derived((*operands, *(p.name for p in used)), spec)


def _beside(op: Op, parameter: str, seed: str, expr: Expr) -> Derived:
    """The gradient of an operand of the epilogue, as of a pointwise op."""
    found = gradient({"out": expr}, {"out": name(seed, Operand("value", "full"))}, [parameter])[parameter]
    if to_text(canonical(found)) == seed:
        return Derived((seed,), None)
    used = set(free_names(found))
    if "acc" in used:
        raise SpecError(
            f"the gradient of {parameter!r} depends on acc, which is not kept", file=op.file, line=op.line,
            field="epilogue", suggestion="an op of such an epilogue is for forward only: write grad: none",
        )  # fmt: skip
    operands = tuple(n for n in (seed, *(p.name for p in op.operands)) if n in used)
    roles = {p.name: {"scalar": ": Scalar", "number": ": float"}.get(p.role, "") for p in op.operands}
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(n + roles.get(n, '') for n in operands)})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(found)),
    }
    return Derived(operands, spec)
