"""Convolutions with few channels per group on the Triton target: `direct` and `direct_weight`, in the interpreter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("triton")

from convolution_checks import Case, check, on_device
from triton_running import convolve, interpreter

import weftgrad as wg
import weftgrad.nn.functional as F
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.kinds import triton
from weftgrad.runtime.kinds.triton import plane_tiles

DEVICE, DRIVER = interpreter("block=128,cores=2")
BOTH = frozenset(("direct", "direct_weight"))
SUMMED = BOTH | {"sum"}
CASES = (
    Case("one pixel", (1, 2, 1, 1), (2, 1, 3, 3), padding=(1, 1), groups=2),
    Case("rows of 16 bytes", (2, 3, 9, 16), (3, 1, 3, 3), padding=(1, 1), groups=3),
    Case("rows of 14 elements", (1, 3, 15, 14), (3, 1, 3, 3), padding=(1, 1), groups=3),
    Case("rows of 7 elements", (2, 4, 7, 7), (4, 1, 3, 3), padding=(1, 1), groups=4),
    Case("a column more than a tile", (1, 2, 8, 17), (2, 1, 5, 5), padding=(2, 2), groups=2),
    Case("without padding", (1, 2, 9, 10), (2, 1, 3, 2), groups=2),
    Case("stride 2", (1, 3, 16, 16), (3, 1, 3, 3), (2, 2), (1, 1), groups=3),
    Case("stride 2, odd size", (2, 2, 9, 11), (2, 1, 3, 3), (2, 2), (1, 1), groups=2),
    Case("strides that skip pixels", (1, 2, 10, 13), (2, 1, 1, 2), (3, 4), groups=2),
    Case("different strides", (1, 2, 8, 12), (2, 1, 4, 5), (3, 1), (2, 1), groups=2),
    Case("dilation", (1, 2, 12, 9), (2, 1, 3, 3), (1, 1), (2, 3), (2, 3), groups=2),
    Case("dilation and stride", (1, 2, 12, 9), (2, 1, 3, 2), (2, 3), (2, 0), (3, 2), groups=2),
    Case("padding wider than the kernel", (1, 2, 2, 3), (2, 1, 2, 2), padding=(4, 3), groups=2),
    Case("several results of a channel", (1, 2, 6, 8), (6, 1, 3, 3), padding=(1, 1), groups=2),
    Case("groups of several channels", (1, 6, 5, 6), (4, 3, 3, 3), padding=(1, 1), groups=2),
    Case("one input channel", (2, 1, 9, 9), (5, 1, 3, 3), padding=(1, 1)),
    Case("one result", (1, 5, 6, 7), (1, 5, 3, 3), padding=(1, 1)),
)  # fmt: skip
PARTS = Case("parts of the pixels", (4, 1, 1, 129), (1, 1, 1, 3), padding=(0, 1), kernels=SUMMED)


@pytest.fixture(autouse=True)
def large_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small planes have tiles that only large ones have otherwise, because they need all lanes."""
    monkeypatch.setattr(plane_tiles, "_LANES_PER_CORE", 1)
    forget_plans()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.label)
def test_direct(case: Case) -> None:
    check(replace(case, kernels=BOTH), "bfloat16", DEVICE, DRIVER)


@pytest.mark.parametrize("dtype", ["float32", "float16", "float64"])
@pytest.mark.parametrize("case", [CASES[2], CASES[7]], ids=lambda case: case.label)
def test_direct_in_other_dtypes(case: Case, dtype: str) -> None:
    check(case, dtype, DEVICE, DRIVER)


def test_small_tiles_and_parts_of_the_pixels(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_tiles, "_LANES_PER_CORE", 512)
    check(PARTS, "float32", DEVICE, DRIVER)


def test_integers_are_exact() -> None:
    rng = np.random.default_rng(5)
    x, w = rng.integers(-9, 9, (2, 3, 7, 8)), rng.integers(-9, 9, (3, 1, 3, 3))
    output = F.conv2d(wg.tensor(x, device=DEVICE), wg.tensor(w, device=DEVICE), padding=1, groups=3)
    assert (output.cpu().numpy() == convolve(x, w, 1, 3, 1)).all()


