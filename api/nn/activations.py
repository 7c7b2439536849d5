"""Activations as modules. Formulas are with the functions of `nn.functional`."""

from __future__ import annotations

from typing import Any

from ..factories import full
from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module
from .parameter import Parameter

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "GLU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "LogSoftmax",
    "Mish",
    "PReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Softmax2d",
    "Softmin",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


class _Activation(Module):
    """A function of one tensor. `options`: the constructor's parameters and their defaults, passed on by name."""

    function: Any = None
    options: dict[str, Any] = {}  # noqa: RUF012

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__()
        names = list(self.options)
        if len(args) > len(names):
            raise TypeError(f"{type(self).__name__}: takes at most {len(names)} arguments, not {len(args)}")
        given = dict(zip(names, args, strict=False))
        unknown = [k for k in kwargs if k not in self.options or k in given]
        if unknown:
            raise TypeError(
                f"{type(self).__name__}: unexpected argument {unknown[0]!r}; it takes {', '.join(names) or 'none'}"
            )
        for name, value in (self.options | given | kwargs).items():
            setattr(self, name, value)

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, **{name: getattr(self, name) for name in self.options})

    def extra_repr(self) -> str:
        return ", ".join(
            f"{k}={getattr(self, k)!r}" for k, v in self.options.items() if k != "inplace" or getattr(self, k)
        )


def _made(name: str, function: Any, **options: Any) -> Any:
    return type(name, (_Activation,), {
        "function": staticmethod(function), "options": options, "__module__": __name__, "__doc__": function.__doc__,
    })  # fmt: skip


ReLU = _made("ReLU", F.relu, inplace=False)
ReLU6 = _made("ReLU6", F.relu6, inplace=False)
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
Hardtanh = _made("Hardtanh", F.hardtanh, min_val=-1.0, max_val=1.0, inplace=False)
Hardswish = _made("Hardswish", F.hardswish, inplace=False)
Hardsigmoid = _made("Hardsigmoid", F.hardsigmoid, inplace=False)
Hardshrink = _made("Hardshrink", F.hardshrink, lambd=0.5)
Softshrink = _made("Softshrink", F.softshrink, lambd=0.5)
Softplus = _made("Softplus", F.softplus, beta=1.0, threshold=20.0)
Softsign = _made("Softsign", F.softsign)
Softmax = _made("Softmax", F.softmax, dim=None)
Softmin = _made("Softmin", F.softmin, dim=None)
LogSoftmax = _made("LogSoftmax", F.log_softmax, dim=None)
GLU = _made("GLU", F.glu, dim=-1)
Threshold = _made("Threshold", F.threshold, threshold=0.0, value=0.0, inplace=False)


class Softmax2d(Module):
    """Softmax over the channels of images."""

    def forward(self, input: Tensor) -> Tensor:
        return F.softmax(input, -3)


class PReLU(Module):
    """`input` where positive, a learned slope times it elsewhere: one slope, or one a channel (He et al. 2015)."""

    def __init__(self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None):
        super().__init__()
        self.num_parameters = num_parameters
        self.weight = Parameter(full((num_parameters,), float(init), dtype=dtype, device=device))

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
