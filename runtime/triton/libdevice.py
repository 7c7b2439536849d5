"""NumPy bodies of the libdevice functions that kernels call, for the interpreter.

A body gets arrays of float32 or float64 and gives one; a float32 result is that of float64, rounded. Most functions of
`templates/triton/math` are plain arithmetic and need none.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["FUNCTIONS"]


def _wide(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` computed in float64: NumPy's own of float32 may be off by several units in the last place."""

    def body(*operands: Any) -> Any:
        return function(*(o.astype(np.float64) for o in operands)).astype(operands[0].dtype)

    return body


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "cos": _wide(np.cos),
    "fmod": np.fmod,
    "isnan": np.isnan,
    "nearbyint": np.rint,
    "sin": _wide(np.sin),
    "tan": _wide(np.tan),
    "tanh": _wide(np.tanh),
}
