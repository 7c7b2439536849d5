"""Pointwise ops: each element of a result is computed from the operands' elements at the same index.

out: an expression, or a mapping from result names to expressions
let: values with names, which these expressions may use
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from .. import triton
from ..expr import (
    Block,
    Expr,
    ExprError,
    Operand,
    canonical,
    emit_opencl,
    emit_triton,
    free_names,
    gradient,
    rebuild,
    size,
    substitute,
    to_text,
    variable,
)
from ..fields import LET, OUT, TOGETHER, Fields
from ..model import Op, Param, SpecError, names_of
from ..signature import c_names
from . import Derived, OutputRow, Rendered, Source, named_result, result_rule, seed_name
from .spec_expressions import parse_field, parse_lets

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["FIELDS", "REQUIRED", "check", "derive", "expressions", "render", "triton_source"]

FIELDS: Fields = {
    "let": LET,
    "out": OUT,
    "unused": ((bool,), "operands may be unused"),
    "together": TOGETHER,
    "layout": ((str,), "new results are `contiguous`, or `channels_last`, whatever the operands' strides"),
    "wraps": ((bool,), "Python integers outside the compute dtype's range wrap around; otherwise they raise an error"),
    "multi_tensor": ((bool,), "also one kernel for many tensors at once; each result new_NAME overwrites NAME"),
    "product": ((dict,), "operands that are a matrix product with the previous step: of the `op`, of its `grad`"),
    "flag": ((str,), "of a multi-tensor op, the operand of one element that becomes 1 where its result is above 0"),
}
REQUIRED = ("out",)


def expressions(op: Op, **options: bool) -> dict[str, Expr]:
    """Parse the expression of each result, with named values replaced. Raises `SpecError`, which names the field."""
    table, lets = parse_lets(op, **options)
    exprs = {}
    for output, text in op.outputs.items():
        field = f"out.{output}" if len(op.outputs) > 1 else "out"
        exprs[output] = substitute(parse_field(op, field, text, table, **options), lets)
    return exprs


def check(op: Op) -> None:
    """Raise `SpecError` if an expression is wrong."""
    exprs = expressions(op)
    if not any(p.is_tensor for p in op.operands):
        raise SpecError("a pointwise op needs a tensor operand", file=op.file, line=op.line, field="op")
    used_names = set(free_names(*exprs.values()))
    for p in op.operands:
        if p.name not in used_names and p.role != "static" and not op.fields.get("unused"):
            raise SpecError(f"parameter {p.name!r} is used by no expression", file=op.file, line=op.line, field="out")
    if op.dtypes not in ("integer", "integral", "bool"):
        _check_no_bits(op, exprs)
    if isinstance(op.grad, Mapping):
        grad_expressions(op)
    overwritten_operands(op)
    flag_operand(op)
    product_operands(op)


_BITWISE = {
    "bitwise_and": "&", "bitwise_or": "|", "bitwise_xor": "^", "bitwise_not": "~", "lshift": "<<", "rshift": ">>",
}  # fmt: skip


def _check_no_bits(op: Op, exprs: Mapping[str, Expr]) -> None:
    """Raise `SpecError` if an operator on bits is used by an op of floats, which C does not compile."""
    pending, visited = list(exprs.values()), set[Expr]()
    while pending:
        expr = pending.pop()
        if expr in visited:
            continue
        visited.add(expr)
        if expr.fn in _BITWISE and expr.type == "value":
            power = "; a power is written **" if expr.fn == "bitwise_xor" else ""
            raise SpecError(
                f"{_BITWISE[expr.fn]} computes on bits and takes integers{power}", file=op.file, line=op.line,
                field="out", suggestion="say `dtypes: integral`, or use another operator",
            )  # fmt: skip
        pending += expr.args


def overwritten_operands(op: Op) -> tuple[int, ...]:
    """Return, for each result of a multi-tensor op, the position of the tensor that it overwrites; () for other ops.

    A result `new_NAME` overwrites the operand NAME. A single result overwrites the first tensor.

    Raises:
        SpecError: a result overwrites no operand.
    """
    if not op.fields.get("multi_tensor"):
        return ()
    names = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    if len(names) < sum(p.is_tensor for p in op.operands):
        raise SpecError("operands of a multi-tensor op are values", file=op.file, line=op.line, field="multi_tensor")
    positions = []
    for output in op.outputs:
        name = names[0] if len(op.outputs) == 1 else output.removeprefix("new_")
        if name not in names:
            raise SpecError(
                f"result {output!r} of a multi-tensor op overwrites no operand: call it new_OPERAND",
                file=op.file, line=op.line, field="out",
            )  # fmt: skip
        positions.append(names.index(name))
    return tuple(positions)


def flag_operand(op: Op) -> int | None:
    """Return the position among the tensors of a multi-tensor op's one-element flag. Raises `SpecError`."""
    if "flag" not in op.fields:
        return None
    names = [p.name for p in op.operands if p.is_tensor]
    flag_name = op.text_field("flag")
    if flag_name not in names[1:] or names.index(flag_name) not in overwritten_operands(op):
        message = f"{flag_name!r} is no operand after the first that a multi-tensor op overwrites"
        raise SpecError(message, file=op.file, line=op.line, field="flag")
    return names.index(flag_name)


