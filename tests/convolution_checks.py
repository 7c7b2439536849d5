"""Convolutions of images and their gradients, compared with sums over taps in float64 that NumPy computes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from triton_running import RecordingInterpreter

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.runtime.device import Device

__all__ = ["TOLERANCES", "Case", "check", "on_device", "rounded"]

Array = Any
# Of the sum of the terms' magnitudes: rounding of the result, and for float32 of each product and sum.
TOLERANCES = {"float64": 1e-14, "float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}


@dataclass(frozen=True)
class Case:
    """Sizes and arguments of a convolution of images.

    Attributes:
        label: The id of the test.
        images: Shape of the images: (batch, channels, height, width).
        weight: Shape of the weight: (channels of the result, channels of a group, height, width).
        stride, padding, dilation: As in `conv2d`.
        groups: Groups of channels.
        kernels: Kernels that forward and backward must launch, and no other ones of convolutions.
    """

    label: str
    images: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    kernels: frozenset[str] = frozenset()

    def taps(self, padded: Array, size: tuple[int, ...]) -> Iterator[tuple[int, int, Array]]:
        """Yield each tap and a view of the elements of the padded images that it multiplies."""
        for i in range(self.weight[2]):
            for j in range(self.weight[3]):
                y, x = i * self.dilation[0], j * self.dilation[1]
                (sy, sx), (height, width) = self.stride, size
                yield i, j, padded[:, :, y : y + (height - 1) * sy + 1 : sy, x : x + (width - 1) * sx + 1 : sx]

    @property
    def out_size(self) -> tuple[int, int]:
        """Height and width of the result."""
        height, width = (
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, p, d, k, s in zip(
                self.images[2:], self.padding, self.dilation, self.weight[2:], self.stride, strict=True
            )
        )
        return height, width


def _pad(case: Case, images: Array) -> Array:
    return np.pad(images, ((0, 0), (0, 0), (case.padding[0],) * 2, (case.padding[1],) * 2))


def _grouped(case: Case, channels: Array) -> Array:
    """Return (batch, groups, channels of a group, height, width)."""
    return channels.reshape(len(channels), case.groups, -1, *channels.shape[2:])


def _forward(case: Case, images: Array, weight: Array) -> Array:
    weights = weight.reshape(case.groups, -1, *weight.shape[1:])
    result = sum(
        np.einsum("bgiyx,goi->bgoyx", _grouped(case, view), weights[..., i, j])
        for i, j, view in case.taps(_pad(case, images), case.out_size)
    )
    return result.reshape(len(images), weight.shape[0], *case.out_size)


def _input_gradient(case: Case, grad: Array, weight: Array) -> Array:
    weights = weight.reshape(case.groups, -1, *weight.shape[1:])
    padded = _pad(case, np.zeros(case.images))
    for i, j, view in case.taps(padded, case.out_size):
        view += np.einsum("bgoyx,goi->bgiyx", _grouped(case, grad), weights[..., i, j]).reshape(view.shape)
    height, width = case.images[2:]
    return padded[:, :, case.padding[0] : case.padding[0] + height, case.padding[1] : case.padding[1] + width]


def _weight_gradient(case: Case, images: Array, grad: Array) -> Array:
    result = np.zeros(case.weight)
    for i, j, view in case.taps(_pad(case, images), case.out_size):
        product = np.einsum("bgoyx,bgiyx->goi", _grouped(case, grad), _grouped(case, view))
        result[:, :, i, j] = product.reshape(case.weight[:2])
    return result


def rounded(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return float64 values that `dtype` can represent."""
    return wg.tensor(rng.standard_normal(shape)).to(getattr(wg, dtype)).to(wg.float64).numpy()


def on_device(array: Array, dtype: str, device: Device) -> wg.Tensor:
    """Return a leaf on a device."""
    return wg.tensor(array, dtype=getattr(wg, dtype), device=device, requires_grad=True)


def check(case: Case, dtype: str, device: Device, driver: RecordingInterpreter, input_gradient: bool = True) -> None:
    """Compare a convolution with bias and its gradients with their references."""
    rng = np.random.default_rng(3)
    x, w, bias = (rounded(rng, shape, dtype) for shape in (case.images, case.weight, case.weight[:1]))
    grad = rounded(rng, (case.images[0], case.weight[0], *case.out_size), dtype)
    tensors = [on_device(array, dtype, device) for array in (x, w, bias)]
    tensors[0].requires_grad_(input_gradient)
    start = len(driver.launched)
    output = F.conv2d(*tensors, case.stride, case.padding, case.dilation, case.groups)
    output.backward(wg.tensor(grad, dtype=getattr(wg, dtype), device=device))
    launched = {s.instance.entry for s in driver.launched[start:]}
    entries = {entry.removeprefix("convolution_") for entry in launched if entry.startswith("convolution_")}
    results = [output.detach(), *(t.grad for t in tensors)]

    def references(x: Array, w: Array, bias: Array, grad: Array) -> list[Array]:
        return [
            _forward(case, x, w) + bias[:, None, None], _input_gradient(case, grad, w), _weight_gradient(case, x, grad),
            grad.sum((0, 2, 3)),
        ]  # fmt: skip

    expected, magnitudes = references(x, w, bias, grad), references(*map(np.abs, (x, w, bias, grad)))
    for name, result, reference, scale in zip(
        ("output", "input", "weight", "bias"), results, expected, magnitudes, strict=True
    ):
        if result is None and not input_gradient:
            continue
        value = result.cpu().to(wg.float64).numpy()
        assert value.shape == reference.shape, (case.label, name)
        errors = np.abs(value - reference)
        assert (errors <= TOLERANCES[dtype] * scale).all(), (case.label, dtype, name, float(errors.max()))
    assert not case.kernels or entries == case.kernels, (case.label, entries)
