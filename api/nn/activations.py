"""Activations as modules. Formulas are with the functions of `nn.functional`."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

from ..autograd import no_grad
from ..factories import full
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

_NEEDED = inspect.Parameter.empty


class _Activation(Module):
    """A function of one tensor. `options`: the constructor's parameters and their defaults, passed on by name."""

    function: Any = None
    options: dict[str, Any] = {}  # noqa: RUF012
    shown = "names"

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        given = type(self).__signature__.bind(*args, **kwargs)  # type: ignore[attr-defined]
        given.apply_defaults()
        for name, value in given.arguments.items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self.options})  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        """The options: by name, their values alone, or none of them; `inplace` only where it is set."""
        kept = {k: getattr(self, k) for k in self.options if k != "inplace" or getattr(self, k)}
        if self.shown != "names":
            return ", ".join(map(str, kept.values())) if self.shown == "values" else ""
        return ", ".join(f"{k}={v!r}" for k, v in kept.items())


def _made(name: str, function: Any, shown: str = "names", **options: Any) -> Any:
    parameters = [inspect.Parameter(k, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=v) for k, v in options.items()]
    return type(name, (_Activation,), {
        "function": staticmethod(function), "options": options, "shown": shown, "__module__": __name__,
        "__doc__": function.__doc__, "__signature__": inspect.Signature(parameters),
    })  # fmt: skip


ReLU = _made("ReLU", F.relu, inplace=False)
LeakyReLU = _made("LeakyReLU", F.leaky_relu, negative_slope=0.01, inplace=False)
ELU = _made("ELU", F.elu, alpha=1.0, inplace=False)
CELU = _made("CELU", F.celu, alpha=1.0, inplace=False)
SELU = _made("SELU", F.selu, inplace=False)
GELU = _made("GELU", F.gelu, approximate="none")
SiLU = _made("SiLU", F.silu, inplace=False)
Mish = _made("Mish", F.mish, inplace=False)
Sigmoid = _made("Sigmoid", F.sigmoid)
LogSigmoid = _made("LogSigmoid", F.logsigmoid)
Tanh = _made("Tanh", F.tanh)
Tanhshrink = _made("Tanhshrink", F.tanhshrink)
Hardswish = _made("Hardswish", F.hardswish, "none", inplace=False)
Hardsigmoid = _made("Hardsigmoid", F.hardsigmoid, "none", inplace=False)
Hardshrink = _made("Hardshrink", F.hardshrink, "values", lambd=0.5)
Softshrink = _made("Softshrink", F.softshrink, "values", lambd=0.5)
Softplus = _made("Softplus", F.softplus, beta=1.0, threshold=20.0)
Softsign = _made("Softsign", F.softsign)
GLU = _made("GLU", F.glu, dim=-1)
Threshold = _made("Threshold", F.threshold, threshold=_NEEDED, value=_NEEDED, inplace=False)


class Hardtanh(_Activation):
    """The input limited to [min_val, max_val]. `min_value` and `max_value` are deprecated names of the two."""

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
    """The input limited to [0, 6]."""

    def __init__(self, inplace: bool = False):
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class RReLU(_Activation):
    """`input` where positive, a slope times it elsewhere: drawn from U(lower, upper) in training, else their middle."""

    options = {"lower": 1 / 8, "upper": 1 / 3, "inplace": False}  # noqa: RUF012

    def __init__(self, lower: float = 1 / 8, upper: float = 1 / 3, inplace: bool = False):
        Module.__init__(self)
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)


class _Along(Module):
    """A function along a dimension."""

    function: Any = None

    def __init__(self, dim: int | None = None):
        super().__init__()
        self.dim = dim

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.dim, _stacklevel=5)  # type: ignore[no-any-return]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"


class Softmax(_Along):
    """Exponentials along `dim` divided by their sum."""

    function = staticmethod(F.softmax)


class Softmin(_Along):
    """`Softmax` of the negative."""

    function = staticmethod(F.softmin)


class LogSoftmax(_Along):
    """The logarithm of `Softmax`."""

    function = staticmethod(F.log_softmax)


class Softmax2d(Module):
    """Softmax over the channels of images (N, C, H, W) or (C, H, W). Raises `ShapeError` for other inputs."""

    def forward(self, input: Tensor) -> Tensor:
        if input.meta.ndim not in (3, 4):
            raise ShapeError(f"Softmax2d: takes (N, C, H, W) or (C, H, W), not shape {list(input.meta.shape)}")
        return F.softmax(input, -3)


class PReLU(Module):
    """`input` where positive, a learned slope times it elsewhere: one slope, or one a channel (He et al. 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.init = init
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def reset_parameters(self) -> None:
        """Set all slopes to `init` again."""
        with no_grad():
            self.weight.fill_(self.init)  # type: ignore[attr-defined]

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
