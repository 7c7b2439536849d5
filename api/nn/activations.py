"""Smooth activation layers, shrinkages and softmaxes; `rectified_units` has `ReLU` and its relatives.

The functions of `nn.functional` have the formulas.
"""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from ._activation_layer import ActivationLayer
from .module import Module
from .rectified_units import *  # noqa: F403 (pickled modules of version 0.2 name this module)

__all__ = [
    "GELU", "GLU", "Hardshrink", "Hardsigmoid", "Hardswish", "LogSigmoid", "LogSoftmax", "Mish", "SiLU", "Sigmoid",
    "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink",
]  # fmt: skip


class GELU(ActivationLayer):
    """x * Phi(x), where Phi is the normal distribution function (Hendrycks and Gimpel 2016, arXiv 1606.08415).

    Args:
        approximate: "none", or "tanh" for the approximation by tanh.

    Example:
        >>> wg.nn.GELU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.1587,  0.0000,  1.9545])
    """

    function = staticmethod(F.gelu)
    options = ("approximate",)

    def __init__(self, approximate: str = "none"):
        super().__init__()
        self.approximate = approximate


class SiLU(ActivationLayer):
    """x * sigmoid(x).

    Args:
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.SiLU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2689,  0.0000,  1.7616])
    """

    function = staticmethod(F.silu)
    options = ("inplace",)

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Mish(ActivationLayer):
    """x * tanh(softplus(x)) (Misra 2019, arXiv 1908.08681).

    Args:
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.Mish()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3034,  0.0000,  1.9440])
    """

    function = staticmethod(F.mish)
    options = ("inplace",)

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Sigmoid(ActivationLayer):
    """1 / (1 + exp(-x)).

    Example:
        >>> wg.nn.Sigmoid()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.2689, 0.5000, 0.8808])
    """

    function = staticmethod(F.sigmoid)


class LogSigmoid(ActivationLayer):
    """The logarithm of `Sigmoid`.

    Example:
        >>> wg.nn.LogSigmoid()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.3133, -0.6931, -0.1269])
    """

    function = staticmethod(F.logsigmoid)


class Tanh(ActivationLayer):
    """The hyperbolic tangent.

    Example:
        >>> wg.nn.Tanh()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.7616,  0.0000,  0.9640])
    """

    function = staticmethod(F.tanh)


class Tanhshrink(ActivationLayer):
    """x - tanh(x).

    Example:
        >>> wg.nn.Tanhshrink()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.0360])
    """

    function = staticmethod(F.tanhshrink)


class Hardswish(ActivationLayer):
    """x * clamp(x + 3, 0, 6) / 6 (Howard et al. 2019, arXiv 1905.02244).

    Args:
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.Hardswish()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.3333,  0.0000,  1.6667])
    """

    function = staticmethod(F.hardswish)
    options = ("inplace",)
    repr_style = "none"

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Hardsigmoid(ActivationLayer):
    """clamp(x + 3, 0, 6) / 6.

    Args:
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.Hardsigmoid()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3333, 0.5000, 0.8333])
    """

    function = staticmethod(F.hardsigmoid)
    options = ("inplace",)
    repr_style = "none"

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Hardshrink(ActivationLayer):
    """x where abs(x) is greater than lambd, otherwise 0.

    Args:
        lambd: The threshold.

    Example:
        >>> wg.nn.Hardshrink()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  2.])
    """

    function = staticmethod(F.hardshrink)
    options = ("lambd",)
    repr_style = "values"

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd


class Softshrink(ActivationLayer):
    """x moved towards 0 by lambd, and 0 where abs(x) is at most lambd.

    Args:
        lambd: The threshold; not negative.

    Example:
        >>> wg.nn.Softshrink()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  1.5000])
    """

    function = staticmethod(F.softshrink)
    options = ("lambd",)
    repr_style = "values"

    def __init__(self, lambd: float = 0.5):
        super().__init__()
        self.lambd = lambd


class Softplus(ActivationLayer):
    """log(1 + exp(beta * x)) / beta, and x where beta * x is greater than threshold.

    Args:
        beta: Steepness.
        threshold: Where the function becomes linear.

    Example:
        >>> wg.nn.Softplus()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.3133, 0.6931, 2.1269])
    """

    function = staticmethod(F.softplus)
    options = ("beta", "threshold")

    def __init__(self, beta: float = 1.0, threshold: float = 20.0):
        super().__init__()
        self.beta = beta
        self.threshold = threshold


class Softsign(ActivationLayer):
    """x / (1 + abs(x)).

    Example:
        >>> wg.nn.Softsign()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  0.6667])
    """

    function = staticmethod(F.softsign)


class GLU(ActivationLayer):
    """The first half of x times the sigmoid of the second half (Dauphin et al. 2017, arXiv 1612.08083).

    Args:
        dim: Dimension that is halved; its size is even.

    Example:
        >>> wg.nn.GLU()(wg.tensor([3.0, 0.0]))
        tensor([1.5000])
    """

    function = staticmethod(F.glu)
    options = ("dim",)

    def __init__(self, dim: int = -1):
        super().__init__()
        self.dim = dim


class _DimActivation(Module):
    """Base class of functions along a dimension."""

    function: Callable[..., Tensor]

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.dim, _stacklevel=5)

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_DimActivation):
    """exp(x) / sum of exp(x) along `dim`.

    Args:
        dim: The dimension whose elements sum to 1. None is deprecated: 0 for 0-D, 1-D and 3-D input, otherwise 1.

    Example:
        >>> wg.nn.Softmax(0)(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.0420, 0.1142, 0.8438])
    """

    function = staticmethod(F.softmax)


class Softmin(_DimActivation):
    """`Softmax` of -x.

    Args:
        dim: The dimension whose elements sum to 1. None is deprecated: 0 for 0-D, 1-D and 3-D input, otherwise 1.

    Example:
        >>> wg.nn.Softmin(0)(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.7054, 0.2595, 0.0351])
    """

    function = staticmethod(F.softmin)


class LogSoftmax(_DimActivation):
    """The logarithm of `Softmax`.

    Args:
        dim: The dimension whose exponentials sum to 1. None is deprecated: 0 for 0-D, 1-D and 3-D input, otherwise 1.

    Example:
        >>> wg.nn.LogSoftmax(0)(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-3.1698, -2.1698, -0.1698])
    """

    function = staticmethod(F.log_softmax)


class Softmax2d(Module):
    """Softmax over the channels of images `(N, C, H, W)` or `(C, H, W)`. Other shapes raise `ShapeError`.

    Example:
        >>> wg.nn.Softmax2d()(wg.zeros(2, 1, 1)).flatten()
        tensor([0.5000, 0.5000])
    """

    def forward(self, input: Tensor) -> Tensor:
        if input.meta.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: takes (N, C, H, W) or (C, H, W), not shape {list(input.meta.shape)}")
        return F.softmax(input, -3)
