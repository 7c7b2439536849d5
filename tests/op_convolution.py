"""Table rows and NumPy references for convolutions of one to three dimensions.

A convolution is a sum over the kernel elements. The input elements that one kernel element multiplies are a strided
view of the padded image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

Array = Any
Ints = tuple[int, ...]


# References


def _kernel_views(
    image: Array, kernel_size: Ints, out: Ints, stride: Ints, dilation: Ints
) -> Iterator[tuple[Ints, Array]]:
    """Yield each kernel index with the view of the padded image that it multiplies, of shape (N, C, *out)."""
    for tap in np.ndindex(*kernel_size):
        begin = [k * d for k, d in zip(tap, dilation, strict=True)]
        window = (slice(b, b + (n - 1) * s + 1, s) for b, n, s in zip(begin, out, stride, strict=True))
        yield tap, image[(slice(None), slice(None), *window)]


def _grouped(x: Array, groups: int, axis: int) -> Array:
    return x.reshape(*x.shape[:axis], groups, x.shape[axis] // groups, *x.shape[axis + 1 :])


def _sides(padding: Ints, space: int) -> list[tuple[int, int]]:
    """Return the padding before and after each dimension."""
    return list(zip(padding[:space], padding[-space:], strict=True))


def _exact(x: Array) -> Array:
    """Convert integers to int64, in which sums wrap as in narrower types, and all else to float64."""
    return x.astype(np.int64 if x.dtype.kind in "iu" else np.float64)


def _pad_image(image: Array, padding: Ints) -> Array:
    return np.pad(_exact(image), ((0, 0), (0, 0), *_sides(padding, image.ndim - 2)))


def convolution(
    x: Array, weight: Array, bias: Array | None, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    kernel_size, padded = weight.shape[2:], _pad_image(x, padding)
    out = tuple(
        (n - d * (k - 1) - 1) // s + 1
        for n, d, k, s in zip(padded.shape[2:], dilation, kernel_size, stride, strict=True)
    )
    w = _grouped(_exact(weight), groups, 0)
    total = np.zeros((x.shape[0], groups, weight.shape[0] // groups, *out), w.dtype)
    for tap, view in _kernel_views(padded, kernel_size, out, stride, dilation):
        total += np.einsum("ngc...,goc->ngo...", _grouped(view, groups, 1), w[(..., *tap)])
    total = total.reshape(x.shape[0], weight.shape[0], *out)
    return total if bias is None else total + bias.reshape(-1, *(1,) * len(kernel_size))


def convolution_input(
    grad: Array, weight: Array, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    padded = _pad_image(np.zeros((grad.shape[0], weight.shape[1] * groups, *size), grad.dtype), padding)
    g, w = _grouped(_exact(grad), groups, 1), _grouped(_exact(weight), groups, 0)
    for tap, view in _kernel_views(padded, weight.shape[2:], grad.shape[2:], stride, dilation):
        view += np.einsum("ngo...,goc->ngc...", g, w[(..., *tap)]).reshape(view.shape)
    return padded[(..., *(slice(a, a + n) for (a, _), n in zip(_sides(padding, len(size)), size, strict=True)))]


def convolution_weight(
    x: Array, grad: Array, size: Ints, stride: Ints, padding: Ints, dilation: Ints, groups: int
) -> Array:
    outs, pixels = grad.shape[1], int(np.prod(grad.shape[2:]))
    g = _exact(grad).reshape(len(grad), groups, outs // groups, pixels)
    weight_grad = np.zeros((outs, x.shape[1] // groups, *size), g.dtype)
    for tap, view in _kernel_views(_pad_image(x, padding), size, grad.shape[2:], stride, dilation):
        flat = view.reshape(len(x), groups, x.shape[1] // groups, pixels)
        weight_grad[(..., *tap)] = np.einsum("ngcp,ngop->goc", flat, g).reshape(outs, -1)
    return weight_grad


CONVOLUTION_REFERENCES: dict[str, Callable[..., Array]] = {
    "convolution": convolution, "convolution_input": convolution_input, "convolution_weight": convolution_weight,
}  # fmt: skip

# Rows


def _named(space: int, stride: Ints = (), padding: Ints = (), dilation: Ints = (), groups: int = 1) -> dict[str, Any]:
    return {
        "stride": stride or (1,) * space, "padding": padding or (0,) * space, "dilation": dilation or (1,) * space,
        "groups": groups,
    }  # fmt: skip


# Input shape, weight shape, spatial size of the output, and geometry.
_CASES: list[tuple[Ints, Ints, Ints, dict[str, Any]]] = [
    ((2, 3, 8, 8), (4, 3, 3, 3), (8, 8), _named(2, padding=(1, 1))),
    ((2, 4, 9, 7), (6, 2, 3, 2), (5, 5), _named(2, (2, 1), (1, 0), (1, 2), 2)),
    ((3, 5, 7, 9), (5, 1, 5, 5), (4, 3), _named(2, (2, 3), (2, 2), groups=5)),  # single channels
    ((2, 8, 6, 6), (16, 8, 1, 1), (6, 6), _named(2)),  # a matrix product
    ((3, 6, 1, 1), (8, 3, 1, 1), (1, 1), _named(2, groups=2)),  # one output position over all images
    ((2, 2, 5, 5), (3, 2, 2, 2), (3, 3), _named(2, (3, 3), (2, 2), (2, 2))),
    ((1, 1, 1, 1), (1, 1, 1, 1), (1, 1), _named(2)),
    ((0, 3, 5, 5), (2, 3, 3, 3), (3, 3), _named(2)),
    ((2, 3, 19), (18, 3, 4), (10,), _named(1, (2,), (1, 2))),  # asymmetric padding
    ((2, 3, 40), (6, 1, 4), (20,), _named(1, (2,), (1,), groups=3)),  # two outputs of one channel
    ((2, 2, 4, 5, 6), (3, 2, 2, 3, 2), (4, 3, 5), _named(3, (1, 2, 1), (1, 1, 0), (2, 1, 1))),
    ((1, 4, 3, 4, 9), (36, 2, 2, 2, 5), (2, 3, 3), _named(3, (1, 1, 2), groups=2)),  # five taps in a row
]
# Images that do not fit a work-item's tile, and more output channels.
_LARGE: list[tuple[Ints, Ints, Ints, dict[str, Any]]] = [
    ((1, 2, 80, 90), (2, 1, 3, 3), (80, 90), _named(2, padding=(1, 1), groups=2)),
    ((1, 2, 40, 34), (3, 2, 3, 3), (40, 34), _named(2, padding=(1, 1))),
    ((2, 3, 12, 20), (66, 3, 3, 3), (12, 20), _named(2, padding=(1, 1))),
    ((2, 20, 7, 53), (32, 20, 3, 3), (4, 27), _named(2, (2, 2), (1, 1))),  # whole vectors of outputs
]


def convolution_rows(row: Any, arg: Callable[..., Any]) -> list[Any]:
    """Return the rows of all three ops, made with the table's classes."""
    rows = []
    for turn, (image, weight, out, named) in enumerate(_CASES + _LARGE):
        layout = ("contiguous", "transposed", "sliced")[turn % 3]
        x, w = arg(*image, layout=layout), arg(*weight, layout=layout)
        y = arg(image[0], weight[0], *out, layout=layout)
        checks_gradients = image[0] > 0 and turn < len(_CASES)
        rows.append(row("convolution", (x, w, arg(weight[0]) if turn % 2 == 0 else None), named, checks_gradients))
        rows.append(row("convolution_input", (y, w), named | {"size": image[2:]}, checks_gradients))
        rows.append(row("convolution_weight", (x, y), named | {"size": weight[2:]}, checks_gradients))
    return rows
