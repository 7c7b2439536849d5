"""Ops that torchvision's Python code calls: against loops over boxes and samples, and through a program like it."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import weftgrad as wg
from weftgrad.runtime.errors import NotSupported, ShapeError
from weftgrad.torch_names import torchvision_ops

Array = np.ndarray[Any, Any]


def boxes_of(rng: np.random.Generator, count: int) -> Array:
    corner = rng.uniform(0, 60, (count, 2))
    return np.concatenate([corner, corner + rng.uniform(1, 40, (count, 2))], 1)


def overlap(a: Array, b: Array) -> float:
    size = np.maximum(np.minimum(a[2:], b[2:]) - np.maximum(a[:2], b[:2]), 0)
    shared = size[0] * size[1]
    return float(shared / ((a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - shared))


@pytest.mark.parametrize("count", [0, 1, 40, 130])
def test_nms_keeps_what_no_better_box_overlaps(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_ops, "_NMS_ROWS", 32)
    rng = np.random.default_rng(count)
    boxes, scores = boxes_of(rng, count), rng.permutation(count) / 7
    expected: list[int] = []
    for box in np.argsort(-scores):
        if all(overlap(boxes[box], boxes[other]) <= 0.4 for other in expected):
            expected.append(int(box))
    indices = torchvision_ops.nms(wg.tensor(boxes.reshape(-1, 4)), wg.tensor(scores), 0.4)
    assert indices.dtype is wg.int64
    assert indices.tolist() == expected


def aligned_mean(image: Array, roi: Array, scale: float, bins: tuple[int, int], ratio: int, aligned: bool) -> Array:
    """Average bilinear samples of one region, sample by sample (He et al. 2017)."""
    _, height, width = image.shape
    shift = 0.5 if aligned else 0.0
    x0, y0, x1, y1 = roi * scale - shift
    w, h = (x1 - x0, y1 - y0) if aligned else (max(x1 - x0, 1), max(y1 - y0, 1))
    rows = ratio if ratio > 0 else math.ceil(h / bins[0])
    columns = ratio if ratio > 0 else math.ceil(w / bins[1])
    result = np.zeros((image.shape[0], *bins))
    for i, j in np.ndindex(*bins):
        for k, m in np.ndindex(rows, columns):
            y = y0 + (i + (k + 0.5) / rows) * h / bins[0]
            x = x0 + (j + (m + 0.5) / columns) * w / bins[1]
            if not (-1 <= y <= height and -1 <= x <= width):
                continue
            y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
            top, left = min(int(y), height - 2), min(int(x), width - 2)
            v, u = y - top, x - left
            patch = image[:, top : top + 2, left : left + 2]
            result[:, i, j] += np.einsum("chw,h,w->c", patch, [1 - v, v], [1 - u, u]) / (rows * columns)
    return result


def regions_of(rng: np.random.Generator, count: int) -> Array:
    corner = rng.uniform(-4, 30, (count, 2))
    return np.concatenate([rng.integers(0, 2, (count, 1)), corner, corner + rng.uniform(0.2, 25, (count, 2))], 1)


@pytest.mark.parametrize("ratio", [-1, 2])
@pytest.mark.parametrize("aligned", [False, True])
def test_roi_align_averages_samples(ratio: int, aligned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torchvision_ops, "_MAX_SAMPLES", 4000)  # some regions at a time
    rng = np.random.default_rng(3)
    images, regions = rng.standard_normal((2, 3, 11, 14)), regions_of(rng, 6)
    x = wg.tensor(images, requires_grad=True)
    pooled = torchvision_ops.roi_align(x, wg.tensor(regions), 0.5, 3, 4, ratio, aligned)
    expected = [aligned_mean(images[int(r[0])], r[1:], 0.5, (3, 4), ratio, aligned) for r in regions]
    np.testing.assert_allclose(pooled.detach().numpy(), np.array(expected), rtol=1e-12, atol=1e-12)
    # Pooling is linear: the gradient is the transposed matrix.
    seed, direction = rng.standard_normal(pooled.shape), rng.standard_normal(images.shape)
    pooled.backward(wg.tensor(seed))
    moved = torchvision_ops.roi_align(wg.tensor(direction), wg.tensor(regions), 0.5, 3, 4, ratio, aligned)
    np.testing.assert_allclose((x.grad.numpy() * direction).sum(), (moved.numpy() * seed).sum(), rtol=1e-11)


def test_roi_pool_takes_maxima() -> None:
    rng = np.random.default_rng(4)
    images, regions = rng.standard_normal((2, 3, 11, 14)), regions_of(rng, 6)
    x = wg.tensor(images, requires_grad=True)
    pooled, places = torchvision_ops.roi_pool(x, wg.tensor(regions), 0.5, 3, 4)
    expected, at, gradient = np.zeros((6, 3, 3, 4)), np.full((6, 3, 3, 4), -1), np.zeros(images.shape)
    seed = rng.standard_normal(expected.shape)
    for k, c, i, j in np.ndindex(*expected.shape):
        n, x0, y0, x1, y1 = (
            int(regions[k, 0]),
            *(math.floor(abs(v) * 0.5 + 0.5) * (1 if v > 0 else -1) for v in regions[k, 1:]),
        )
        h, w = max(y1 - y0 + 1, 1) / 3, max(x1 - x0 + 1, 1) / 4
        ys = range(max(math.floor(i * h) + y0, 0), min(math.ceil((i + 1) * h) + y0, 11))
        xs = range(max(math.floor(j * w) + x0, 0), min(math.ceil((j + 1) * w) + x0, 14))
        inside = [(images[n, c, y, x_], y * 14 + x_) for y in ys for x_ in xs]
        if inside:
            expected[k, c, i, j], at[k, c, i, j] = max(inside)
            gradient[n, c].reshape(-1)[at[k, c, i, j]] += seed[k, c, i, j]
    np.testing.assert_array_equal(pooled.detach().numpy(), expected)
    np.testing.assert_array_equal(places.numpy(), at)
    assert places.dtype is wg.int32
    pooled.backward(wg.tensor(seed))
    np.testing.assert_allclose(x.grad.numpy(), gradient, rtol=1e-12)


def test_half_precision_and_no_regions() -> None:
    images = wg.ones(1, 2, 5, 5, dtype=wg.float16)
    none = torchvision_ops.roi_align(images, wg.zeros(0, 5, dtype=wg.float16), 1.0, 2, 3, -1, True)
    assert (tuple(none.shape), none.dtype) == ((0, 2, 2, 3), wg.float16)
    one = torchvision_ops.roi_align(images, wg.tensor([[0.0, 1, 1, 3, 3]], dtype=wg.float16), 1.0, 2, 2, 1, True)
    assert one.dtype is wg.float16
    assert one.tolist() == [[[[1.0, 1.0], [1.0, 1.0]]] * 2]


def test_shapes_are_checked() -> None:
    with pytest.raises(ShapeError, match=r"nms: boxes are of shape \(N, 4\)"):
        torchvision_ops.nms(wg.ones(3, 5), wg.ones(3), 0.5)
    with pytest.raises(ShapeError, match="roi_align: input is of shape"):
        torchvision_ops.roi_align(wg.ones(3, 5, 5), wg.ones(1, 5), 1.0, 2, 2, 2, True)


def test_missing_ops_say_so() -> None:
    with pytest.raises(NotSupported, match=r"torch\.ops\.torchvision\.deform_conv2d"):
        torchvision_ops.OPS["deform_conv2d"](wg.ones(1))


def test_torchvisions_library_is_recognised() -> None:
    """As torchvision, load a library, register functions for autocast and tracers, and call an op."""
    program = """
import weftgrad.torch_compat
import torch
torch.ops.load_library("/packages/torchvision/_C.so")
assert torch.ops.torchvision._cuda_version() == -1
library = torch.library.Library("torchvision", "IMPL")
library.impl(torch.ops.torchvision.roi_align.default, lambda *args: 1 / 0, "Meta")
library.impl("nms", lambda *args: 1 / 0, "AutocastCPU")
boxes = torch.tensor([[0.0, 0, 2, 2], [0, 0, 2, 1.9], [5, 5, 6, 6]])
assert torch.ops.torchvision.nms(boxes, torch.tensor([0.1, 0.9, 0.5]), 0.5).tolist() == [1, 2]
try:
    torch.ops.load_library("/packages/other/_C.so")
except OSError as error:
    assert "linked to PyTorch's libraries" in str(error)
else:
    raise SystemExit("loaded another library")
"""
    process = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False)
    assert process.returncode == 0, process.stderr[-2000:]