def product_operands(op: Op) -> tuple[int, ...]:
    """Return the positions of the operands that are a matrix product with the previous step's result.

    Such an op is one step of a recurrence. One schedule computes the product too and continues with the next step.
    Raises `SpecError`.
    """
    names = [p.name for p in op.operands]
    product_names = names_of(op.mapping_field("product").get("op", ()), "product.op")
    for operand_name in product_names:
        if operand_name not in names:
            raise SpecError(f"{operand_name!r} is no operand", file=op.file, line=op.line, field="product.op")
    return tuple(names.index(operand_name) for operand_name in product_names)


def render(op: Op, environment: Environment) -> Rendered:
    """Kernels of all schedules, in both dialects."""
    exprs = {k: canonical(e) for k, e in expressions(op).items()}
    kernel_names = c_names([*(p.name for p in op.operands), *exprs])
    blocks = {d: emit_opencl(exprs, d, wrap=True, names=kernel_names) for d in ("vector", "row")}
    outputs = tuple(_output(op, k, e) for k, e in exprs.items())
    text = environment.get_template("opencl/pointwise.cl.j2").render(
        op=op.name,
        title=title(op, exprs),
        inputs=[(kernel_names.get(p.name, p.name), p.type) for p in op.operands if p.is_tensor],
        unused={kernel_names.get(p.name, p.name) for p in op.operands} - set(used_kernel_names(exprs, kernel_names)),
        scalars=[(kernel_names.get(p.name, p.name), i) for i, p in enumerate(op.operands) if not p.is_tensor],
        outputs=[(k, e.type) for k, e in exprs.items()],
        vector=blocks["vector"],
        scalar=blocks["row"],
        overwritten=overwritten_operands(op),
        flag=flag_operand(op),
        products=product_operands(op),
    )
    detail: dict[str, object] = {"layout": op.fields["layout"]} if "layout" in op.fields else {}
    if op.fields.get("wraps"):
        detail["wraps"] = True
    if overwritten_operands(op):
        detail["overwritten"] = overwritten_operands(op)
    if flag_operand(op) is not None:
        detail["flag_position"] = flag_operand(op)
    if product_operands(op):
        detail["product_positions"] = product_operands(op)
    sources = {
        "opencl": Source(text, math_functions(*blocks.values())),
        "triton": triton_source(op, exprs, op.operands, environment),
    }
    return Rendered(outputs, sources, detail)


