"""Dropout layers. In evaluation mode they return their input. The functions of `nn.functional` have the formulas."""

from __future__ import annotations

from collections.abc import Callable

from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F
from .module import Module

__all__ = ["AlphaDropout", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "FeatureAlphaDropout"]


class _Dropout(Module):
    """Base class of dropout layers, which call `function(input, p, training, inplace)`.

    Args:
        p: Probability of dropping, in [0, 1].
        inplace: Overwrite the input.
    """

    function: Callable[[Tensor, float, bool, bool], Tensor]

    def __init__(self, p: float = 0.5, inplace: bool = False):
        super().__init__()
        if not 0 <= p <= 1:
            raise ArgumentError(f"{type(self).__name__}: p is a probability, between 0 and 1, not {p}")
        self.p = p
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return type(self).function(input, self.p, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"p={self.p}, inplace={self.inplace}"


class Dropout(_Dropout):
    """Zero each element with probability `p` and divide the others by 1 - p (Srivastava et al. 2014).

    Args:
        p: Probability of zeroing an element.
        inplace: Overwrite the input.

    Raises:
        ArgumentError: If `p` is not between 0 and 1.

    Example:
        >>> wg.nn.Dropout(0.5).eval()(wg.tensor([-1.0, 0.0, 2.0]))
        tensor([-1.,  0.,  2.])
    """

    function = staticmethod(F.dropout)


class Dropout1d(_Dropout):
    """`Dropout` of whole channels of `(N, C, L)` or `(C, L)`.

    Args:
        p: Probability of dropping a channel.
        inplace: Overwrite the input.

    Raises:
        ArgumentError: If `p` is not between 0 and 1.

    Example:
        >>> wg.nn.Dropout1d(0.2)(wg.ones(8, 3, 10)).shape
        weftgrad.Size([8, 3, 10])
    """

    function = staticmethod(F.dropout1d)


class Dropout2d(_Dropout):
    """`Dropout` of whole channels of `(N, C, H, W)`.

    An input of another number of dimensions is deprecated and warns. `(N, C, L)` loses whole channels, too.

    Args:
        p: Probability of dropping a channel.
        inplace: Overwrite the input.

    Raises:
        ArgumentError: If `p` is not between 0 and 1.

    Example:
        >>> wg.nn.Dropout2d(0.2)(wg.ones(8, 3, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10])
    """

    function = staticmethod(F.dropout2d)


class Dropout3d(_Dropout):
    """`Dropout` of whole channels of `(N, C, D, H, W)` or `(C, D, H, W)`. Other inputs are deprecated and warn.

    Args:
        p: Probability of dropping a channel.
        inplace: Overwrite the input.

    Raises:
        ArgumentError: If `p` is not between 0 and 1.

    Example:
        >>> wg.nn.Dropout3d(0.2)(wg.ones(8, 3, 10, 10, 10)).shape
        weftgrad.Size([8, 3, 10, 10, 10])
    """

    function = staticmethod(F.dropout3d)


class AlphaDropout(_Dropout):
    """Dropout that preserves mean 0 and variance 1, for networks with `SELU` (Klambauer et al. 2017, section 3).

    Args:
        p: Probability of dropping an element.
        inplace: Overwrite the input.

    Raises:
        ArgumentError: If `p` is not between 0 and 1.

    Example:
        >>> wg.nn.AlphaDropout(0.2)(wg.ones(4, 3)).shape
        weftgrad.Size([4, 3])
    """

    function = staticmethod(F.alpha_dropout)


class FeatureAlphaDropout(_Dropout):
    """`AlphaDropout` of whole channels of `(N, C, *)`, an input of at least two dimensions.

    Args:
        p: Probability of dropping a channel.
        inplace: Overwrite the input.

    Raises:
        ArgumentError: If `p` is not between 0 and 1.

    Example:
        >>> wg.nn.FeatureAlphaDropout(0.2)(wg.ones(4, 3, 5)).shape
        weftgrad.Size([4, 3, 5])
    """

    function = staticmethod(F.feature_alpha_dropout)
