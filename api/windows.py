"""Window functions, which weight a stretch of a signal (Harris 1978, "On the use of windows for harmonic analysis").

Of N points, periodic ones (the default) are the first N of the symmetric window of N + 1: what a transform of N points
takes to go on without a seam. No points give an empty tensor, one point 1.
"""

from __future__ import annotations

import math
from typing import Any

from . import factories
from ._checks import whole_number
from .runtime import dtypes
from .runtime.errors import DTypeError
from .runtime.tensor import Tensor

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window"]


def _window(
    where: str, points: int, periodic: bool, cosines: tuple[float, ...], dtype: Any, layout: Any, device: Any,
    requires_grad: bool, pin_memory: bool,
) -> Tensor:  # fmt: skip
    """Sum over k of (-1)^k a_k cos(2 pi k n / (N - 1)); of no `cosines` the triangle."""
    points = whole_number(points, where, "window_length")
    wanted = dtypes.parse(dtype or dtypes.default_dtype())
    if wanted.kind != "f":
        raise DTypeError(f"{where}: a window has a floating dtype, not {wanted.name}")
    last = points - (not periodic)
    if points == 1:
        made: Any = factories.ones(1, dtype=wanted, device=device)
    else:
        exact = wanted if wanted.itemsize > 4 else dtypes.float32
        place: Any = factories.arange(points, dtype=exact, device=device) / max(last, 1)
        if not cosines:
            made = 1 - (2 * place - 1).abs()
        else:
            made = sum((-1) ** k * a * (2 * math.pi * k * place).cos() for k, a in enumerate(cosines))
        made = made.to(wanted)
    if pin_memory:
        made = made.pin_memory()
    return made.requires_grad_(requires_grad)  # type: ignore[no-any-return]


def hann_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """0.5 - 0.5 cos(2 pi n / (N - 1)), of shape (window_length,)."""
    return _window(
        "hann_window", window_length, periodic, (0.5, 0.5), dtype, layout, device, requires_grad, pin_memory
    )


def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *, dtype: Any = None,
    layout: Any = None, device: Any = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """alpha - beta cos(2 pi n / (N - 1)), of shape (window_length,)."""
    return _window(
        "hamming_window", window_length, periodic, (alpha, beta), dtype, layout, device, requires_grad, pin_memory
    )


def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """0.42 - 0.5 cos(2 pi n / (N - 1)) + 0.08 cos(4 pi n / (N - 1)), of shape (window_length,)."""
    return _window(
        "blackman_window", window_length, periodic, (0.42, 0.5, 0.08), dtype, layout, device, requires_grad, pin_memory
    )


def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, device: Any = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """1 - |2 n / (N - 1) - 1|, of shape (window_length,)."""
    return _window("bartlett_window", window_length, periodic, (), dtype, layout, device, requires_grad, pin_memory)
