"""Activations as modules. The functions of `nn.functional` have the formulas."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from ..autograd import no_grad
from ..creation.factories import full
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

_REQUIRED = inspect.Parameter.empty


class _Activation(Module):
    """Base class of activations of one tensor.

    Attributes:
        function: The function of `nn.functional`.
        options: Names and defaults of the constructor's parameters, which are passed to the function by name.
        repr_style: What `repr` shows of the options: `"names"`, `"values"` or `"none"`.
    """

    function: Any = None
    options: dict[str, Any] = {}  # noqa: RUF012
    repr_style = "names"

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        bound_args = type(self).__signature__.bind(*args, **kwargs)  # type: ignore[attr-defined]
        bound_args.apply_defaults()
        for name, value in bound_args.arguments.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self.options})  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """Return the options in `repr_style`; `inplace` only if it is set."""
        displayed = {k: getattr(self, k) for k in self.options if k != "inplace" or getattr(self, k)}
        if self.repr_style != "names":
            return ", ".join(map(str, displayed.values())) if self.repr_style == "values" else ""
        return ", ".join(f"{k}={v!r}" for k, v in displayed.items())


def _activation_class(name: str, function: Any, repr_style: str = "names", **options: Any) -> Any:
    parameters = [inspect.Parameter(k, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v) for k, v in options.items()]
    return type(name, (_Activation,), {
        "function": staticmethod(function), "options": options, "repr_style": repr_style, "__module__": __name__,
        "__doc__": function.__doc__, "__signature__": inspect.Signature(parameters),
    })  # fmt: skip


ReLU = _activation_class("ReLU", F.relu, inplace=False)
LeakyReLU = _activation_class("LeakyReLU", F.leaky_relu, negative_slope=0.01, inplace=False)
ELU = _activation_class("ELU", F.elu, alpha=1.0, inplace=False)
CELU = _activation_class("CELU", F.celu, alpha=1.0, inplace=False)
SELU = _activation_class("SELU", F.selu, inplace=False)
GELU = _activation_class("GELU", F.gelu, approximate="none")
SiLU = _activation_class("SiLU", F.silu, inplace=False)
Mish = _activation_class("Mish", F.mish, inplace=False)
Sigmoid = _activation_class("Sigmoid", F.sigmoid)
LogSigmoid = _activation_class("LogSigmoid", F.logsigmoid)
Tanh = _activation_class("Tanh", F.tanh)
Tanhshrink = _activation_class("Tanhshrink", F.tanhshrink)
Hardswish = _activation_class("Hardswish", F.hardswish, "none", inplace=False)
Hardsigmoid = _activation_class("Hardsigmoid", F.hardsigmoid, "none", inplace=False)
Hardshrink = _activation_class("Hardshrink", F.hardshrink, "values", lambd=0.5)
Softshrink = _activation_class("Softshrink", F.softshrink, "values", lambd=0.5)
Softplus = _activation_class("Softplus", F.softplus, beta=1.0, threshold=20.0)
Softsign = _activation_class("Softsign", F.softsign)
GLU = _activation_class("GLU", F.glu, dim=-1)
Threshold = _activation_class("Threshold", F.threshold, threshold=_REQUIRED, value=_REQUIRED, inplace=False)


class Hardtanh(_Activation):
    """Clamp the input to [min_val, max_val].

    Args:
        min_val: Lower bound.
        max_val: Upper bound.
        inplace: Overwrite the input.
        min_value: Deprecated name of `min_val`.
        max_value: Deprecated name of `max_val`.
    """

    function = staticmethod(F.hardtanh)
    options = {"min_val": -1.0, "max_val": 1.0, "inplace": False}  # noqa: RUF012

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
    """Clamp the input to [0, 6]."""

    def __init__(self, inplace: bool = False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class RReLU(_Activation):
    """Randomized leaky ReLU (Xu et al. 2015, arXiv 1505.00853): x where positive, otherwise slope * x.

    In training the slope of each element is drawn from U(lower, upper); in evaluation it is (lower + upper) / 2.
    """

    options = {"lower": 1 / 8, "upper": 1 / 3, "inplace": False}  # noqa: RUF012

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        Module.__init__(self)
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class _DimActivation(Module):
    """Base class of functions along a dimension."""

    function: Any = None

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.dim, _stacklevel=5)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_DimActivation):
    """exp(x) / sum of exp(x) along `dim`."""

    function = staticmethod(F.softmax)


class Softmin(_DimActivation):
    """`Softmax` of -x."""

    function = staticmethod(F.softmin)


class LogSoftmax(_DimActivation):
    """The logarithm of `Softmax`."""

    function = staticmethod(F.log_softmax)


class Softmax2d(Module):
    """Softmax over the channels of images `(N, C, H, W)` or `(C, H, W)`. Other shapes raise `ShapeError`."""

    def forward(self, input: Tensor) -> Tensor:
        if input.meta.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: takes (N, C, H, W) or (C, H, W), not shape {list(input.meta.shape)}")
        return F.softmax(input, -3)


class PReLU(Module):
    """x where positive, otherwise weight * x with learned weights (He et al. 2015, arXiv 1502.01852).

    Args:
        num_parameters: 1 for a single weight, or the number of channels (dimension 1).
        init: First value of the weights.
    """

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def reset_parameters(self) -> None:
        """Set all weights to `init`."""
        with no_grad():
            self.weight.fill_(self.init)  # type: ignore[attr-defined]

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