def triton_source(
    op: Op, exprs: Mapping[str, Expr], operands: Sequence[Param], environment: Environment, *, random: bool = False,
    seeded: bool = False,
) -> Source:  # fmt: skip
    """Render the Triton kernels that compute `exprs` from `operands`.

    Args:
        random: the kernels pass each element's row-major index to the expressions.
        seeded: the kernels draw random numbers.
    """
    kernel_names = triton.python_names([*(p.name for p in operands), *exprs, *(["index"] if random else [])])
    block = emit_triton(exprs, names=kernel_names)
    return triton.source(
        "pointwise.py.j2",
        environment,
        block.functions,
        op=op.name,
        title=title(op, exprs),
        inputs=[(kernel_names.get(p.name, p.name), p.type) for p in operands if p.is_tensor],
        used=set(used_kernel_names(exprs, kernel_names)),
        scalars=[(kernel_names.get(p.name, p.name), i) for i, p in enumerate(operands) if not p.is_tensor],
        outputs=[(k, e.type) for k, e in exprs.items()],
        block=block,
        random=random,
        seeded=seeded,
        index_name=kernel_names.get("index", "index") if random and "index" in free_names(*exprs.values()) else None,
        overwritten=() if random else overwritten_operands(op),
        flag=None if random else flag_operand(op),
    )


def used_kernel_names(exprs: Mapping[str, Expr], kernel_names: Mapping[str, str]) -> list[str]:
    """Return the kernel names of the operands that `exprs` read."""
    return [kernel_names.get(n, n) for n in free_names(*exprs.values())]


def math_functions(*blocks: Block) -> tuple[str, ...]:
    """Return the math functions that any of `blocks` calls, sorted."""
    return tuple(sorted({f for b in blocks for f in b.functions}))


def title(op: Op, exprs: Mapping[str, Expr]) -> str:
    """Return a one-line description of the op, for the header of its kernels."""
    expr_text = "; ".join(f"{k} = {to_text(e)}" for k, e in exprs.items())
    return f"{op.name}({', '.join(p.name for p in op.params)}): {expr_text[:400]}"


def _output(op: Op, output: str, expr: Expr) -> OutputRow:
    differentiable = expr.type == "value" and op.grad != "none"
    return OutputRow(output, expr.type, result_rule(op, expr.type), "full", differentiable)


def grad_expressions(op: Op) -> dict[str, Expr]:
    """Parse the gradients that the spec's `grad` field states."""
    table, lets = parse_lets(op)
    for output in op.outputs:
        table[output] = Operand("value", "full")
        seed = seed_name(op, output)
        table[seed] = Operand("value", "full")
    texts = op.grad if isinstance(op.grad, Mapping) else {}
    for key in texts:
        if key not in {p.name for p in op.operands}:
            raise SpecError(f"{key!r} is no parameter", file=op.file, line=op.line, field="grad")
    return {k: substitute(parse_field(op, f"grad.{k}", v, table), lets) for k, v in texts.items()}


def derive(op: Op) -> dict[str, Derived]:
    """Return one pointwise gradient op per tensor operand of type value: from the spec's `grad`, or derived."""
    if op.grad == "none":
        return {}
    gradients = _gradients(op)
    if op.fields.get("together"):
        return _joint_gradients(op, gradients)
    return {
        w: _zero_gradient(op, w) if (expr := gradients[w]) is None else _gradient_op(op, w, expr) for w in gradients
    }


def _gradients(op: Op) -> dict[str, Expr | None]:
    """Return the gradient of each operand as an expression of operands, results and seeds; None where it is zero."""
    differentiable = [p.name for p in op.operands if p.is_tensor and p.type == "value"]
    spec_gradients = grad_expressions(op) if isinstance(op.grad, Mapping) else {}
    gradients: dict[str, Expr | None] = dict(spec_gradients)
    missing = [w for w in differentiable if w not in gradients]
    if missing:
        outputs = {k: canonical(e) for k, e in expressions(op).items() if e.type == "value"}
        seeds = {k: variable(seed_name(op, k), Operand("value", "full")) for k in outputs}
        for parameter in missing if outputs else ():
            with suppress(ExprError):  # a function has no derivative: the runtime raises when this gradient is needed
                derived_gradients = gradient(outputs, seeds, [parameter])
                gradients[parameter] = (
                    _reuse_results(derived_gradients[parameter], outputs) if parameter in derived_gradients else None
                )
    return {w: gradients[w] for w in differentiable if w in gradients}


