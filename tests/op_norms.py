"""Test cases of the kernels of norms over channels, and of variances (references: `op_references_norms.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_references_norms import NORM_OPS
from op_running import Array, Case, GradientCase, caller, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

# Input shape and reduced dimensions: along contiguous rows, and along columns.
_GEOMETRY = (((4, 6, 40), (0, 2)), ((12, 33), (0,)))

_FLOAT16_OPS = (
    "moments", "batch_statistics", "standardize", "standardize_sums", "standardize_slope", "variance_and_mean",
    "std_and_mean",
)  # fmt: skip
NORMS = frozenset(NORM_OPS)


def norm_cases(op: Op, device: Device, selection: str) -> list[Case]:
    """Return float32 cases (reductions in both geometries), and for some ops float16 inputs with float32 statistics."""
    shapes = _GEOMETRY if op.kind in ("reduction", "custom") else _GEOMETRY[:1]
    cases = [_case(op, device, shape, axes, "float32") for shape, axes in shapes]
    if op.name in _FLOAT16_OPS and selection in ("full", "small") and has(device, "float16"):
        cases.append(_case(op, device, *_GEOMETRY[0], "float16"))
    return cases


def _case(op: Op, device: Device, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Case:
    names, numbers, reference = NORM_OPS[op.name]
    rng = np.random.default_rng(len(op.name))
    has_full_operand = any(n in ("input", "upstream") for n in names.split())
    statistic_shape = tuple(1 if d in axes else n for d, n in enumerate(shape)) if has_full_operand else shape[1:2]

    def draw_operands() -> Iterator[tuple[Array, Any]]:
        for n in names.split():
            if n == "batches":
                yield np.array([7]), tensor(np.array([7]), "int64", device)
                continue
            is_full = n in ("input", "upstream")
            values_shape = shape if is_full else shape[1:2] if n.startswith("running") else statistic_shape
            values = rng.standard_normal(values_shape)
            values = np.abs(values) + 0.25 if n in ("rstd", "variance", "running_var") else values
            value_dtype = dtype if is_full else "float32"
            array = rounded(values, value_dtype)
            yield array, tensor(array, value_dtype, device)

    arrays, operands = zip(*draw_operands(), strict=True)
    expected = reference(*(a if a.dtype.kind == "i" else a.astype(np.float64) for a in arrays), axes=axes)
    statics = {"dim": axes, "keepdim": True, "dtype": None}
    result_dtype = dtype if op.result.startswith("like:") else "float32"
    results = expected if isinstance(expected, tuple) else (expected,)
    result_dtypes = tuple("int64" if r.dtype.kind == "i" else result_dtype for r in results)
    tolerance = (1e-5, 1e-4) if result_dtype == "float32" else (2e-3, 2e-3)
    static_values = tuple(statics[p.name] for p in op.statics)
    return Case(
        f"{dtype}, {shape}",
        [*operands, *numbers],
        list(arrays),
        expected,
        result_dtypes,
        static_values or None,
        tolerance,
    )


def norm_gradient_cases(op: Op, device: Device) -> list[GradientCase]:
    """Return gradient cases of a variance or standard deviation: of a matrix, reduced along rows and along columns."""
    names, numbers, _ = NORM_OPS[op.name]
    values = np.random.default_rng(3).standard_normal((3, 7)) + 0.5
    call, cases = caller(op), []
    for dim in (0, 1):
        x = tensor(values, "float64", device, True)
        others = [tensor(values.mean(dim, keepdims=True) + 0.25, "float64", device) for _ in names.split()[1:]]
        options = {"dim": (dim,), "keepdim": dim == 1, "dtype": None}
        statics = tuple(options[p.name] for p in op.statics)
        cases.append(
            GradientCase(
                f"dim {dim}",
                lambda x, others=others, statics=statics: call(x, *others, *numbers, statics=statics),
                [x],
                ("input",),
            )
        )
    return cases
