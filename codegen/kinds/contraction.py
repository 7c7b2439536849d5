"""Contractions (matrix products, einsum of two tensors), with an optional fused epilogue.

    out: an einsum equation such as "...mk,...kn->...mn": a letter names a dimension, a leading `...` any number of
         broadcast dimensions

Letters that the result lacks are summed over. Each letter is in at least two of the three terms: in both operands
(summed, or a batch dimension), or in one operand and the result. So the gradient of an operand is the contraction of
the incoming gradient with the other operand. Its equation has the same three terms in another order, and the same
holds for every order of derivative.

    epilogue: the stored value, an expression of `acc` (an element of the product) and of further operands

Tensors that the epilogue names are broadcast to the result. The other two, in the order of the signature, are the
factors of the equation. The kernel that sums the product evaluates the epilogue once per element when it stores the
result, also under split-K: `acc + bias` adds a bias, `beta * input + alpha * acc` is addmm. Gradients are derived if
the derivative of the epilogue by `acc` depends on numbers only. For other epilogues, such as `relu(acc + bias)`, write
grad: none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

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
    substitute,
    to_text,
    variable,
)  # fmt: skip
from ..fields import Fields
from ..model import Op, Param, SpecError
from ..signature import c_names
from . import Derived, OutputRow, Rendered, Source, named_result, seed_name
from .pointwise import math_functions
from .spec_expressions import operand_table, parse_field

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "check", "derive", "epilogue", "factors", "letters", "render", "terms"]

FIELDS: Fields = {
    "out": ((str,), "the equation, as in einsum"),
    "epilogue": ((str,), "the stored value: an expression of acc, an element of the product, and other operands"),
}
REQUIRED = ("out",)

_EXAMPLE = 'write for example out: "...mk,...kn->...mn"'


def terms(op: Op) -> tuple[str, str, str]:
    """Return the letters of both operands and of the result. Raises `SpecError` if the equation is wrong."""
    if len(op.outputs) != 1:
        raise _error(op, f"a contraction has one result, not {len(op.outputs)}")
    text = "".join(str(next(iter(op.outputs.values()))).split())
    left, arrow, result = text.partition("->")
    if not arrow or "->" in result:
        raise _error(op, f"{text!r} is no equation: one '->' must separate the operands from the result", _EXAMPLE)
    operands = left.split(",")
    if len(operands) != 2:
        raise _error(op, f"{text!r} has {len(operands)} operands; a contraction takes two", _EXAMPLE)
    first, second = operands
    for term in (first, second, result):
        _check_term(op, text, term)
    _check_letters(op, text, (first, second, result))
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


def _check_letters(op: Op, text: str, term_strings: tuple[str, str, str]) -> None:
    *operands, result = (["..."] * t.startswith("...") + list(t.removeprefix("...")) for t in term_strings)
    for symbol in dict.fromkeys(s for t in (*operands, result) for s in t):
        operand_count = sum(symbol in t for t in operands)
        if symbol in result and not operand_count:
            raise _error(op, f"{symbol!r} of the result in {text!r} is in no operand")
        if symbol not in result and operand_count == 1:
            hint = "reduce that operand first, or give the letter to the result"
            raise _error(op, f"{symbol!r} in {text!r} is in one operand only and not in the result", hint)


def _error(op: Op, message: str, suggestion: str | None = None) -> SpecError:
    return SpecError(message, file=op.file, line=op.line, field="out", suggestion=suggestion)


def epilogue(op: Op) -> Expr | None:
    """Parse the epilogue, the expression of `acc` that is stored; None if the op has none. Raises `SpecError`."""
    if "epilogue" not in op.fields:
        return None
    table = {**operand_table(op), "acc": Operand("value", "full")}
    return parse_field(op, "epilogue", op.text_field("epilogue"), table)


def factors(op: Op) -> tuple[Param, ...]:
    """Return the two tensors that are multiplied: the ones that the epilogue does not name."""
    expr = epilogue(op)
    epilogue_names = set() if expr is None else set(free_names(expr))
    return tuple(p for p in op.operands if p.is_tensor and p.name not in epilogue_names)


def letters(op: Op) -> dict[str, str]:
    """Return the letters of each tensor: a factor has those of its term, an epilogue's tensor those of the result."""
    first, second, result = terms(op)
    factor_letters = dict(zip((p.name for p in factors(op)), (first, second), strict=True))
    return {p.name: factor_letters.get(p.name, result) for p in op.operands if p.is_tensor}


