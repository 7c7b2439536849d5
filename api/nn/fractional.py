"""Fractional max pooling layers. The functions of `nn.functional` have the formulas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..arguments.types import FloatOrFloats, IntOrInts
from ..layer_functions.fractional_pooling import fractional_max_pool2d, fractional_max_pool3d
from ..layer_functions.spatial_arguments import repeat_number
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .module import Module

if TYPE_CHECKING:
    from ._types import Output

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _FractionalMaxPool(Module):
    rank = 2
    _random_samples: Tensor | None

    def __init__(
        self,
        kernel_size: IntOrInts,
        output_size: IntOrInts | None = None,
        output_ratio: FloatOrFloats | None = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"{name}: pass either output_size or output_ratio")
        self.kernel_size = repeat_number(kernel_size, self.rank)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else repeat_number(output_size, self.rank)
        self.output_ratio = None if output_ratio is None else repeat_number(output_ratio, self.rank)
        if any(k < 1 for k in self.kernel_size):
            raise ArgumentError(f"{name}: kernel_size must be greater than 0, not {kernel_size}")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ArgumentError(f"{name}: output_ratio is between 0 and 1, not {output_ratio}")

    def forward(self, input: Tensor) -> Tensor:
        function = fractional_max_pool2d if self.rank == 2 else fractional_max_pool3d
        pooled: Output = function(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )
        return pooled  # a pair with `return_indices`


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maximum over windows of `(N, C, H, W)` or `(C, H, W)` at random distances (Graham 2014, arXiv 1412.6071).

    Args:
        kernel_size: Size of the window.
        output_size: Size of the output; or
        output_ratio: Ratio of output and input size, between 0 and 1. Exactly one of both is needed.
        return_indices: Also return the positions of the maxima.
        _random_samples: Random numbers that determine the windows; None draws them.

    Raises:
        ArgumentError: If a size or a ratio is out of range.

    Example:
        >>> wg.nn.FractionalMaxPool2d(2, output_size=3)(wg.ones(1, 8, 8)).shape
        weftgrad.Size([1, 3, 3])
    """


class FractionalMaxPool3d(_FractionalMaxPool):
    """Fractional max pooling of `(N, C, D, H, W)` or `(C, D, H, W)` at random distances (Graham 2014, arXiv 1412.6071).

    Args:
        kernel_size: Size of the window; one int or three.
        output_size: Size of the output, one int or three; or
        output_ratio: Ratio of output and input size, between 0 and 1. Exactly one of both is needed.
        return_indices: Also return the positions of the maxima.
        _random_samples: Random numbers that determine the windows, `(N, C, 3)`; None draws them.

    Raises:
        ArgumentError: If a size or a ratio is out of range.

    Example:
        >>> wg.nn.FractionalMaxPool3d(2, output_size=3)(wg.ones(1, 8, 8, 8)).shape
        weftgrad.Size([1, 3, 3, 3])
    """

    rank = 3
