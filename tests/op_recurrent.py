"""Test cases of the gates of recurrent networks.

Operands are column slices of two matrix products, as in the layers.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from op_references_recurrent import RECURRENT_REFERENCES
from op_running import Case, GradientCase, caller, differentiable, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device


def _values(
    op: Op, rng: np.random.Generator, rows: int, size: int, dtype: str, make: Any
) -> tuple[list[Any], list[Any]]:
    """Return arrays and tensors of the operands; each gate's are columns of a matrix with all gates."""
    arrays, tensors = [], []
    names = [p.name for p in op.operands]
    for start in ("x", "h"):
        gate_names = [n for n in names if n.startswith(start)]
        matrix = rounded(rng.uniform(-2, 2, (rows, size * len(gate_names))), dtype)
        base = make(matrix)
        arrays += [matrix[:, k * size : (k + 1) * size] for k in range(len(gate_names))]
        tensors += [base[:, k * size : (k + 1) * size] for k in range(len(gate_names))]
    for name in names[len(arrays) :]:
        value = rounded(rng.uniform(-2, 2, (size,) if name == "bias" else (rows, size)), dtype)
        arrays.append(value)
        tensors.append(make(value))
    return arrays, tensors


def recurrent_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return float32 cases with sizes that are not multiples of a vector; on the main device also half types."""
    rng = np.random.default_rng(len(op.name))
    forms = [("float32", 5, 35)]
    if selection == "full":
        forms.append(("float16" if op.name.startswith("rnn") else "bfloat16", 3, 18))
    cases = []
    for dtype, rows, size in forms:
        if not has(device, dtype):
            continue
        arrays, operands = _values(op, rng, rows, size, dtype, lambda a, d=dtype: tensor(a, d, device))
        expected = RECURRENT_REFERENCES[op.name](*(np.asarray(a, np.float64) for a in arrays))
        cases.append(Case(f"{rows} by {size}", operands, arrays, expected, (dtype,) * len(expected)))
    return cases


def recurrent_gradient_cases(op: Op, device: Device, selection: str) -> list[GradientCase]:
    """Return one gradient case: the sum of all results with different weights, so that their gradients differ."""
    rng = np.random.default_rng(11)
    step = caller(op)
    shapes = {"bias": (3,)}
    inputs = [tensor(rng.uniform(-2, 2, shapes.get(p.name, (2, 3))), "float64", device, grad=True) for p in op.operands]

    def weighted(*operands: Any) -> Any:
        total = None
        for k, result in enumerate(step(*operands)):
            part = result * (0.5 + 0.3 * k)
            total = part if total is None else total + part
        return total

    return [GradientCase("weighted", weighted, inputs, tuple(differentiable(op)))]