def test_direct_with_64_bit_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "_INT32", 0)
    start = len(DRIVER.launched)
    check(CASES[7], "float32", DEVICE, DRIVER)
    steps = [s for s in DRIVER.launched[start:] if s.instance.entry.startswith("convolution_")]
    assert {dict(s.instance.defines)["INDEX"] for s in steps} == {"int64"}


@pytest.mark.parametrize("layout", ["channels innermost", "transposed", "sliced", "from the second element"])
def test_layouts_of_operands(layout: str) -> None:
    rng = np.random.default_rng(4)
    x, w, grad = rng.standard_normal((2, 4, 6, 8)), rng.standard_normal((4, 1, 3, 3)), rng.standard_normal((2, 4, 6, 8))

    def stored(a: np.ndarray) -> wg.Tensor:
        if layout == "channels innermost":
            return on_device(a.transpose(0, 2, 3, 1).copy(), "float32", DEVICE).permute(0, 3, 1, 2)
        if layout == "transposed":
            return on_device(a.swapaxes(2, 3).copy(), "float32", DEVICE).transpose(2, 3)
        if layout == "sliced":
            return on_device(np.repeat(a, 2, 3), "float32", DEVICE)[:, :, :, ::2]
        return on_device(np.append(0, a.ravel()), "float32", DEVICE)[1:].reshape(a.shape)

    tensors = [stored(a).detach().requires_grad_() for a in (x, w)]
    output = F.conv2d(*tensors, padding=1, groups=4)
    output.backward(stored(grad).detach())
    expected = convolve(x, w, 1, 4, 1)
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)
    flipped = convolve(grad, w[:, :, ::-1, ::-1], 1, 4, 1)
    np.testing.assert_allclose(tensors[0].grad.cpu().numpy(), flipped, rtol=1e-5, atol=2e-5)
    direction = rng.standard_normal(w.shape)
    slope = (grad * convolve(x, direction, 1, 4, 1)).sum()
    np.testing.assert_allclose((tensors[1].grad.cpu().numpy() * direction).sum(), slope, rtol=1e-4)


def test_sequences() -> None:
    rng = np.random.default_rng(6)
    x, w = rng.standard_normal((2, 5, 40)), rng.standard_normal((5, 1, 4))
    start = len(DRIVER.launched)
    output = F.conv1d(on_device(x, "float32", DEVICE), on_device(w, "float32", DEVICE), padding=3, groups=5)
    assert [s.instance.entry for s in DRIVER.launched[start:]] == ["convolution_direct"]
    windows = np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (0, 0), (3, 3))), 4, 2)
    expected = np.einsum("bcxk,ck->bcx", windows, w[:, 0])
    np.testing.assert_allclose(output.detach().cpu().numpy(), expected, rtol=1e-5, atol=2e-5)


def test_empty_batches() -> None:
    x, w = wg.zeros(0, 3, 5, 5, device=DEVICE, requires_grad=True), wg.ones(3, 1, 3, 3, device=DEVICE)
    w.requires_grad_()
    output = F.conv2d(x, w, padding=1, groups=3)
    output.sum().backward()
    assert output.shape == (0, 3, 5, 5)
    assert (w.grad.cpu().numpy() == 0).all()


def test_infinite_and_undefined_elements_stay_where_they_are_read() -> None:
    x = np.zeros((1, 2, 9, 9), "float32")
    x[0, 0, 4, 4], x[0, 0, 8, 0] = np.inf, np.nan
    w = on_device(np.ones((2, 1, 3, 3)), "float32", DEVICE)
    output = F.conv2d(on_device(x, "float32", DEVICE), w, padding=1, groups=2)
    values = output.detach().cpu().numpy()
    is_near = np.zeros((9, 9), bool)
    is_near[3:6, 3:6] = True
    assert np.isinf(values[0, 0][is_near]).all()
    assert np.isnan(values[0, 0, 7:, :2]).all()
    is_near[7:, :2] = True
    assert (values[0, 0][~is_near] == 0).all()
    assert (values[0, 1] == 0).all()
    grad = np.zeros((1, 2, 9, 9))
    grad[0, 0, 0, 0] = 1
    output.backward(wg.tensor(grad, dtype=wg.float32, device=DEVICE))
    # Both elements meet gradients of 0, at all taps but those that leave the image beside them.
    assert np.isnan(w.grad.cpu().numpy()[0]).all()
    assert (w.grad.cpu().numpy()[1] == 0).all()
