"""Table rows and references for resampling and grid sampling."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["RESAMPLE_REFERENCES", "SAMPLED", "resample_rows"]

Array = Any


def resample_rows(Row: Any, arg: Callable[..., Any], idx: Callable[..., Any]) -> list[Any]:
    """Return the rows: along an inner dimension with many weights, and along the last one with few."""

    def options(mode: str, padding: str, align: bool, **more: Any) -> dict[str, Any]:
        return {"mode": mode, "padding": padding, "align": align, **more}

    planes, volumes, small = (2, 2, 4, 5), (1, 2, 3, 2, 4), (1, 2, 3, 3)
    inner = arg(1, 2, 2, 2, holds="chance")  # positions between the centres of elements
    bilinear, nearest = options("bilinear", "zeros", True), options("nearest", "border", False)
    bicubic, reflected = options("bicubic", "zeros", False), options("bilinear", "reflection", True)
    return [
        Row("resample", (arg(2, 7, 33), idx(2, 3), arg(6, 3)), {"dim": -2, "dtype": None}, False),
        Row("resample", (arg(5, 17), idx(16, 41), arg(2, 41)), {"dim": 1, "dtype": None}, False),
        Row("sample_grid", (arg(*small), inner), bilinear),
        Row("sample_grid", (arg(*planes), arg(2, 5, 1, 2)), reflected, False),
        Row("sample_grid", (arg(*volumes), arg(1, 3, 1, 6, 3)), nearest, False),
        Row("sample_grid_input", (arg(1, 2, 2, 5), arg(1, 2, 5, 2)), {**bilinear, "shape": small}, False),
        Row("sample_grid_places", (arg(2, 2, 5, 1), arg(*planes), arg(2, 5, 1, 2)), bicubic, False),
    ]


def _resample(x: Array, first: Array, weights: Array, dim: int, dtype: Any) -> Array:
    """Compute the weighted sums as a matrix product."""
    matrix = np.zeros((first.size, x.shape[dim]))
    for k, row in enumerate(weights):
        matrix[np.arange(first.size), first + k] += row
    return np.moveaxis(np.moveaxis(x.astype(np.float64), dim, -1) @ matrix.T, -1, dim)


SAMPLED = ("sample_grid", "sample_grid_input", "sample_grid_places")
_BEYOND = 40  # padding elements on either side of an image
_CUBIC = ((1.25, -2.25, 0, 1), (-0.75, 3.75, -6, 3))  # Keys' polynomials for distances below 1 and below 2


def _kernel(distance: Array, mode: str, sloped: bool) -> Array:
    d = np.abs(distance)
    if mode == "bilinear":
        return np.maximum(1 - d, 0)
    near, far = (np.polyval(np.polyder(p) if sloped else p, d) for p in _CUBIC)
    return np.where(d < 1, near, np.where(d < 2, far, 0)) * (np.sign(distance) if sloped else 1)


def _matrices(
    grid: Array, size: tuple[int, ...], mode: str, padding: str, align: bool, sloped: int = -1
) -> list[Array]:
    """Return for each dimension of images of `size` the weights of its elements, of shape (N, positions, n).

    For dimension `sloped`, return the derivatives of the weights by x instead.
    """
    matrices = []
    for d, n in enumerate(size):
        g = grid[..., len(size) - 1 - d].reshape(len(grid), -1, 1).astype(np.float64)
        x = (g + 1) * (n - 1) / 2 if align else ((g + 1) * n - 1) / 2
        extended_index = np.arange(-_BEYOND, n + _BEYOND)
        weights = np.rint(x) == extended_index if mode == "nearest" else _kernel(x - extended_index, mode, d == sloped)
        inner = np.arange(n)
        if padding == "zeros":
            source_index = np.pad(inner, _BEYOND, constant_values=n)
        else:
            source_index = np.pad(
                inner, _BEYOND, "edge" if padding == "border" else "reflect" if align else "symmetric"
            )
        matrices.append(weights @ (source_index[:, None] == inner))
    return matrices


def _sampled(image: Array, grid: Array, **options: Any) -> Array:
    axes = _matrices(grid, image.shape[2:], **options)
    letters = "zyx"[-len(axes) :]
    subscripts = ",".join(f"np{k}" for k in letters)
    samples = np.einsum(f"nc{letters},{subscripts}->ncp", image, *axes)
    return samples.reshape(*samples.shape[:2], *grid.shape[1:-1])


def _sampled_input(grad: Array, grid: Array, shape: tuple[int, ...], **options: Any) -> Array:
    axes = _matrices(grid, shape[2:], **options)
    letters = "zyx"[-len(axes) :]
    subscripts = ",".join(f"np{k}" for k in letters)
    return np.einsum(f"ncp,{subscripts}->nc{letters}", grad.reshape(*grad.shape[:2], -1), *axes)


def _sampled_places(grad: Array, image: Array, grid: Array, **options: Any) -> Array:
    count = image.ndim - 2
    scales = [(n - options["align"]) / 2 for n in image.shape[2:]]
    parts = [(grad * _sampled(image, grid, sloped=d, **options)).sum(1) * scales[d] for d in range(count)]
    return np.stack(parts[::-1], -1)


RESAMPLE_REFERENCES: dict[str, Callable[..., Array]] = {
    "resample": _resample, "sample_grid": _sampled, "sample_grid_input": _sampled_input,
    "sample_grid_places": _sampled_places,
}  # fmt: skip