def _joint_gradients(op: Op, gradients: Mapping[str, Expr | None]) -> dict[str, Derived]:
    """Return one op that computes all gradients. Operands with equal gradients share a result."""
    seeds = [seed_name(op, k) for k in op.outputs]
    exprs = {w: e for w, e in gradients.items() if e is not None and to_text(e) not in seeds}
    used = free_names(*exprs.values())
    operands = tuple(n for n in (*seeds, *(p.name for p in op.operands), *op.outputs) if n in used)
    used_names = {*operands, *seeds}
    results: dict[Expr, str] = {}
    for parameter, expr in exprs.items():
        if expr not in results:
            results[expr] = _unused_name(f"d_{parameter}", used_names)
            used_names.add(results[expr])
    parameter_list = ", ".join(_declare_operand(op, n) for n in operands)
    spec = {
        "op": f"{op.name}_grad({parameter_list})",
        "kind": "pointwise",
        "doc": f"Gradients of {op.name} with respect to {', '.join(exprs)}.",
        "dtypes": "float",
        "together": True,
        "out": {result: to_text(expr) for expr, result in results.items()},
    }
    product = op.mapping_field("product")
    if "grad" in product:
        spec["product"] = {"op": product["grad"]}
    shared = {w: Derived(operands, spec, results[e]) for w, e in exprs.items()}
    return {
        w: shared[w] if w in shared else _zero_gradient(op, w) if e is None else _gradient_op(op, w, e)
        for w, e in gradients.items()
    }


def _unused_name(name: str, used_names: Container[str]) -> str:
    """Return `name`, or the first of `name2`, `name3`, ... that is not in `used_names`."""
    candidate, order = name, 1
    while candidate in used_names:
        order += 1
        candidate = f"{name}{order}"
    return candidate


def _zero_gradient(op: Op, parameter: str) -> Derived:
    """Return the gradient of a piecewise constant op: an op that gives zeros.

    The gradient of a derived op is no op at all, which is cheaper.
    """
    if op.is_derived:
        return Derived((), None)
    seed = seed_name(op, next(iter(op.outputs)))
    spec = {
        "op": f"{op.name}_grad_{parameter}({seed})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}: 0.",
        "dtypes": "float",
        "unused": True,
        "out": "0",
    }
    return Derived((seed,), spec)


def _reuse_results(expr: Expr, outputs: Mapping[str, Expr]) -> Expr:
    """Replace parts of `expr` by the op's results if that makes it smaller: the derivative of exp is `out`."""
    results = {e: variable(k, Operand("value", "full")) for k, e in outputs.items() if e.args}
    rewritten = rebuild([expr], results.get)[expr]
    return (
        rewritten if size([rewritten]) < size([expr]) and len(free_names(rewritten)) <= len(free_names(expr)) else expr
    )


def _gradient_op(op: Op, parameter: str, expr: Expr) -> Derived:
    seeds = [seed_name(op, k) for k in op.outputs]
    used_names = free_names(expr)
    candidates = [*seeds, *(p.name for p in op.operands), *op.outputs]
    operands = tuple(n for n in candidates if n in used_names)
    if to_text(expr) in seeds:
        return Derived(operands, None)
    parameter_list = ", ".join(_declare_operand(op, n) for n in operands)
    spec = {
        "op": f"{op.name}_grad_{parameter}({parameter_list})",
        "kind": "pointwise",
        "doc": f"Gradient of {op.name} with respect to {parameter}.",
        "dtypes": "float",
        "out": named_result(operands, to_text(expr)),
    }
    return Derived(operands, spec)


def _declare_operand(op: Op, operand: str) -> str:
    for p in op.params:
        if p.name == operand:
            annotation = {"scalar": ": float", "number": ": float"}.get(p.role, "")
            annotation = {"mask": ": Mask", "index": ": Index"}.get(p.type, annotation)
            return f"{operand}{annotation}"
    return operand
