"""Gates of recurrent networks in the generated suite: cases, and slopes.

Operands are slices of the columns of two products, as the layers have them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from op_references_recurrent import RECURRENT_REFERENCES
from op_running import Case, Slopes, caller, differentiable, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device


def _values(
    op: Op, rng: np.random.Generator, rows: int, size: int, dtype: str, make: Any
) -> tuple[list[Any], list[Any]]:
    """Arrays and tensors for the operands: those of a gate are columns of a matrix with all gates'."""
    arrays, given = [], []
    names = [p.name for p in op.operands]
    for start in ("x", "h"):
        own = [n for n in names if n.startswith(start)]
        whole = rounded(rng.uniform(-2, 2, (rows, size * len(own))), dtype)
        base = make(whole)
        arrays += [whole[:, k * size : (k + 1) * size] for k in range(len(own))]
        given += [base[:, k * size : (k + 1) * size] for k in range(len(own))]
    for name in names[len(arrays) :]:
        value = rounded(rng.uniform(-2, 2, (size,) if name == "bias" else (rows, size)), dtype)
        arrays.append(value)
        given.append(make(value))
    return arrays, given


def recurrent_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Slices of matrices in float32, whose rows have vectors and elements beyond; on the main device half types."""
    rng = np.random.default_rng(len(op.name))
    forms = [("float32", 5, 35)]
    if selection == "full":
        forms.append(("float16" if op.name.startswith("rnn") else "bfloat16", 3, 18))
    found = []
    for dtype, rows, size in forms:
        if not has(place, dtype):
            continue
        arrays, given = _values(op, rng, rows, size, dtype, lambda a, d=dtype: tensor(a, d, place))
        expected = RECURRENT_REFERENCES[op.name](*(np.asarray(a, np.float64) for a in arrays))
        found.append(Case(f"{rows} by {size}", given, arrays, expected, (dtype,) * len(expected)))
    return found


def recurrent_slopes(op: Op, place: Device, selection: str) -> list[Slopes]:
    """All results at once, each with a weight of its own, so that no gradient that arrives is like another."""
    rng = np.random.default_rng(11)
    step = caller(op)
    shapes = {"bias": (3,)}
    given = [tensor(rng.uniform(-2, 2, shapes.get(p.name, (2, 3))), "float64", place, grad=True) for p in op.operands]

    def weighted(*operands: Any) -> Any:
        total = None
        for k, result in enumerate(step(*operands)):
            part = result * (0.5 + 0.3 * k)
            total = part if total is None else total + part
        return total

    return [Slopes("weighted", weighted, given, tuple(differentiable(op)))]