def check(op: Op) -> None:
    """Raise `SpecError` if the equation, the epilogue or the parameters do not fit a contraction."""
    terms(op)
    expr = epilogue(op)
    used_names = set() if expr is None else set(free_names(expr))
    if any(p.name == "acc" for p in op.params):
        raise SpecError("'acc' is the product in an epilogue, and no parameter", file=op.file, line=op.line, field="op")
    if len(factors(op)) != 2 or any(p.role != "tensor" or p.type != "value" for p in op.operands if p.is_tensor):
        operand_names = ", ".join(p.name for p in op.operands)
        message = (
            f"a contraction takes two tensors{' beside those of its epilogue' if used_names else ''}, "
            f"not ({operand_names})"
        )
        raise SpecError(message, file=op.file, line=op.line, field="op")
    for p in op.operands:
        if not p.is_tensor and p.name not in used_names:
            raise SpecError(f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="op")
    if expr is not None and (expr.type != "value" or "acc" not in used_names):
        message = "an epilogue is a value computed of acc, the product"
        raise SpecError(message, file=op.file, line=op.line, field="epilogue")
    if isinstance(op.grad, Mapping):
        message = "the gradient of a contraction follows from its equation; leave it out, or write grad: none"
        raise SpecError(message, file=op.file, line=op.line, field="grad")
    if expr is not None and op.grad != "none":
        _acc_gradient_factor(op, expr)


def render(op: Op, environment: Environment) -> Rendered:
    """Render the kernels. They depend only on the epilogue; the runtime's planner gets the equation in `detail`."""
    first, second, result = terms(op)
    output = next(iter(op.outputs))
    outputs = (OutputRow(output, "value", op.result, "full", op.grad != "none"),)
    detail: dict[str, object] = {"equation": f"{first},{second}->{result}"}
    expr = epilogue(op)
    if expr is None:
        text = environment.get_template("opencl/contraction.cl.j2").render(epilogue=None)
        sources = {
            "opencl": Source(text),
            "triton": triton.source("contraction.py.j2", environment, epilogue=None),
        }
        return Rendered(outputs, sources, detail)
    expr = canonical(expr)
    factor_names = [p.name for p in factors(op)]
    detail["factors"] = tuple(factor_names)
    epilogue_params = [p for p in op.operands if p.name not in factor_names]
    template_values = {"title": to_text(expr)[:400], "count": sum(not p.is_tensor for p in epilogue_params)}
    opencl_names = c_names(["acc", *(p.name for p in epilogue_params)])
    blocks = {d: emit_opencl({"out": expr}, d, wrap=True, names=opencl_names) for d in ("vector", "row")}
    text = environment.get_template("opencl/contraction.cl.j2").render(
        epilogue=blocks, **template_values, **_epilogue_parameters(epilogue_params, opencl_names)
    )
    triton_names = triton.python_names(["acc", *(p.name for p in epilogue_params)])
    block = emit_triton({"out": expr}, names=triton_names)
    sources = {
        "opencl": Source(text, math_functions(*blocks.values())),
        "triton": triton.source(
            "contraction.py.j2",
            environment,
            block.functions,
            epilogue=block,
            **template_values,
            **_epilogue_parameters(epilogue_params, triton_names),
        ),
    }
    return Rendered(outputs, sources, detail)


