"""A linear layer that infers its number of input features from the first input.

`lazy_convolutions` and `lazy_normalization` have other lazy layers, `_lazy_module` their base class.
"""

from __future__ import annotations

from ..runtime.device import DeviceLike
from ..runtime.dtypes import DTypeLike
from ..runtime.tensor import Tensor
from ._lazy_module import LazyModuleMixin, materialize
from .layers import Linear
from .lazy_convolutions import *  # noqa: F403 (pickled modules of version 0.2 name this module)
from .lazy_normalization import *  # noqa: F403 (pickled modules of version 0.2 name this module)
from .parameter import UninitializedParameter

__all__ = ["LazyLinear"]


class LazyLinear(LazyModuleMixin, Linear):
    """`Linear` that takes `in_features` from the last dimension of the first input.

    The other arguments are those of `Linear`.

    Example:
        >>> wg.nn.LazyLinear(2)(wg.ones(5, 4)).shape
        weftgrad.Size([5, 2])
    """

    cls_to_become = Linear
    inferred_argument = "in_features"

    def __init__(
        self, out_features: int, bias: bool = True, device: DeviceLike | None = None, dtype: DTypeLike | None = None
    ):
        super().__init__(0, 0, False)
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_features = out_features
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        """Draw new values of weight and bias, if `in_features` is known."""
        if self.in_features:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        """Set `in_features` from `input`.

        Args:
            input: First input, of shape `(*, in_features)`.

        Example:
            >>> layer = wg.nn.LazyLinear(2)
            >>> layer.initialize_parameters(wg.ones(5, 4))
            >>> layer.weight.shape
            weftgrad.Size([2, 4])
        """
        if self.has_uninitialized_params():
            self.in_features = input.meta.shape[-1]
            materialize(self.weight, self.bias, (self.out_features, self.in_features), self.out_features)
            self.reset_parameters()
        elif not self.in_features:  # loaded before the first call
            self.in_features = self.weight.meta.shape[-1]
