"""Cases of the kernels under batch, group and instance norm (references: `op_references_norms.py`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from op_references_norms import NORM_OPS
from op_running import Array, Case, has, rounded, tensor

from weftgrad.codegen.model import Op
from weftgrad.runtime.device import Device

# Shape of the input, dimensions of a statistic: rows in memory, and columns.
_GEOMETRY = (((4, 6, 40), (0, 2)), ((12, 33), (0,)))

_HALVES = ("moments", "standardize", "standardize_sums", "standardize_slope")
NORMS = frozenset(NORM_OPS)


def norm_cases(op: Op, place: Device, selection: str) -> list[Case]:
    """Both geometries in float32 (reductions), and of some a half type beside statistics in float32."""
    shapes = _GEOMETRY if op.kind == "reduction" else _GEOMETRY[:1]
    found = [_case(op, place, shape, axes, "float32") for shape, axes in shapes]
    if op.name in _HALVES and selection in ("full", "small") and has(place, "float16"):
        found.append(_case(op, place, *_GEOMETRY[0], "float16"))
    return found


def _case(op: Op, place: Device, shape: tuple[int, ...], axes: tuple[int, ...], dtype: str) -> Case:
    names, numbers, reference = NORM_OPS[op.name]
    rng = np.random.default_rng(len(op.name))
    full = any(n in ("input", "upstream") for n in names.split())
    one = tuple(1 if d in axes else n for d, n in enumerate(shape)) if full else shape[1:2]

    def drawn() -> Iterator[tuple[Array, Any]]:
        for n in names.split():
            wide = n in ("input", "upstream")
            values = rng.standard_normal(shape if wide else one)
            values = np.abs(values) + 0.25 if n in ("rstd", "variance", "running_var") else values
            own = dtype if wide else "float32"
            array = rounded(values, own)
            yield array, tensor(array, own, place)

    arrays, operands = zip(*drawn(), strict=True)
    expected = reference(*(a.astype(np.float64) for a in arrays), axes=axes)
    statics = {"dim": axes, "keepdim": True, "dtype": None}
    result = dtype if op.result.startswith("like:") else "float32"
    results = (result,) * (len(expected) if isinstance(expected, tuple) else 1)
    tolerance = (1e-5, 1e-4) if result == "float32" else (2e-3, 2e-3)
    given = tuple(statics[p.name] for p in op.statics)
    return Case(f"{dtype}, {shape}", [*operands, *numbers], list(arrays), expected, results, given or None, tolerance)
