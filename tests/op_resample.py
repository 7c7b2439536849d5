"""Rows of the table and the references for resampling, and for samples of images."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["RESAMPLE_REFERENCES", "SAMPLED", "resample_rows"]

Array = Any


def resample_rows(Row: Any, of: Callable[..., Any], at: Callable[..., Any]) -> list[Any]:
    """Along an inner dimension, with many weights, and along the last one, with few."""
    def read(mode: str, padding: str, align: bool, **others: Any) -> dict[str, Any]:
        return {"mode": mode, "padding": padding, "align": align, **others}

    planes, volumes, small = (2, 2, 4, 5), (1, 2, 3, 2, 4), (1, 2, 3, 3)
    inner = of(1, 2, 2, 2, holds="chance")  # places that are no element's centre
    tents, near = read("bilinear", "zeros", True), read("nearest", "border", False)
    cubic, turned = read("bicubic", "zeros", False), read("bilinear", "reflection", True)
    return [
        Row("resample", (of(2, 7, 33), at(2, 3), of(6, 3)), {"dim": -2, "dtype": None}, False),
        Row("resample", (of(5, 17), at(16, 41), of(2, 41)), {"dim": 1, "dtype": None}, False),
        Row("sample_grid", (of(*small), inner), tents),
        Row("sample_grid", (of(*planes), of(2, 5, 1, 2)), turned, False),
        Row("sample_grid", (of(*volumes), of(1, 3, 1, 6, 3)), near, False),
        Row("sample_grid_input", (of(1, 2, 2, 5), of(1, 2, 5, 2)), {**tents, "shape": small}, False),
        Row("sample_grid_places", (of(2, 2, 5, 1), of(*planes), of(2, 5, 1, 2)), cubic, False),
    ]


def _resample(x: Array, first: Array, weights: Array, dim: int, dtype: Any) -> Array:
    """The sums as a matrix product."""
    matrix = np.zeros((first.size, x.shape[dim]))
    for k, row in enumerate(weights):
        matrix[np.arange(first.size), first + k] += row
    return np.moveaxis(np.moveaxis(x.astype(np.float64), dim, -1) @ matrix.T, -1, dim)


SAMPLED = ("sample_grid", "sample_grid_input", "sample_grid_places")
_BEYOND = 40  # elements on either side of an image that goes on beyond its ends
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
    """For each dimension of images of `size` the weights of its elements, (N, places, n); or dimension `sloped`'s
    derivatives by x."""
    found = []
    for d, n in enumerate(size):
        g = grid[..., len(size) - 1 - d].reshape(len(grid), -1, 1).astype(np.float64)
        x = (g + 1) * (n - 1) / 2 if align else ((g + 1) * n - 1) / 2
        beyond = np.arange(-_BEYOND, n + _BEYOND)
        near = np.rint(x) == beyond if mode == "nearest" else _kernel(x - beyond, mode, d == sloped)
        inner = np.arange(n)
        if padding == "zeros":
            of = np.pad(inner, _BEYOND, constant_values=n)
        else:
            of = np.pad(inner, _BEYOND, "edge" if padding == "border" else "reflect" if align else "symmetric")
        found.append(near @ (of[:, None] == inner))
    return found


def _sampled(image: Array, grid: Array, **how: Any) -> Array:
    axes = _matrices(grid, image.shape[2:], **how)
    letters = "zyx"[-len(axes) :]
    places = ",".join(f"np{k}" for k in letters)
    found = np.einsum(f"nc{letters},{places}->ncp", image, *axes)
    return found.reshape(*found.shape[:2], *grid.shape[1:-1])


def _sampled_input(grad: Array, grid: Array, shape: tuple[int, ...], **how: Any) -> Array:
    axes = _matrices(grid, shape[2:], **how)
    letters = "zyx"[-len(axes) :]
    places = ",".join(f"np{k}" for k in letters)
    return np.einsum(f"ncp,{places}->nc{letters}", grad.reshape(*grad.shape[:2], -1), *axes)


def _sampled_places(grad: Array, image: Array, grid: Array, **how: Any) -> Array:
    count = image.ndim - 2
    scales = [(n - how["align"]) / 2 for n in image.shape[2:]]
    parts = [(grad * _sampled(image, grid, sloped=d, **how)).sum(1) * scales[d] for d in range(count)]
    return np.stack(parts[::-1], -1)


RESAMPLE_REFERENCES: dict[str, Callable[..., Array]] = {
    "resample": _resample, "sample_grid": _sampled, "sample_grid_input": _sampled_input,
    "sample_grid_places": _sampled_places,
}  # fmt: skip
