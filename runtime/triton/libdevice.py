"""NumPy implementations of the libdevice functions that kernels call, for the interpreter.

Each takes and returns float32 or float64 arrays. Most functions of `templates/triton/math` are plain arithmetic and
need no implementation here.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ..dtypes import Array

__all__ = ["FUNCTIONS"]


def _in_float64(function: Callable[..., Array]) -> Callable[..., Array]:
    """Compute `function` in float64 and round: NumPy's float32 version may have an error of several ulp."""

    def float64_body(*operands: Array) -> Array:
        return function(*(o.astype(np.float64) for o in operands)).astype(operands[0].dtype)

    return float64_body


FUNCTIONS: dict[str, Callable[..., Array]] = {
    "cos": _in_float64(np.cos),
    "fmod": np.fmod,
    "isnan": np.isnan,
    "nearbyint": np.rint,
    "sin": _in_float64(np.sin),
    "tan": _in_float64(np.tan),
    "tanh": _in_float64(np.tanh),
}
