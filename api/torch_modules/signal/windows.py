"""Window functions under the names of `torch.signal.windows`.

Unlike `wg.hann_window` and its like, these are symmetric by default. A periodic window (`sym=False`) of M points is the
first M points of the symmetric window of M + 1 points. A window of 0 points is empty, and a window of 1 point is 1.

Source: F. J. Harris, "On the use of windows for harmonic analysis with the discrete Fourier transform", 1978.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from .._generated import ops
from ..arguments.descriptions import OPTIONS, describe
from ..arguments.types import Layout
from ..creation import factories, sequences
from ..creation.options import finalize_output
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, DTypeError
from ..runtime.tensor import Tensor
from ..tensor_methods.argument_checks import to_integer

__all__ = [
    "bartlett", "blackman", "cosine", "exponential", "gaussian", "general_cosine", "general_hamming", "hamming", "hann",
    "kaiser", "nuttall",
]  # fmt: skip

_describe_window = describe(
    OPTIONS
    | {
        "M": "Number of elements.",
        "sym": "Whether the window is symmetric, or periodic as a Fourier transform of M points needs it.",
        "dtype": "`float32` or `float64`; None: the default dtype.",
    }
)


def _window(
    name: str, points: int, shape_of: Callable[[Tensor, int], Tensor], sym: bool, dtype: DTypeLike | None,
    layout: Layout | None, device: DeviceLike | None, requires_grad: bool,
) -> Tensor:  # fmt: skip
    """Return `shape_of(n, period)`, where n is 0, 1, …, and `period` the distance of the symmetric window's ends."""
    where = f"signal.windows.{name}"
    points = to_integer(points, where, "M")
    result_dtype = dtypes.parse(dtype or dtypes.default_dtype())
    if result_dtype not in (dtypes.float32, dtypes.float64):
        raise DTypeError(f"{where}: dtype must be float32 or float64, not {result_dtype.name}")
    if points == 1:
        window = factories.ones(1, dtype=result_dtype, device=device)
    else:
        index = sequences.arange(points, dtype=result_dtype, device=device)
        window = shape_of(index, points - 1 if sym else points) if points else index
    return finalize_output(window, where, requires_grad, None, layout, False)


def _cosine_sum(coefficients: Sequence[float]) -> Callable[[Tensor, int], Tensor]:
    """Return the sum over k of (-1)^k * coefficients[k] * cos(2 pi k n / period), as a function of n and the period."""

    def evaluate(index: Tensor, period: int) -> Tensor:
        window = index * 0 + coefficients[0]
        for k, coefficient in enumerate(coefficients[1:], 1):
            window = window + (-1) ** k * coefficient * (index * (2 * math.pi * k / period)).cos()
        return window

    return evaluate


