"""Fractional max pooling layers. The functions of `nn.functional` have the formulas."""

from __future__ import annotations

from ..arguments.types import FloatOrFloats, IntOrInts
from ..layer_functions.spatial_arguments import repeat_number
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from . import functional as F
from ._pooling_layer import PoolingLayer

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _FractionalMaxPool(PoolingLayer):
    """Base class of the two layers; `rank` is the number of spatial dimensions."""

    rank: int
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
        self.output_size = None if output_size is None else repeat_number(output_size, self.rank)
        self.output_ratio = None if output_ratio is None else repeat_number(output_ratio, self.rank)
        if any(k < 1 for k in self.kernel_size):
            raise ArgumentError(f"{name}: kernel_size must be greater than 0, not {kernel_size}")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ArgumentError(f"{name}: output_ratio must be between 0 and 1, not {output_ratio}")
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)

    def forward(self, input: Tensor) -> Tensor:
        return getattr(F, self.function)(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The maximum over windows of `(N, C, H, W)` or `(C, H, W)`, placed at random so that any output size is possible.

    Source: Graham 2014, arXiv 1412.6071.

    Args:
        kernel_size: Size of the window, one int or two (height, width).
        output_size: Size of the output, one int or two. Pass either this or `output_ratio`.
        output_ratio: Ratio of output size to input size, one number or two, between 0 and 1.
        return_indices: Whether to return the positions of the maxima as well.
        _random_samples: `(N, C, 2)` numbers in [0, 1) that place the windows; None: new ones in each call.

    Raises:
        ArgumentError: Not exactly one of `output_size` and `output_ratio` is passed, or a size or ratio is out of
            range.

    Example:
        >>> wg.nn.FractionalMaxPool2d(2, output_size=3)(wg.ones(1, 8, 8)).shape
        weftgrad.Size([1, 3, 3])
    """

    function = "fractional_max_pool2d"
    rank = 2


class FractionalMaxPool3d(_FractionalMaxPool):
    """The maximum over randomly placed windows of `(N, C, D, H, W)` or `(C, D, H, W)`, as in `FractionalMaxPool2d`.

    Args:
        kernel_size: Size of the window, one int or three (depth, height, width).
        output_size: Size of the output, one int or three. Pass either this or `output_ratio`.
        output_ratio: Ratio of output size to input size, one number or three, between 0 and 1.
        return_indices: Whether to return the positions of the maxima as well.
        _random_samples: `(N, C, 3)` numbers in [0, 1) that place the windows; None: new ones in each call.

    Raises:
        ArgumentError: Not exactly one of `output_size` and `output_ratio` is passed, or a size or ratio is out of
            range.

    Example:
        >>> wg.nn.FractionalMaxPool3d(2, output_size=3)(wg.ones(1, 8, 8, 8)).shape
        weftgrad.Size([1, 3, 3, 3])
    """

    function = "fractional_max_pool3d"
    rank = 3
