"""Activation layers that are linear in pieces, and their smooth relatives: `ReLU`, `LeakyReLU`, `ELU` and others."""

from __future__ import annotations

import warnings

from ..autograd import no_grad
from ..creation.factories import full
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F
from ._activation_layer import ActivationLayer
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU", "ELU", "SELU", "Hardtanh", "LeakyReLU", "PReLU", "RReLU", "ReLU", "ReLU6", "Threshold",
]  # fmt: skip


class ReLU(ActivationLayer):
    """max(x, 0).

    Args:
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.ReLU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """

    function = staticmethod(F.relu)
    options = ("inplace",)

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class LeakyReLU(ActivationLayer):
    """x where positive, otherwise negative_slope * x.

    Args:
        negative_slope: Slope where x is negative.
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.LeakyReLU(0.5)(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  2.0000])
    """

    function = staticmethod(F.leaky_relu)
    options = ("negative_slope", "inplace")

    def __init__(self, negative_slope: float = 0.01, inplace: bool = False):
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace


class ELU(ActivationLayer):
    """x where positive, otherwise alpha * (exp(x) - 1) (Clevert et al. 2016, arXiv 1511.07289).

    Args:
        alpha: Limit at minus infinity, negated.
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.ELU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.6321,  0.0000,  2.0000])
    """

    function = staticmethod(F.elu)
    options = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace


class CELU(ActivationLayer):
    """max(x, 0) + min(alpha * (exp(x / alpha) - 1), 0) (Barron 2017, arXiv 1704.07483).

    Args:
        alpha: Limit at minus infinity, negated.
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.CELU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.6321,  0.0000,  2.0000])
    """

    function = staticmethod(F.celu)
    options = ("alpha", "inplace")

    def __init__(self, alpha: float = 1.0, inplace: bool = False):
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace


class SELU(ActivationLayer):
    """`ELU` with fixed constants that normalize activations (Klambauer et al. 2017, arXiv 1706.02515).

    Args:
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.SELU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.1113,  0.0000,  2.1014])
    """

    function = staticmethod(F.selu)
    options = ("inplace",)

    def __init__(self, inplace: bool = False):
        super().__init__()
        self.inplace = inplace


class Threshold(ActivationLayer):
    """x where greater than threshold, otherwise value.

    Args:
        threshold: The threshold.
        value: Result where x is not greater than the threshold.
        inplace: Overwrite the input.

    Example:
        >>> wg.nn.Threshold(0.5, 9.0)(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([9., 9., 2.])
    """

    function = staticmethod(F.threshold)
    options = ("threshold", "value", "inplace")

    def __init__(self, threshold: float, value: float, inplace: bool = False):
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace


class Hardtanh(ActivationLayer):
    """Clamp the input to [min_val, max_val].

    Args:
        min_val: Lower bound.
        max_val: Upper bound.
        inplace: Overwrite the input.
        min_value: Deprecated name of `min_val`.
        max_value: Deprecated name of `max_val`.

    Raises:
        ArgumentError: If `max_val` is not above `min_val`.

    Example:
        >>> wg.nn.Hardtanh()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  1.])
    """

    function = staticmethod(F.hardtanh)
    options = ("min_val", "max_val", "inplace")

    def __init__(
        self, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False, min_value: float | None = None,
        max_value: float | None = None,
    ):  # fmt: skip
        Module.__init__(self)
        if min_value is not None:
            warnings.warn("Hardtanh: min_value is deprecated: it is now min_val", FutureWarning, stacklevel=2)
            min_val = min_value
        if max_value is not None:
            warnings.warn("Hardtanh: max_value is deprecated: it is now max_val", FutureWarning, stacklevel=2)
            max_val = max_value
        if max_val <= min_val:
            raise ArgumentError(f"{type(self).__name__}: max_val ({max_val}) must be greater than min_val ({min_val})")
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace


class ReLU6(Hardtanh):
    """Clamp the input to [0, 6].

    Args:
        inplace: Whether to write the result to the input.

    Example:
        >>> wg.nn.ReLU6()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0., 0., 2.])
    """

    def __init__(self, inplace: bool = False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class RReLU(ActivationLayer):
    """Randomized leaky ReLU (Xu et al. 2015, arXiv 1505.00853): x where positive, otherwise slope * x.

    In training the slope of each element is drawn from U(lower, upper); in evaluation it is (lower + upper) / 2.

    Args:
        lower: Smallest slope.
        upper: Largest slope.
        inplace: Whether to write the result to the input.

    Example:
        >>> wg.nn.RReLU(0.25, 0.75).eval()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  2.0000])
    """

    options = ("lower", "upper", "inplace")

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        Module.__init__(self)
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class PReLU(Module):
    """x where positive, otherwise weight * x with learned weights (He et al. 2015, arXiv 1502.01852).

    Args:
        num_parameters: 1 for a single weight, or the number of channels (dimension 1).
        init: First value of the weights.
        device: Device of the parameters; None: the default device.
        dtype: Dtype of the parameters; None: the default dtype.

    Example:
        >>> wg.nn.PReLU()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2500,  0.0000,  2.0000], grad_fn=<prelu_slope>)
    """

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: DeviceLike | None = None,
        dtype: DTypeLike | None = None,
    ):  # fmt: skip
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def reset_parameters(self) -> None:
        """Set all weights to `init`."""
        with no_grad():
            self.weight.fill_(self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
