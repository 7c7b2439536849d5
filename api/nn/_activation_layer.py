"""The base class of activation layers."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.tensor import Tensor
from .module import Module

__all__ = ["ActivationLayer"]


class ActivationLayer(Module):
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
