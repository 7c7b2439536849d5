"""The precision of float32 matrix products, as PyTorch's `set_float32_matmul_precision` sets it.

    highest   full float32 accuracy
    high      on tensor cores, operands rounded to tf32 (10 bits of mantissa)
    medium    the same as high: PyTorch on CUDA does not go lower either

Only the Triton target has tensor cores; other devices always calculate in float32.
"""

from __future__ import annotations

from .context import forget_plans
from .errors import ArgumentError

__all__ = ["get_float32_matmul_precision", "input_precision", "set_float32_matmul_precision"]

_SETTINGS = ("highest", "high", "medium")
_setting = "highest"
# Architectures whose tensor cores have more than three times the throughput with tf32 that the CUDA cores have with
# float32: tf32x3 needs three products. The small GPUs of each generation (8.6, 8.9, 12.0) do not reach that.
_FAST_TF32_ARCHITECTURES = frozenset((80, 90, 100, 103))
_MIN_TF32_ARCHITECTURE = 80  # the first one with tf32


def get_float32_matmul_precision() -> str:
    """Return the current setting: "highest" (the default), "high" or "medium".

    Returns:
        Text.

    Example:
        >>> wg.get_float32_matmul_precision()
        'highest'
    """
    return _setting


def set_float32_matmul_precision(precision: str) -> None:
    """Set the precision of float32 matrix products, for all threads.

    Args:
        precision: "highest", "high" or "medium".

    Raises:
        ArgumentError: Any other value.

    Example:
        >>> wg.set_float32_matmul_precision('highest')
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
    """Return how kernels multiply float32: `ieee`, `tf32` or `tf32x3`.

    tf32x3 splits x into x1 = tf32(x) and x2 = tf32(x - x1), and computes x y as x1 y1 + (x1 y2 + x2 y1) on tensor
    cores. Rounding keeps 11 bits, so x2 is at most 2^-11 of x. The error (x2 y2, and the rounding of x2 and y2) is at
    most 3 * 2^-22 of the product, and random like rounding. Tensor cores truncate sums where float32 rounds, so long
    sums drift. But Triton gives them one block of k at a time (32 products), and adds the blocks in float32.

    Emulated on normal random numbers, the relative root-mean-square error (in parentheses that of sequential float32)
    is 1.4e-7 (1.5e-7) for k = 64, 1.5e-7 (2.8e-7) for k = 256, and 2.4e-7 (1.1e-6) for k = 4096. For k = 4096, sums
    completely on tensor cores would have 3.8e-5, and plain tf32 3.0e-4.

    Args:
        sm: Compute capability times ten, such as 90; 0 if the GPU is not from NVIDIA.
    """
    if _setting != "highest":
        return "tf32" if sm >= _MIN_TF32_ARCHITECTURE else "ieee"
    return "tf32x3" if sm in _FAST_TF32_ARCHITECTURES else "ieee"
