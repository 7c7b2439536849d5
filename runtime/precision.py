"""How exactly float32 matrices are multiplied, as PyTorch's `set_float32_matmul_precision` has it.

    highest   full float32 accuracy
    high      on tensor cores, operands rounded to tf32 (10 bits of mantissa)
    medium    as high: PyTorch on CUDA does not go lower for it either

It matters where there are tensor cores, so for devices of the Triton target; others always calculate in float32.
"""

from __future__ import annotations

from .context import forget_plans
from .errors import ArgumentError

__all__ = ["get_float32_matmul_precision", "input_precision", "set_float32_matmul_precision"]

_SETTINGS = ("highest", "high", "medium")
_setting = "highest"
# Architectures whose tensor cores multiply tf32 at more than three times the rate at which the other cores multiply
# float32. The small ones of each generation (8.6, 8.9, 12.0) do not.
_FAST = frozenset((80, 90, 100, 103))
_LEAST = 80  # the first with tf32


def get_float32_matmul_precision() -> str:
    """What was last set: "highest" (the default), "high" or "medium"."""
    return _setting


def set_float32_matmul_precision(precision: str) -> None:
    """Set how exactly float32 matrices are multiplied: "highest", "high" or "medium", for all threads.

    Raises `ArgumentError` for any other value.
    """
    global _setting
    if precision not in _SETTINGS:
        raise ArgumentError(
            f"set_float32_matmul_precision: the precision is one of {', '.join(_SETTINGS)}, not {precision!r}"
        )
    if precision != _setting:
        _setting = precision
        forget_plans()  # kernels are chosen when a plan is made


def input_precision(sm: int) -> str:
    """How a kernel for the architecture `sm` (90; 0: no NVIDIA one) multiplies float32: `ieee`, `tf32` or `tf32x3`.

    tf32x3 cuts x into x1 = tf32(x) and x2 = tf32(x - x1), and x y becomes x1 y1 + (x1 y2 + x2 y1), on tensor cores.
    Rounding keeps 11 bits, so x2 is at most 2^-11 of x, and what is lost (x2 y2, the end of x2 y1 and that of x1 y2) at
    most 3 * 2^-22 of the product, as random as roundings are. Tensor cores cut off where float32 rounds, so sums drift;
    but Triton gives them one block of k at a time (32 products), and adds the blocks as float32.

    Emulated so, of normal random numbers, the error is (root of the mean of squares, of results likewise; in
    parentheses that of float32, one product after the other) 1.4e-7 (1.5e-7) for k = 64, 1.5e-7 (2.8e-7) for 256 and
    2.4e-7 (1.1e-6) for 4096; all sums on tensor cores would make the last 3.8e-5, and tf32 alone 3.0e-4.
    """
    if _setting != "highest":
        return "tf32" if sm >= _LEAST else "ieee"
    return "tf32x3" if sm in _FAST else "ieee"
