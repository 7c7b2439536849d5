"""The ops that torchvision calls as `torch.ops.torchvision.NAME`: non-maximum suppression and pooling of regions.

torchvision's Python code runs unchanged; its compiled library, which is linked to PyTorch, is not loaded. Pooling runs
the kernels of grid sampling and of gathers, which have gradients. Of `nms` the overlaps are computed on the device and
the scan, which is sequential, on the host.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from ..creation.factories import zeros
from ..creation.from_data import tensor
from ..creation.sequences import arange
from ..layer_functions.grid_sampling import grid_sample
from ..pointwise.comparison import where
from ..pointwise.type_info import promote_types
from ..runtime import dtypes
from ..runtime.errors import ShapeError
from ..runtime.tensor import Tensor
from ..shape.joining import cat, stack
from .placeholders import placeholder_error

__all__ = ["OPS", "nms", "roi_align", "roi_pool"]

_MAX_SAMPLES = 1 << 25
"""Elements that pooling holds at once, by taking some of the regions at a time."""
_NMS_ROWS = 1024
"""Boxes whose overlaps with all others `nms` computes at once."""


def nms(dets: Tensor, scores: Tensor, iou_threshold: float) -> Tensor:
    """Return the indices of boxes that no box of a higher score overlaps, in decreasing order of scores.

    Args:
        dets: Boxes (x1, y1, x2, y2), of shape (N, 4).
        scores: Scores of shape (N,).
        iou_threshold: Boxes overlap if their intersection, divided by their union, is above this.

    Returns:
        int64 tensor of at most N indices.

    Raises:
        ShapeError: The shapes do not fit.
    """
    if dets.ndim != 2 or dets.shape[1] != 4 or tuple(scores.shape) != (dets.shape[0],):
        raise ShapeError(
            f"nms: boxes are of shape (N, 4) and scores of shape (N,), not {tuple(dets.shape)} and "
            f"{tuple(scores.shape)}"
        )
    boxes = dets.detach().to(promote_types(dets.dtype, dtypes.float32))
    order = scores.detach().argsort(dim=0, descending=True, stable=True)
    boxes = boxes[order]
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    count = len(order)
    is_suppressed = np.zeros(count, bool)
    selected = []
    for start in range(0, count, _NMS_ROWS):
        rows = slice(start, start + _NMS_ROWS)
        overlaps = _overlaps(boxes[rows], areas[rows], boxes[start:], areas[start:], iou_threshold).numpy()
        for row, overlap in enumerate(overlaps):
            if not is_suppressed[start + row]:
                selected.append(start + row)
                is_suppressed[start + row + 1 :] |= overlap[row + 1 :]
    return order[tensor(selected, dtype=dtypes.int64, device=order.device)]


def _overlaps(boxes: Tensor, areas: Tensor, others: Tensor, other_areas: Tensor, threshold: float) -> Tensor:
    """Return whether the intersection over union of boxes and others is above the threshold, as a matrix."""
    low = boxes[:, None, :2].maximum(others[:, :2])
    high = boxes[:, None, 2:].minimum(others[:, 2:])
    size = (high - low).clamp(min=0)
    intersection = size[..., 0] * size[..., 1]
    return intersection / (areas[:, None] + other_areas - intersection) > threshold


def roi_align(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int, sampling_ratio: int,
    aligned: bool,
) -> Tensor:  # fmt: skip
    """Average bilinear samples in each bin of regions (He et al. 2017, "Mask R-CNN").

    Args:
        input: Images of shape (N, C, H, W).
        rois: Regions (image, x1, y1, x2, y2), of shape (K, 5).
        spatial_scale: Factor from coordinates of `rois` to pixels.
        pooled_height: Bins along y.
        pooled_width: Bins along x.
        sampling_ratio: Samples of a bin along each dimension; up to 0: one for each pixel that the bin begins.
        aligned: Shift the regions by half a pixel, and let them be smaller than one pixel.

    Returns:
        Tensor of shape (K, C, pooled_height, pooled_width), which has a gradient with respect to `input`.

    Raises:
        ShapeError: The shapes do not fit.
    """
    _check("roi_align", input, rois)
    images = input.to(promote_types(input.dtype, dtypes.float32))
    regions = rois.detach().to(images.dtype)
    x, x_weight = _samples(
        regions[:, 1], regions[:, 3], spatial_scale, pooled_width, sampling_ratio, aligned, input.shape[3]
    )
    y, y_weight = _samples(
        regions[:, 2], regions[:, 4], spatial_scale, pooled_height, sampling_ratio, aligned, input.shape[2]
    )
    channels, per_row, per_column = input.shape[1], x.shape[-1], y.shape[-1]
    samples_per_region = max(1, channels * pooled_height * per_column * pooled_width * per_row)
    results, places = [], []
    for image, group in _groups(rois, max(1, _MAX_SAMPLES // samples_per_region)):
        index = tensor(group, dtype=dtypes.int64, device=input.device)
        shape = (len(group), pooled_height, per_column, pooled_width, per_row)
        grid_x = x[index].reshape(len(group), 1, 1, pooled_width, per_row).expand(shape)
        grid_y = y[index].reshape(len(group), pooled_height, per_column, 1, 1).expand(shape)
        grid = stack([grid_x, grid_y], dim=-1).reshape(1, len(group) * pooled_height * per_column, -1, 2)
        sampled = grid_sample(images[image : image + 1], grid, "bilinear", "border", align_corners=True)
        weight = (
            y_weight[index].reshape(len(group), pooled_height, per_column, 1, 1)
            * x_weight[index].reshape(len(group), 1, 1, pooled_width, per_row)
        )  # fmt: skip
        results.append((sampled.reshape(channels, *shape) * weight).sum((3, 5)).transpose(0, 1))
        places += group
    return _assemble(results, places, input, pooled_height, pooled_width)


def _samples(
    first: Tensor, last: Tensor, scale: float, bins: int, ratio: int, aligned: bool, size: int
) -> tuple[Tensor, Tensor]:
    """Place the samples along a dimension of `size` pixels.

    Returns:
        Positions from -1 to 1, as `grid_sample` takes them, and weights, both of shape (K, bins, samples).
    """
    start = first * scale - (0.5 if aligned else 0.0)
    length = last * scale - (0.5 if aligned else 0.0) - start
    if not aligned:
        length = length.clamp(min=1)
    step = length / bins
    counts = length * 0 + ratio if ratio > 0 else step.ceil()
    most = max(1, int(counts.max().item())) if len(counts) else 1
    sample = arange(most, dtype=first.dtype, device=first.device)
    counts = counts[:, None, None]
    step = step[:, None, None]
    bin_start = start[:, None, None] + arange(bins, dtype=first.dtype, device=first.device)[:, None] * step
    at = bin_start + (sample + 0.5) * step / counts.clamp(min=1)
    is_inside = (sample < counts) & (at >= -1) & (at <= size)
    weight = where(is_inside, 1 / counts.clamp(min=1), 0.0)
    return at.clamp(0, size - 1) * (2 / max(size - 1, 1)) - 1, weight


def roi_pool(
    input: Tensor, rois: Tensor, spatial_scale: float, pooled_height: int, pooled_width: int
) -> tuple[Tensor, Tensor]:
    """Return the maxima of the bins of regions (Girshick 2015, "Fast R-CNN").

    Args:
        input: Images of shape (N, C, H, W).
        rois: Regions (image, x1, y1, x2, y2), of shape (K, 5); ends are inside.
        spatial_scale: Factor from coordinates of `rois` to pixels, to which they are rounded.
        pooled_height: Bins along y.
        pooled_width: Bins along x.

    Returns:
        The maxima, of shape (K, C, pooled_height, pooled_width), 0 where a bin is empty, and their places in the image,
        y * W + x as int32, -1 where a bin is empty. The gradient goes to the first maximum.

    Raises:
        ShapeError: The shapes do not fit.
    """
    _check("roi_pool", input, rois)
    channels, height, width = input.shape[1:]
    regions = rois.detach()
    x_first, x_last = _bin_limits(regions[:, 1], regions[:, 3], spatial_scale, pooled_width, width)
    y_first, y_last = _bin_limits(regions[:, 2], regions[:, 4], spatial_scale, pooled_height, height)
    columns = max(1, int((x_last - x_first).max().item())) if len(rois) else 1
    rows = max(1, int((y_last - y_first).max().item())) if len(rois) else 1
    samples_per_region = max(1, channels * pooled_height * rows * pooled_width * columns)
    results, arguments, places = [], [], []
    for image, group in _groups(rois, max(1, _MAX_SAMPLES // samples_per_region)):
        index = tensor(group, dtype=dtypes.int64, device=input.device)
        x = x_first[index][:, None, :, None, None] + arange(columns, device=input.device)
        y = y_first[index][:, :, None, None, None] + arange(rows, device=input.device)[:, None]
        is_inside = (x < x_last[index][:, None, :, None, None]) & (y < y_last[index][:, :, None, None, None])
        place = (y.clamp(max=height - 1) * width + x.clamp(max=width - 1)).flatten(3)  # (K, PH, PW, rows * columns)
        values = input[image].reshape(channels, -1)[:, place.reshape(-1)].reshape(channels, *place.shape)
        values = values.masked_fill(is_inside.flatten(3).logical_not(), float("-inf"))
        largest, at = values.max(-1)
        is_empty = largest == float("-inf")
        results.append(largest.masked_fill(is_empty, 0.0).transpose(0, 1))
        argmax_rows = place.expand(channels, *place.shape).gather(-1, at.unsqueeze(-1)).squeeze(-1)
        arguments.append(argmax_rows.masked_fill(is_empty, -1).transpose(0, 1))
        places += group
    output = _assemble(results, places, input, pooled_height, pooled_width)
    argmax = _assemble(arguments, places, input, pooled_height, pooled_width)
    return output, argmax.to(dtypes.int32)


def _bin_limits(first: Tensor, last: Tensor, scale: float, bins: int, size: int) -> tuple[Tensor, Tensor]:
    """Return the first pixel of each bin and the one after its last, both of shape (K, bins) in int64."""
    start, end = _round_half_away(first * scale), _round_half_away(last * scale)
    step = (end - start + 1).clamp(min=1) / bins
    bin_index = arange(bins, dtype=first.dtype, device=first.device)
    low = (bin_index * step[:, None]).floor() + start[:, None]
    high = ((bin_index + 1) * step[:, None]).ceil() + start[:, None]
    return low.clamp(0, size).to(dtypes.int64), high.clamp(0, size).to(dtypes.int64)


def _round_half_away(x: Tensor) -> Tensor:
    return (x.abs() + 0.5).floor().copysign(x)


def _check(name: str, input: Tensor, rois: Tensor) -> None:
    if input.ndim != 4 or rois.ndim != 2 or rois.shape[1] != 5:
        raise ShapeError(
            f"{name}: input is of shape (N, C, H, W) and rois of shape (K, 5), not {tuple(input.shape)} and "
            f"{tuple(rois.shape)}"
        )


def _groups(rois: Tensor, most: int) -> Iterator[tuple[int, list[int]]]:
    """Yield an image and at most `most` of its regions."""
    by_image: dict[int, list[int]] = {}
    for region, image in enumerate(rois[:, 0].tolist()):
        by_image.setdefault(int(image), []).append(region)
    for image, regions in by_image.items():
        for start in range(0, len(regions), most):
            yield image, regions[start : start + most]


def _assemble(results: list[Tensor], places: list[int], input: Tensor, height: int, width: int) -> Tensor:
    """Join the results of groups in the order of the regions."""
    if not results:
        return zeros(0, input.shape[1], height, width, dtype=input.dtype, device=input.device)
    inverse = np.argsort(np.array(places))
    joined = cat(results)[tensor(inverse, device=input.device)]
    return joined.to(input.dtype) if joined.is_floating_point() else joined


def _missing(name: str) -> Callable[..., Any]:
    """Return a function that raises `NotSupported`."""

    def op(*args: object, **kwargs: object) -> Any:
        raise placeholder_error(f"torch.ops.torchvision.{name}", "Use roi_align, roi_pool or torch's functions.")

    return op


_MISSING = (
    "deform_conv2d", "ps_roi_align", "ps_roi_pool", "qnms", "qroi_align", "_deform_conv2d_backward",
    "_ps_roi_align_backward", "_ps_roi_pool_backward", "_roi_align_backward", "_roi_pool_backward",
)  # fmt: skip
OPS: dict[str, Callable[..., Any]] = {
    "nms": nms,
    "roi_align": roi_align,
    "roi_pool": roi_pool,
    "_cuda_version": lambda: -1,
    **{name: _missing(name) for name in _MISSING},
}
"""The ops by name. `_cuda_version` is that of a build without CUDA; torchvision looks up names of missing ops, too."""
