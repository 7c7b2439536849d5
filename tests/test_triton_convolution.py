"""Convolutions with many channels on the Triton target: `pack`, `channels` and `channels_weight`, in the interpreter.

References are sums over windows in float64. Gradients are checked by the identity that a convolution is linear in each
operand: the gradient's product with a direction is the product of the output's gradient with the convolution of that
direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

pytest.importorskip("triton")

from triton_running import convolve, interpreter

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds import triton

Array = Any
DEVICE, DRIVER = interpreter("block=64,cores=2")
TOLERANCES = {"float32": 2e-6, "float16": 2e-3, "bfloat16": 1.6e-2}  # of the sum of the terms' magnitudes


@dataclass(frozen=True)
class Case:
    """Sizes and arguments of a convolution of images.

    Attributes:
        label: The id of the test.
        images: Shape of the images: (batch, channels, height, width).
        weight: Shape of the weight: (channels of the result, channels of a group, height, width).
        stride: Pixels from one window to the next.
        padding: Zeros around the images.
        dilation: Pixels from one tap to the next.
        groups: Groups of channels.
        kernels: Kernels that forward and backward must launch.
    """

    label: str
    images: tuple[int, int, int, int]
    weight: tuple[int, int, int, int]
    stride: int = 1
    padding: int = 0
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    kernels: frozenset[str] = frozenset(("pack", "channels", "channels_weight"))


CASES = (
    Case("channels fill tiles", (2, 16, 7, 9), (16, 16, 3, 3), padding=1),
    Case("channels need padding", (1, 17, 8, 6), (33, 17, 3, 2)),
    Case("more channels than a tile", (1, 70, 4, 5), (130, 70, 1, 3), padding=1),
    Case("strides", (2, 20, 9, 10), (18, 20, 3, 3), stride=2, padding=1),
    Case("strides skip pixels", (1, 16, 9, 8), (16, 16, 1, 1), stride=3),
    Case("dilation", (1, 16, 10, 9), (16, 16, 2, 3), padding=2, dilation=(2, 1)),
    Case("groups", (2, 40, 6, 5), (34, 20, 2, 3), padding=1, groups=2),
    Case("padding wider than the kernel", (1, 16, 2, 3), (16, 16, 2, 2), padding=4),
    Case("one pixel", (1, 16, 1, 1), (16, 16, 1, 1), padding=1),
    Case("parts of the pixels", (1, 16, 46, 47), (16, 16, 1, 1), padding=1,
         kernels=frozenset(("pack", "channels", "channels_weight", "sum"))),
)  # fmt: skip


def rounded(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Array:
    """Return float64 values that `dtype` can represent."""
    return wg.tensor(rng.standard_normal(shape)).to(getattr(wg, dtype)).to(wg.float64).numpy()


def on_device(array: Array, dtype: str) -> wg.Tensor:
    return wg.tensor(array, dtype=getattr(wg, dtype), device=DEVICE, requires_grad=True)


def check(case: Case, dtype: str) -> None:
    rng = np.random.default_rng(3)
    x, w = rounded(rng, case.images, dtype), rounded(rng, case.weight, dtype)
    bias = rounded(rng, case.weight[:1], dtype)
    tensors = [on_device(array, dtype) for array in (x, w, bias)]
    start = len(DRIVER.launched)
    output = F.conv2d(*tensors, case.stride, case.padding, case.dilation, case.groups)

    def reference(x: Array, w: Array) -> Array:
        return convolve(x, w, case.stride, case.groups, case.padding, case.dilation)

    expected = reference(x, w) + bias[:, None, None]
    magnitudes = reference(np.abs(x), np.abs(w)) + np.abs(bias)[:, None, None]
    assert output.shape == expected.shape
    errors = np.abs(output.detach().cpu().to(wg.float64).numpy() - expected)
    assert (errors <= TOLERANCES[dtype] * magnitudes).all(), (case.label, dtype, float((errors / magnitudes).max()))

    grad = rounded(rng, expected.shape, dtype)
    output.backward(wg.tensor(grad, dtype=getattr(wg, dtype), device=DEVICE))
    x_grad, w_grad, bias_grad = (t.grad.cpu().to(wg.float64).numpy() for t in tensors)
    for _ in range(3):
        for name, gradient, direction, change in (
            ("input", x_grad, v := rng.standard_normal(x.shape), reference(v, w)),
            ("weight", w_grad, v := rng.standard_normal(w.shape), reference(x, v)),
        ):
            error = abs((gradient * direction).sum() - (grad * change).sum())
            assert error <= TOLERANCES[dtype] * np.abs(gradient * direction).sum(), (case.label, dtype, name)
    terms = np.abs(grad).sum((0, 2, 3))
    assert (np.abs(bias_grad - grad.sum((0, 2, 3))) <= TOLERANCES[dtype] * terms).all(), (case.label, dtype, "bias")
    launched = {s.instance.entry.removeprefix("convolution_") for s in DRIVER.launched[start:]}
    assert case.kernels <= launched, (case.label, launched)


@pytest.mark.parametrize("dtype", TOLERANCES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_channels(case: Case, dtype: str) -> None:
    check(case, dtype)


@pytest.mark.parametrize("case", [CASES[1], CASES[3], CASES[-1]], ids=lambda case: case.label)
def test_channels_with_64_bit_offsets(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_INT32", 0)
    forget_plans()  # those of other tests have offsets of 32 bits
    start = len(DRIVER.launched)
    check(case, "float32")
    steps = [s for s in DRIVER.launched[start:] if s.instance.entry.startswith("convolution_")]
    assert {dict(s.instance.defines)["INDEX"] for s in steps} == {"int64"}


@pytest.mark.parametrize("layout", ["channels innermost", "transposed", "sliced"])
def test_layouts_of_operands(layout: str) -> None:
    rng = np.random.default_rng(4)
    x, w = rng.standard_normal((2, 16, 6, 8)), rng.standard_normal((16, 16, 3, 3))
    stored = {
        "channels innermost": lambda a: on_device(a.transpose(0, 2, 3, 1).copy(), "float32").permute(0, 3, 1, 2),
        "transposed": lambda a: on_device(a.swapaxes(2, 3).copy(), "float32").transpose(2, 3),
        "sliced": lambda a: on_device(np.repeat(a, 2, 3), "float32")[:, :, :, ::2],
    }[layout]
    output = F.conv2d(stored(x), stored(w), padding=1)
    expected = convolve(x, w, padding=1)
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)


def test_sequences_and_volumes() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.standard_normal((2, 16, 3, 4, 5)), rng.standard_normal((16, 16, 2, 1, 3))
    volume = F.conv3d(on_device(x, "float32"), on_device(w, "float32"), padding=(1, 0, 1), stride=(2, 1, 1))
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (0, 0), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (2, 1, 3), (2, 3, 4))[:, :, ::2]
    expected = np.einsum("bczyxkij,ockij->bozyx", windows, w)
    np.testing.assert_allclose(volume.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)
    sequence = F.conv1d(on_device(x[:, :, 0, 0], "float32"), on_device(w[:, :, 0, 0], "float32"))
    windows = np.lib.stride_tricks.sliding_window_view(x[:, :, 0, 0], 3, 2)
    expected = np.einsum("bcxi,oci->box", windows, w[:, :, 0, 0])
    np.testing.assert_allclose(sequence.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)


def test_convolutions_of_one_pixel_are_matrix_products() -> None:
    x, w = wg.randn(2, 16, 5, 7, device=DEVICE), wg.randn(24, 16, 1, 1, device=DEVICE)
    start = len(DRIVER.launched)
    output = F.conv2d(x, w)
    entries = {s.instance.entry for s in DRIVER.launched[start:]}
    assert entries
    assert all(entry.startswith("contraction_") for entry in entries), entries
    expected = np.einsum("bcyx,oc->boyx", x.cpu().numpy().astype("float64"), w.cpu().numpy()[:, :, 0, 0])
    np.testing.assert_allclose(output.cpu().numpy(), expected, rtol=1e-5, atol=1e-5)


def test_infinite_and_undefined_elements_stay_where_they_are_read() -> None:
    x = np.zeros((1, 17, 5, 5), "float32")
    x[0, 3, 2, 2], x[0, 16, 0, 0] = np.inf, np.nan
    w = np.ones((16, 17, 3, 3), "float32")
    output = F.conv2d(on_device(x, "float32"), on_device(w, "float32"), padding=1).detach().cpu().numpy()
    assert np.isnan(output[0, :, :2, :2]).all()
    assert np.isinf(output[0, :, 2:4, 2:4]).all()
    assert (output[0, :, 4] == 0).all()
    assert (output[0, :, :, 4] == 0).all()
