"""Window functions for spectral analysis (Harris, "On the use of windows for harmonic analysis", 1978).

A symmetric window of N points has the same value at both ends. A discrete Fourier transform repeats its input, so that
the last point would stand next to an equal first one. A periodic window (the default) of N points therefore is the
symmetric window of N + 1 points without its last point. A window of 0 points is empty, and a window of 1 point is 1.
"""

from __future__ import annotations

import math

from .._generated import ops
from ..arguments.descriptions import OPTIONS, describe
from ..arguments.types import Layout
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import DTypeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import to_integer
from . import factories, sequences
from .options import finalize_output

__all__ = ["bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"]

_describe_window = describe(OPTIONS | {"dtype": "Floating dtype; None: the default dtype."})


def _window(
    where: str, points: int, periodic: bool, coefficients: tuple[float, ...], dtype: DTypeLike | None,
    layout: Layout | None, device: DeviceLike | None, requires_grad: bool, pin_memory: bool,
) -> Tensor:  # fmt: skip
    """Return the sum over k of (-1)^k coefficients[k] cos(2 pi k n / (N - 1)); a triangle without coefficients."""
    points = to_integer(points, where, "window_length")
    result_dtype = dtypes.parse(dtype or dtypes.default_dtype())
    if result_dtype.kind != "f":
        raise DTypeError(f"{where}: dtype must be floating, not {result_dtype.name}")
    period = max(points if periodic else points - 1, 1)  # at least 1: an empty window is divided by it, too
    if points == 1:
        window = factories.ones(1, dtype=result_dtype, device=device)
    else:
        compute_dtype = result_dtype if result_dtype.itemsize > 4 else dtypes.float32
        fractions = sequences.arange(points, dtype=compute_dtype, device=device) / period
        if not coefficients:
            window = 1 - (2 * fractions - 1).abs()
        else:
            window = sum((-1) ** k * c * (2 * math.pi * k * fractions).cos() for k, c in enumerate(coefficients))
        window = window.to(result_dtype)
    return finalize_output(window, where, requires_grad, None, layout, pin_memory)


@_describe_window
def hann_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hann window 0.5 - 0.5 cos(2 pi n / (N - 1)).

    Args:
        window_length: Number of elements; n runs from 0 to `window_length - 1`.
        periodic: True: N is `window_length + 1`, for Fourier transforms. False: N is `window_length`, and the window is
            symmetric.

    Returns:
        Tensor of shape `(window_length,)`.

    Raises:
        DTypeError: `dtype` is not floating.
        ArgumentError: `window_length` is no integer from 0 on.

    Example:
        >>> wg.hann_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("hann_window", window_length, periodic, (0.5, 0.5), dtype, layout, device, requires_grad, pin_memory)


@_describe_window
def hamming_window(
    window_length: int, periodic: bool = True, alpha: float = 0.54, beta: float = 0.46, *,
    dtype: DTypeLike | None = None, layout: Layout | None = None, device: DeviceLike | None = None,
    pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hamming window alpha - beta cos(2 pi n / (N - 1)).

    Args:
        window_length: Number of elements; n runs from 0 to `window_length - 1`.
        periodic: True: N is `window_length + 1`, for Fourier transforms. False: N is `window_length`, and the window is
            symmetric.
        alpha: Constant term.
        beta: Factor of the cosine.

    Returns:
        Tensor of shape `(window_length,)`.

    Raises:
        DTypeError: `dtype` is not floating.
        ArgumentError: `window_length` is no integer from 0 on.

    Example:
        >>> wg.hamming_window(4)
        tensor([0.0800, 0.5400, 1.0000, 0.5400])
    """
    return _window(
        "hamming_window", window_length, periodic, (alpha, beta), dtype, layout, device, requires_grad, pin_memory
    )


@_describe_window
def blackman_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Blackman window 0.42 - 0.5 cos(2 pi n / (N - 1)) + 0.08 cos(4 pi n / (N - 1)).

    Args:
        window_length: Number of elements; n runs from 0 to `window_length - 1`.
        periodic: True: N is `window_length + 1`, for Fourier transforms. False: N is `window_length`, and the window is
            symmetric.

    Returns:
        Tensor of shape `(window_length,)`.

    Raises:
        DTypeError: `dtype` is not floating.
        ArgumentError: `window_length` is no integer from 0 on.

    Example:
        >>> wg.blackman_window(4)[1:]
        tensor([0.3400, 1.0000, 0.3400])
    """
    return _window(
        "blackman_window", window_length, periodic, (0.42, 0.5, 0.08), dtype, layout, device, requires_grad, pin_memory
    )


@_describe_window
def bartlett_window(
    window_length: int, periodic: bool = True, *, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, pin_memory: bool = False, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Bartlett (triangular) window 1 - |2 n / (N - 1) - 1|.

    Args:
        window_length: Number of elements; n runs from 0 to `window_length - 1`.
        periodic: True: N is `window_length + 1`, for Fourier transforms. False: N is `window_length`, and the window is
            symmetric.

    Returns:
        Tensor of shape `(window_length,)`.

    Raises:
        DTypeError: `dtype` is not floating.
        ArgumentError: `window_length` is no integer from 0 on.

    Example:
        >>> wg.bartlett_window(4)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    return _window("bartlett_window", window_length, periodic, (), dtype, layout, device, requires_grad, pin_memory)


@_describe_window
def kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, pin_memory: bool = False,
    requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Kaiser window I0(beta sqrt(1 - (2 n / (N - 1) - 1)^2)) / I0(beta), of shape `(window_length,)`.

    I0 is the modified Bessel function of the first kind and order 0.

    Args:
        window_length: Number of elements.
        periodic: Whether the window is periodic, with N = `window_length + 1` in the formula, or symmetric, with N =
            `window_length`.
        beta: Shape of the window: the larger, the narrower.

    Returns:
        Vector of `window_length` elements.

    Example:
        >>> wg.kaiser_window(3, False, 1.0)
        tensor([0.7898, 1.0000, 0.7898])
    """
    points = to_integer(window_length, "kaiser_window", "window_length")
    result_dtype = dtypes.parse(dtype or dtypes.default_dtype())
    if result_dtype.kind != "f":
        raise DTypeError(f"kaiser_window: dtype must be floating, not {result_dtype.name}")
    if points == 1:
        window = factories.ones(1, dtype=result_dtype, device=device)
    else:
        compute_dtype = result_dtype if result_dtype.itemsize > 4 else dtypes.float32
        period = max(points if periodic else points - 1, 1)
        position = 2 * sequences.arange(points, dtype=compute_dtype, device=device) / period - 1
        inside = (1 - position.square()).clamp(min=0).sqrt() * beta
        # I0(x) = i0e(x) exp(x): the exponentials of numerator and denominator are one, which cannot overflow.
        scaled = (
            ops.i0e(inside)
            * (inside - beta).exp()
            / ops.i0e(factories.full((), float(beta), dtype=compute_dtype, device=device))
        )
        window = scaled.to(result_dtype)
    return finalize_output(window, "kaiser_window", requires_grad, None, layout, pin_memory)
