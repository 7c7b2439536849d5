"""Layers of fractional max pooling; what they compute is said in `functional`."""

from __future__ import annotations

from typing import Any

from ..fractional import fractional_max_pool2d, fractional_max_pool3d
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from .module import Module

__all__ = ["FractionalMaxPool2d", "FractionalMaxPool3d"]


class _FractionalMaxPool(Module):
    rank = 2

    def __init__(
        self,
        kernel_size: Any,
        output_size: Any = None,
        output_ratio: Any = None,
        return_indices: bool = False,
        _random_samples: Tensor | None = None,
    ):
        super().__init__()
        name = type(self).__name__
        if (output_size is None) == (output_ratio is None):
            raise ArgumentError(f"{name}: pass either output_size or output_ratio")
        self.kernel_size = self._each(kernel_size)
        self.return_indices = return_indices
        self.register_buffer("_random_samples", _random_samples)
        self.output_size = None if output_size is None else self._each(output_size)
        self.output_ratio = None if output_ratio is None else self._each(output_ratio)
        if any(k < 1 for k in self.kernel_size):
            raise ArgumentError(f"{name}: kernel_size must be greater than 0, not {kernel_size}")
        if self.output_ratio is not None and not all(0 < r < 1 for r in self.output_ratio):
            raise ArgumentError(f"{name}: output_ratio is between 0 and 1, not {output_ratio}")

    def _each(self, value: Any) -> tuple[Any, ...]:
        return tuple(value) if isinstance(value, (tuple, list)) else (value,) * self.rank

    def forward(self, input: Tensor) -> Any:
        function = fractional_max_pool2d if self.rank == 2 else fractional_max_pool3d
        return function(
            input, self.kernel_size, self.output_size, self.output_ratio, self.return_indices, self._random_samples
        )


class FractionalMaxPool2d(_FractionalMaxPool):
    """The largest elements of windows of (N, C, H, W) or (C, H, W), at distances that are drawn (Graham 2014).

    output_size: the output's (H, W); output_ratio: what part of the input's it is, instead. return_indices: give
    positions as well. Raises `ArgumentError`.
    """


class FractionalMaxPool3d(_FractionalMaxPool):
    """As `FractionalMaxPool2d`, of (N, C, D, H, W) or (C, D, H, W)."""

    rank = 3