def _epilogue_parameters(epilogue_params: list[Param], kernel_names: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the kernel names of an epilogue's tensors and numbers."""
    return {
        "tensors": [kernel_names.get(p.name, p.name) for p in epilogue_params if p.is_tensor],
        "numbers": [kernel_names.get(p.name, p.name) for p in epilogue_params if not p.is_tensor],
    }


def derive(op: Op) -> dict[str, Derived]:
    """Return the gradient ops.

    The gradient of a factor is a contraction of the incoming gradient with the other factor, times the derivative of
    the epilogue with respect to `acc`. The gradient of a tensor of the epilogue is a pointwise op. The runtime then
    sums over broadcast dimensions.
    """
    if op.grad == "none":
        return {}
    first, second, result = terms(op)
    seed = seed_name(op)
    a, b = (p.name for p in factors(op))
    expr = epilogue(op)
    acc_gradient = None if expr is None else _acc_gradient_factor(op, expr)
    gradients = {
        a: _factor_gradient(op, a, (seed, b), f"{result},{second}->{first}", acc_gradient),
        b: _factor_gradient(op, b, (seed, a), f"{result},{first}->{second}", acc_gradient),
    }
    if expr is not None:
        epilogue_tensors = [p.name for p in op.operands if p.is_tensor and p.name not in gradients]
        gradients |= {tensor_name: _epilogue_gradient(op, tensor_name, seed, expr) for tensor_name in epilogue_tensors}
    return gradients


def _acc_gradient_factor(op: Op, expr: Expr) -> Expr | None:
    """Return the gradient of `acc`: the incoming gradient, `wg_seed`, times the derivative of the epilogue by `acc`.

    Returns None if that derivative is 1. Raises `SpecError` if a tensor occurs in it.
    """
    try:
        acc_gradient = gradient({"out": expr}, {"out": variable("wg_seed", Operand("value", "full"))}, ["acc"])["acc"]
    except (ExprError, KeyError):
        acc_gradient = None
    tensors = {p.name for p in op.operands if p.is_tensor} | {"acc"}
    if acc_gradient is None or tensors & set(free_names(acc_gradient)):
        raise SpecError(
            "its gradient depends on more than numbers", file=op.file, line=op.line, field="epilogue",
            suggestion="an op of such an epilogue is for forward only: write grad: none",
        )  # fmt: skip
    acc_gradient = canonical(acc_gradient)
    return None if to_text(acc_gradient) == "wg_seed" else acc_gradient


def _factor_gradient(
    op: Op, parameter: str, operands: tuple[str, str], equation: str, acc_gradient: Expr | None
) -> Derived:  # fmt: skip
    """Return the gradient of a factor, a contraction. `acc_gradient`: see `_acc_gradient_factor`."""
    number_params = [p for p in op.operands if acc_gradient is not None and p.name in free_names(acc_gradient)]
    numbers = "".join(f", {p.name}: {'Scalar' if p.role == 'scalar' else 'float'}" for p in number_params)
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(operands)}{numbers})",
        "kind": "contraction",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": equation,
    }
    if acc_gradient is not None:
        spec["epilogue"] = to_text(substitute(acc_gradient, {"wg_seed": variable("acc", Operand("value", "full"))}))
    return Derived((*operands, *(p.name for p in number_params)), spec)


def _epilogue_gradient(op: Op, parameter: str, seed: str, expr: Expr) -> Derived:
    """Return the gradient of a tensor of the epilogue, a pointwise op; no op if it is the incoming gradient itself."""
    gradient_expr = gradient({"out": expr}, {"out": variable(seed, Operand("value", "full"))}, [parameter])[parameter]
    if to_text(canonical(gradient_expr)) == seed:
        return Derived((seed,), None)
    used_names = set(free_names(gradient_expr))
    if "acc" in used_names:
        raise SpecError(
            f"the gradient of {parameter!r} depends on acc, which is not kept", file=op.file, line=op.line,
            field="epilogue", suggestion="an op of such an epilogue is for forward only: write grad: none",
        )  # fmt: skip
    operands = tuple(n for n in (seed, *(p.name for p in op.operands)) if n in used_names)
    roles = {p.name: {"scalar": ": Scalar", "number": ": float"}.get(p.role, "") for p in op.operands}
    spec = {
        "op": f"{op.name}_grad_{parameter}({', '.join(n + roles.get(n, '') for n in operands)})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(gradient_expr)),
    }
    return Derived(operands, spec)
