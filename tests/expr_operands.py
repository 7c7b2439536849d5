"""Operands of expressions, and functions that read, evaluate and derive a text, for tests of expressions."""

import numpy as np
import scipy.special

from weftgrad.codegen.expr import (
    Operand,
    emit_numpy,
    parse,
    row_stages,
    variable,
)

__all__ = ["OPERANDS", "G", "read", "run_rows", "value"]

OPERANDS = {
    "x": Operand(),
    "y": Operand(),
    "z": Operand(),
    "g": Operand(),
    "w": Operand("value", "column"),
    "r": Operand("value", "row"),
    "s": Operand("value", "scalar"),
    "m": Operand("mask"),
    "i": Operand("index"),
}

G = variable("g", Operand())


def read(text, **options):
    return parse(text, operands=OPERANDS, **options)


def value(expr, **operands):
    """Evaluate an expression over NumPy arrays."""
    block = emit_numpy({"out": expr})
    scope = {"np": np, "sp": scipy.special, **operands}
    with np.errstate(all="ignore"):
        for statement in block.statements:
            exec(statement, scope)
        return eval(block.values["out"], scope)


def run_rows(outputs, **operands):
    """Evaluate a row program stage by stage, as a kernel does."""
    program = row_stages(outputs)
    scope = dict(operands)
    reduce = {"row_sum": np.sum, "row_max": np.max, "row_min": np.min, "row_prod": np.prod}
    shape = next(o.shape for o in operands.values() if np.ndim(o) == 2 and o.shape[0] > 1 and o.shape[1] > 1)
    scope |= {"n": shape[1], "index": np.arange(shape[1])[None]}
    for stage in program.stages:
        totals = {}
        for reduction in stage.reductions:
            argument = np.broadcast_to(value(reduction.argument, **scope), shape)
            totals[reduction.name] = reduce[reduction.fn](argument, axis=1, keepdims=True)
        scope |= totals
        for let in stage.lets:
            scope[let.name] = value(let.expr, **scope)
            assert np.ndim(scope[let.name]) == 0 or np.shape(scope[let.name])[1] == 1
    return {output: value(expr, **scope) for output, expr in program.outputs.items()}