@_describe_window
def general_cosine(
    M: int, *, a: Sequence[float], sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the sum over k of (-1)^k a[k] cos(2 pi k n / (M - 1)).

    Args:
        a: The coefficients, at least one.

    Returns:
        Vector of M elements.

    Raises:
        ArgumentError: If `a` is empty, or M negative.

    Example:
        >>> wg.signal.windows.general_cosine(4, a=[0.5, 0.5], sym=False)
        tensor([0.0000, 0.5000, 1.0000, 0.5000])
    """
    coefficients = [float(coefficient) for coefficient in a]
    if not coefficients:
        raise ArgumentError("signal.windows.general_cosine: a must have at least one coefficient")
    return _window("general_cosine", M, _cosine_sum(coefficients), sym, dtype, layout, device, requires_grad)


@_describe_window
def general_hamming(
    M: int, *, alpha: float = 0.54, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return alpha - (1 - alpha) cos(2 pi n / (M - 1)).

    Args:
        alpha: The constant.

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.general_hamming(5, alpha=0.5)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    shape_of = _cosine_sum((alpha, 1 - alpha))
    return _window("general_hamming", M, shape_of, sym, dtype, layout, device, requires_grad)


@_describe_window
def hamming(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hamming window 0.54 - 0.46 cos(2 pi n / (M - 1)).

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.hamming(3)
        tensor([0.0800, 1.0000, 0.0800])
    """
    return _window("hamming", M, _cosine_sum((0.54, 0.46)), sym, dtype, layout, device, requires_grad)


@_describe_window
def kaiser(
    M: int, *, beta: float = 12.0, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Kaiser window I0(beta sqrt(1 - r^2)) / I0(beta), where r goes from -1 to 1 (Harris 1978, section V.J).

    Args:
        beta: Shape: 0 gives ones, larger numbers narrower windows with lower side lobes.

    Returns:
        Vector of M elements.

    Raises:
        ArgumentError: If `beta` or M is negative.

    Example:
        >>> wg.signal.windows.kaiser(3, beta=2.0)
        tensor([0.4387, 1.0000, 0.4387])
    """
    if beta < 0:
        raise ArgumentError(f"signal.windows.kaiser: beta must not be negative, not {beta}")

    def evaluate(index: Tensor, period: int) -> Tensor:
        rest = index * (period - index) * (4 / period**2)  # 1 - r^2, without a difference of two large numbers
        return ops.i0(rest.clamp(min=0).sqrt() * beta) / ops.i0(rest[:1] * 0 + beta)

    return _window("kaiser", M, evaluate, sym, dtype, layout, device, requires_grad)


@_describe_window
def hann(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Hann window 0.5 - 0.5 cos(2 pi n / (M - 1)).

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.hann(5)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """
    return _window("hann", M, _cosine_sum((0.5, 0.5)), sym, dtype, layout, device, requires_grad)


@_describe_window
def blackman(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Blackman window 0.42 - 0.5 cos(2 pi n / (M - 1)) + 0.08 cos(4 pi n / (M - 1)).

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.blackman(5)[1:4]
        tensor([0.3400, 1.0000, 0.3400])
    """
    return _window("blackman", M, _cosine_sum((0.42, 0.5, 0.08)), sym, dtype, layout, device, requires_grad)


@_describe_window
def nuttall(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the minimum 4-term Blackman-Harris window in Nuttall's form.

    Its coefficients are 0.3635819, 0.4891775, 0.1365995 and 0.0106411 (A. H. Nuttall, "Some windows with very good
    sidelobe behavior", 1981).

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.nuttall(5)[1:4]
        tensor([0.2270, 1.0000, 0.2270])
    """
    shape_of = _cosine_sum((0.3635819, 0.4891775, 0.1365995, 0.0106411))
    return _window("nuttall", M, shape_of, sym, dtype, layout, device, requires_grad)


@_describe_window
def bartlett(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return the Bartlett (triangular) window 1 - |2 n / (M - 1) - 1|.

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.bartlett(5)
        tensor([0.0000, 0.5000, 1.0000, 0.5000, 0.0000])
    """

    def evaluate(index: Tensor, period: int) -> Tensor:
        return 1 - (index * (2 / period) - 1).abs()

    return _window("bartlett", M, evaluate, sym, dtype, layout, device, requires_grad)


@_describe_window
def cosine(
    M: int, *, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return sin(pi (n + 0.5) / M).

    Returns:
        Vector of M elements.

    Example:
        >>> wg.signal.windows.cosine(3)
        tensor([0.5000, 1.0000, 0.5000])
    """

    def evaluate(index: Tensor, period: int) -> Tensor:
        return ((index + 0.5) * (math.pi / (period + 1))).sin()

    return _window("cosine", M, evaluate, sym, dtype, layout, device, requires_grad)


@_describe_window
def gaussian(
    M: int, *, std: float = 1.0, sym: bool = True, dtype: DTypeLike | None = None, layout: Layout | None = None,
    device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return exp(-((n - (M - 1) / 2) / std)^2 / 2).

    Args:
        std: Standard deviation in elements, above 0.

    Returns:
        Vector of M elements.

    Raises:
        ArgumentError: If `std` is not positive, or M negative.

    Example:
        >>> wg.signal.windows.gaussian(3)
        tensor([0.6065, 1.0000, 0.6065])
    """
    if not std > 0:
        raise ArgumentError(f"signal.windows.gaussian: std must be positive, not {std}")

    def evaluate(index: Tensor, period: int) -> Tensor:
        return (-0.5 * ((index - period / 2) / std).square()).exp()

    return _window("gaussian", M, evaluate, sym, dtype, layout, device, requires_grad)


@_describe_window
def exponential(
    M: int, *, center: float | None = None, tau: float = 1.0, sym: bool = True, dtype: DTypeLike | None = None,
    layout: Layout | None = None, device: DeviceLike | None = None, requires_grad: bool = False,
) -> Tensor:  # fmt: skip
    """Return exp(-|n - center| / tau).

    Args:
        center: Position of the maximum, for periodic windows only; None: the middle.
        tau: Elements in which the window falls to 1/e, above 0.

    Returns:
        Vector of M elements.

    Raises:
        ArgumentError: If `tau` is not positive, M negative, or `center` used with `sym=True`.

    Example:
        >>> wg.signal.windows.exponential(3)
        tensor([0.3679, 1.0000, 0.3679])
    """
    if not tau > 0:
        raise ArgumentError(f"signal.windows.exponential: tau must be positive, not {tau}")
    if sym and center is not None:
        raise ArgumentError("signal.windows.exponential: symmetric windows have no center: pass sym=False")

    def evaluate(index: Tensor, period: int) -> Tensor:
        return (-(index - (period / 2 if center is None else center)).abs() / tau).exp()

    return _window("exponential", M, evaluate, sym, dtype, layout, device, requires_grad)
