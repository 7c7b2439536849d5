"""Activations as modules. The functions of `nn.functional` have the formulas."""

from __future__ import annotations

import warnings
from collections.abc import Callable

from ..autograd import no_grad
from ..creation.factories import full
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.errors import ArgumentError, ShapeError
from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU", "ELU", "GELU", "GLU", "SELU", "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "LeakyReLU",
    "LogSigmoid", "LogSoftmax", "Mish", "PReLU", "RReLU", "ReLU", "ReLU6", "SiLU", "Sigmoid", "Softmax", "Softmax2d",
    "Softmin", "Softplus", "Softshrink", "Softsign", "Tanh", "Tanhshrink", "Threshold",
]  # fmt: skip


class _Activation(Module):
    """Base class of activations of one tensor.

    Attributes:
        function: The function of `nn.functional`.
        options: Names of the constructor's parameters, which are passed to the function by name.
        repr_style: What `repr` shows of the options: `"names"`, `"values"` or `"none"`.
    """

    function: Callable[..., Tensor]
    options: tuple[str, ...] = ()
    repr_style = "names"

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self.options})

    def extra_repr(self) -> str:
        """Return the options in `repr_style`; `inplace` only if it is set."""
        displayed = {k: getattr(self, k) for k in self.options if k != "inplace" or getattr(self, k)}
        if self.repr_style != "names":
            return ", ".join(map(str, displayed.values())) if self.repr_style == "values" else ""
        return ", ".join(f"{k}={v!r}" for k, v in displayed.items())


class ReLU(_Activation):
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


class LeakyReLU(_Activation):
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


class ELU(_Activation):
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


class CELU(_Activation):
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


class SELU(_Activation):
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


class GELU(_Activation):
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


class SiLU(_Activation):
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


class Mish(_Activation):
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


class Sigmoid(_Activation):
    """1 / (1 + exp(-x)).

    Example:
        >>> wg.nn.Sigmoid()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([0.2689, 0.5000, 0.8808])
    """

    function = staticmethod(F.sigmoid)


class LogSigmoid(_Activation):
    """The logarithm of `Sigmoid`.

    Example:
        >>> wg.nn.LogSigmoid()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.3133, -0.6931, -0.1269])
    """

    function = staticmethod(F.logsigmoid)


class Tanh(_Activation):
    """The hyperbolic tangent.

    Example:
        >>> wg.nn.Tanh()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.7616,  0.0000,  0.9640])
    """

    function = staticmethod(F.tanh)


class Tanhshrink(_Activation):
    """x - tanh(x).

    Example:
        >>> wg.nn.Tanhshrink()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.2384,  0.0000,  1.0360])
    """

    function = staticmethod(F.tanhshrink)


class Hardswish(_Activation):
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


class Hardsigmoid(_Activation):
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


class Hardshrink(_Activation):
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


class Softshrink(_Activation):
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


class Softplus(_Activation):
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


class Softsign(_Activation):
    """x / (1 + abs(x)).

    Example:
        >>> wg.nn.Softsign()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-0.5000,  0.0000,  0.6667])
    """

    function = staticmethod(F.softsign)


class GLU(_Activation):
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


class Threshold(_Activation):
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


class Hardtanh(_Activation):
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


class RReLU(_Activation):
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
