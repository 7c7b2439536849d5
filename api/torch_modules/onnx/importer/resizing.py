"""The operator Resize.

Where its coordinates are those of `nn.functional.interpolate`, that computes it. Otherwise nearest neighbours are
selected by index, and linear and cubic interpolations are a product with a matrix of weights for each axis.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import weftgrad as wg

from ...nn import functional as F
from ...runtime import dtypes
from ...runtime.dtypes import Array
from ...runtime.tensor import Tensor
from .nodes import Node

__all__ = ["resize"]

_MODES = {("linear", 1): "linear", ("linear", 2): "bilinear", ("linear", 3): "trilinear", ("cubic", 2): "bicubic"}
_HALF_PIXEL = ("half_pixel", "pytorch_half_pixel")


class _Axis:
    """How one axis is resized."""

    def __init__(self, node: Node, old: int, new: int, scale: float):
        self.old, self.new, self.scale = old, new, scale
        self.coordinates = node.attribute(
            "coordinate_transformation_mode", "half_pixel" if node.opset >= 11 else "asymmetric"
        )

    @property
    def is_changed(self) -> bool:
        return self.old != self.new or self.scale != 1

    def positions(self, node: Node) -> Array:
        """Return the position in the input of each element of the result."""
        x = np.arange(self.new, dtype=np.float64)
        real_size = self.old * self.scale
        if self.coordinates == "asymmetric":
            return x / self.scale
        if self.coordinates == "align_corners":
            return x * 0 if real_size == 1 else x * (self.old - 1) / (real_size - 1)
        if self.coordinates == "pytorch_half_pixel" and real_size <= 1:
            return x * 0
        if self.coordinates in _HALF_PIXEL:
            return (x + 0.5) / self.scale - 0.5
        if self.coordinates == "half_pixel_symmetric":
            offset = self.old / 2 * (1 - self.new / real_size)
            return offset + (x + 0.5) / self.scale - 0.5
        raise node.unsupported(f"coordinates {self.coordinates!r}")


def resize(node: Node) -> Tensor:
    """Compute Resize, and Upsample of older opsets."""
    axes = _axes(node)
    kind, x = node.attribute("mode", "nearest"), node[0]
    is_antialiased = bool(node.attribute("antialias", 0))
    if kind == "nearest":
        return _nearest(node, axes)
    mode = _interpolation(node, axes, kind, is_antialiased)
    if mode is not None:
        sizes = [axis.new for axis in axes[2:]]
        is_aligned = axes[0].coordinates == "align_corners"
        options = {"size": sizes} if _has_exact_scales(axes) else {"scale_factor": [axis.scale for axis in axes[2:]]}
        return F.interpolate(x, mode=mode, align_corners=is_aligned, antialias=is_antialiased, **options)
    if is_antialiased or kind not in ("linear", "cubic"):
        raise node.unsupported(f"mode {kind!r} with antialias={int(is_antialiased)} and these coordinates")
    for dim, axis in enumerate(axes):
        if axis.is_changed:
            weights = wg.tensor(_weights(node, axis, kind), dtype=x.dtype, device=x.device)
            x = (x.transpose(dim, -1) @ weights.t()).transpose(dim, -1)
    return x


def _axes(node: Node) -> list[_Axis]:
    """Read sizes or scales. Axes that the node does not name stay as they are."""
    shape = list(node[0].shape)
    scale_position = 2 if node.opset >= 11 else 1
    sizes = node.integers(3, default=None) or None
    scales = node.attribute("scales", None) or (node[scale_position].tolist() if node.has(scale_position) else [])
    dims = [axis % len(shape) for axis in node.attribute("axes", list(range(len(shape))))]
    result = [_Axis(node, size, size, 1.0) for size in shape]
    policy = node.attribute("keep_aspect_ratio_policy", "stretch")
    if sizes and policy != "stretch":
        ratios = [size / shape[dim] for size, dim in zip(sizes, dims, strict=True)]
        ratio = min(ratios) if policy == "not_larger" else max(ratios)
        scales, sizes = [ratio] * len(dims), [math.floor(ratio * shape[dim] + 0.5) for dim in dims]
    for i, dim in enumerate(dims):
        old = shape[dim]
        if sizes:
            result[dim] = _Axis(node, old, sizes[i], scales[i] if scales else sizes[i] / old)
        else:
            result[dim] = _Axis(node, old, math.floor(old * scales[i]), float(scales[i]))
    return result


def _has_exact_scales(axes: list[_Axis]) -> bool:
    return all(abs(axis.old * axis.scale - axis.new) < 1e-6 for axis in axes)


def _interpolation(node: Node, axes: list[_Axis], kind: str, is_antialiased: bool) -> str | None:
    """Return the mode of `interpolate` that computes the node, or None."""
    mode = _MODES.get((kind, len(axes) - 2))
    coordinates = axes[0].coordinates
    excludes = bool(node.attribute("exclude_outside", 0))
    coefficient = -0.5 if is_antialiased else -0.75
    if mode is None or any(axis.is_changed for axis in axes[:2]) or excludes != is_antialiased:
        return None
    if kind == "cubic" and abs(node.attribute("cubic_coeff_a", -0.75) - coefficient) > 1e-6:
        return None
    if coordinates == "align_corners":
        return mode if _has_exact_scales(axes) and not is_antialiased else None
    is_single = coordinates == "pytorch_half_pixel" and any(axis.new == 1 for axis in axes[2:])
    return mode if coordinates in _HALF_PIXEL and not is_single else None


# --- Nearest neighbours ---

_ROUNDINGS: dict[str, Callable[[Array], Array]] = {
    "floor": np.floor, "ceil": np.ceil, "round_prefer_floor": lambda x: np.ceil(x - 0.5),
    "round_prefer_ceil": lambda x: np.floor(x + 0.5),
}  # fmt: skip


def _nearest(node: Node, axes: list[_Axis]) -> Tensor:
    rounding = node.attribute("nearest_mode", "round_prefer_floor" if node.opset >= 11 else "floor")
    x = node[0]
    for dim, axis in enumerate(axes):
        if axis.is_changed:
            index = _ROUNDINGS[rounding](np.round(axis.positions(node), 9)).clip(0, axis.old - 1)
            x = x.index_select(dim, wg.tensor(index.astype(np.int64), dtype=dtypes.int64, device=x.device))
    return x


# --- Weights ---


def _weights(node: Node, axis: _Axis, kind: str) -> Array:
    """Return the matrix `(new size, old size)` of a linear or cubic interpolation."""
    positions = axis.positions(node)
    first = np.floor(positions)
    a = node.attribute("cubic_coeff_a", -0.75)
    taps = (0, 1) if kind == "linear" else (-1, 0, 1, 2)
    matrix = np.zeros((axis.new, axis.old))
    for tap in taps:
        index = first + tap
        distance = np.abs(positions - index)
        weight = 1 - distance if kind == "linear" else _cubic(distance, a)
        if node.attribute("exclude_outside", 0):
            weight = np.where((index < 0) | (index >= axis.old), 0, weight)
        np.add.at(matrix, (np.arange(axis.new), index.clip(0, axis.old - 1).astype(np.int64)), weight)
    return matrix / matrix.sum(1, keepdims=True)


def _cubic(x: Array, a: float) -> Array:
    """Return the cubic convolution kernel at distances up to 2 (R. Keys 1981)."""
    near = ((a + 2) * x - (a + 3)) * x * x + 1
    far = ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return np.where(x <= 1, near, np.where(x < 2, far, 0))
