"""Fans and gains: what initial values of weights depend on (Glorot and Bengio 2010; He et al. 2015)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError, ShapeError

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor

__all__ = ["calculate_gain", "fan", "fan_in_and_fan_out"]


def calculate_gain(nonlinearity: str, param: float | None = None) -> float:
    """Return the factor that weights need so that the variance is the same before a layer and after its nonlinearity.

    Args:
        nonlinearity: `linear`, `sigmoid`, `conv1d` and other convolutions (gain 1), `tanh` (5/3), `relu` (sqrt(2)),
            `leaky_relu` (sqrt(2 / (1 + param**2))) or `selu` (3/4).
        param: Negative slope of `leaky_relu`; None means 0.01.

    Returns:
        Python float.

    Raises:
        ArgumentError: For another nonlinearity.

    Example:
        >>> wg.nn.init.calculate_gain('leaky_relu', 0.0) == 2 ** 0.5
        True
    """
    if nonlinearity in (
        "linear",
        "sigmoid",
        "conv1d",
        "conv2d",
        "conv3d",
        "conv_transpose1d",
        "conv_transpose2d",
        "conv_transpose3d",
    ):
        return 1.0
    if nonlinearity == "leaky_relu":
        if param is not None and (isinstance(param, bool) or not isinstance(param, (int, float))):
            raise ArgumentError(f"calculate_gain: the slope of leaky_relu is a number, not {param!r}")
        return math.sqrt(2.0 / (1 + (0.01 if param is None else param) ** 2))
    gains = {"tanh": 5.0 / 3, "relu": math.sqrt(2.0), "selu": 0.75}
    if nonlinearity not in gains:
        raise ArgumentError(f"calculate_gain: unknown nonlinearity {nonlinearity!r}")
    return gains[nonlinearity]


def fan_in_and_fan_out(tensor: Tensor) -> tuple[int, int]:
    """Return (inputs per output, outputs per input) of a weight of shape `(out, in, *kernel)`.

    Args:
        tensor: Weight of shape `(out, in, *kernel)`.

    Returns:
        Two ints.

    Raises:
        ShapeError: If the weight has fewer than 2 dimensions.

    Example:
        >>> wg.nn.init.fan_in_and_fan_out(wg.empty(8, 3, 5, 5))
        (75, 200)
    """
    shape = tensor.meta.shape
    if len(shape) < 2:
        raise ShapeError(f"fan in and fan out need at least 2 dimensions, not shape {list(shape)}")
    receptive_field = math.prod(shape[2:])
    return shape[1] * receptive_field, shape[0] * receptive_field


def fan(tensor: Tensor, mode: str) -> int:
    """Return the fan that `mode` names."""
    if mode not in ("fan_in", "fan_out"):
        raise ArgumentError(f"mode is 'fan_in' or 'fan_out', not {mode!r}")
    return fan_in_and_fan_out(tensor)[mode == "fan_out"]
