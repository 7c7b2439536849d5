"""Operators of layers: convolutions, pooling, padding, normalization, resizing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weftgrad as wg

from ..._generated import ops
from ...nn import functional as F
from ...runtime.tensor import Tensor
from .nodes import Node, NodeFunction
from .resizing import resize

__all__ = ["LAYER_OPS"]

_CONVOLUTIONS = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED = {1: F.conv_transpose1d, 2: F.conv_transpose2d, 3: F.conv_transpose3d}
_MAX_POOLS = {1: F.max_pool1d, 2: F.max_pool2d, 3: F.max_pool3d}
_AVERAGE_POOLS = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}


def _rank(node: Node, functions: dict[int, Any]) -> int:
    rank = node[0].ndim - 2
    if rank not in functions:
        raise node.unsupported(f"{rank} spatial dimensions")
    return rank


def _pads(
    node: Node, sizes: Sequence[int], kernel: Sequence[int], strides: Sequence[int], dilations: Sequence[int]
) -> tuple[list[int], list[int]]:
    """Return the padding before and after each spatial dimension, from `pads` or `auto_pad`."""
    rank = len(sizes)
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("NOTSET", ""):
        pads = node.attribute("pads", [0] * (2 * rank))
        return list(pads[:rank]), list(pads[rank:])
    if mode == "VALID":
        return [0] * rank, [0] * rank
    before, after = [], []
    for size, k, s, d in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // s) - 1) * s + d * (k - 1) + 1 - size)
        small, large = total // 2, total - total // 2
        before.append(large if mode == "SAME_LOWER" else small)
        after.append(small if mode == "SAME_LOWER" else large)
    return before, after


def _pad_ends(x: Tensor, before: Sequence[int], after: Sequence[int], value: float) -> Tensor:
    """Pad the last dimensions with a number."""
    pairs = [n for b, a in zip(reversed(before), reversed(after), strict=True) for n in (b, a)]
    return F.pad(x, pairs, value=value)


def _conv(node: Node) -> Tensor:
    x, weight = node[0], node[1]
    rank = _rank(node, _CONVOLUTIONS)
    strides, dilations = node.attribute("strides", [1] * rank), node.attribute("dilations", [1] * rank)
    before, after = _pads(node, x.shape[2:], weight.shape[2:], strides, dilations)
    if before != after:
        x, before = _pad_ends(x, before, after, 0.0), [0] * rank
    return _CONVOLUTIONS[rank](x, weight, node.get(2), strides, before, dilations, node.attribute("group", 1))


def _conv_transpose(node: Node) -> Tensor:
    x, weight = node[0], node[1]
    rank = _rank(node, _TRANSPOSED)
    strides, dilations = node.attribute("strides", [1] * rank), node.attribute("dilations", [1] * rank)
    extra, group = node.attribute("output_padding", [0] * rank), node.attribute("group", 1)
    kernel = weight.shape[2:]
    full = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(x.shape[2:], strides, dilations, kernel, strict=True)]
    shape = node.attribute("output_shape", None)
    mode = node.attribute("auto_pad", "NOTSET")
    if mode in ("SAME_UPPER", "SAME_LOWER") and shape is None:
        shape = [n * s for n, s in zip(x.shape[2:], strides, strict=True)]
    if shape is not None:
        totals = [f + e - n for f, e, n in zip(full, extra, shape, strict=True)]
        small, large = [t // 2 for t in totals], [t - t // 2 for t in totals]
        before, after = (large, small) if mode != "SAME_UPPER" else (small, large)
    else:
        pads = node.attribute("pads", [0] * (2 * rank))
        before, after = list(pads[:rank]), list(pads[rank:])
    function = _TRANSPOSED[rank]
    if before == after and min(before) >= 0:
        return function(x, weight, node.get(2), strides, before, extra, group, dilations)
    whole = function(x, weight, node.get(2), strides, 0, extra, group, dilations)
    return _pad_ends(whole, [-n for n in before], [-n for n in after], 0.0)


def _window_attributes(node: Node, rank: int) -> tuple[list[int], list[int], list[int], list[int], list[int]]:
    """Return kernel, strides, dilations, and padding before and after."""
    kernel = node.attribute("kernel_shape")
    strides, dilations = node.attribute("strides", [1] * rank), node.attribute("dilations", [1] * rank)
    before, after = _pads(node, node[0].shape[2:], kernel, strides, dilations)
    return kernel, strides, dilations, before, after


def _max_pool(node: Node) -> list[Tensor | None]:
    rank = _rank(node, _MAX_POOLS)
    kernel, strides, dilations, before, after = _window_attributes(node, rank)
    x, wants_indices = node[0], len(node.output_names) > 1
    if before != after or any(2 * p > k for p, k in zip(before, kernel, strict=True)):
        if wants_indices:
            raise node.unsupported("positions with a padding that differs at both ends")
        x, before = _pad_ends(x, before, after, float("-inf")), [0] * rank
    is_ceil = bool(node.attribute("ceil_mode", 0))
    result = _MAX_POOLS[rank](x, kernel, strides, before, dilations, is_ceil, return_indices=wants_indices)
    if isinstance(result, Tensor):
        return [result]
    values, indices = result
    if node.attribute("storage_order", 0):
        raise node.unsupported("positions in column-major order")
    plane = 1
    for n in x.shape[2:]:
        plane *= n
    planes = wg.arange(x.shape[0] * x.shape[1], device=x.device).reshape(x.shape[0], x.shape[1], *(1,) * rank)
    return [values, indices + planes * plane]  # ONNX counts over the whole tensor


def _average_pool(node: Node) -> Tensor:
    rank = _rank(node, _AVERAGE_POOLS)
    kernel, strides, dilations, before, after = _window_attributes(node, rank)
    if set(dilations) != {1}:
        raise node.unsupported("average pooling with dilations")
    x, counts_padding = node[0], bool(node.attribute("count_include_pad", 0))
    is_ceil, pool = bool(node.attribute("ceil_mode", 0)), _AVERAGE_POOLS[rank]
    if before == after and all(2 * p <= k for p, k in zip(before, kernel, strict=True)):
        return pool(x, kernel, strides, before, is_ceil, counts_padding)
    padded = _pad_ends(x, before, after, 0.0)
    average = pool(padded, kernel, strides, 0, is_ceil, True)
    if counts_padding:
        return average
    inside = _pad_ends(wg.ones(1, 1, *x.shape[2:], dtype=x.dtype, device=x.device), before, after, 0.0)
    return average / pool(inside, kernel, strides, 0, is_ceil, True)


def _global_average(node: Node) -> Tensor:
    return node[0].mean(tuple(range(2, node[0].ndim)), True)


def _global_max(node: Node) -> Tensor:
    return node[0].amax(tuple(range(2, node[0].ndim)), True)


_PAD_MODES = {"constant": "constant", "reflect": "reflect", "edge": "replicate", "wrap": "circular"}


def _pad(node: Node) -> Tensor:
    x = node[0]
    pads = node.integers(1, "pads")
    axes = node.integers(3, default=list(range(x.ndim)))
    before, after = [0] * x.ndim, [0] * x.ndim
    for i, axis in enumerate(axes):
        before[axis], after[axis] = pads[i], pads[len(axes) + i]
    mode = _PAD_MODES[node.attribute("mode", "constant")]
    fill = None
    if mode == "constant":
        fill = (
            node[2].reshape(()).to(x.dtype)
            if node.has(2)
            else wg.full((), node.attribute("value", 0.0), dtype=x.dtype, device=x.device)
        )
    return ops.pad_copy(x, fill, tuple(before), tuple(after), mode)


# --- Normalization ---


def _batch_norm(node: Node) -> Tensor:
    """Use the stored statistics, or in training mode those of the batch, as PyTorch's layers do."""
    if len(node.output_names) > 1:
        raise node.unsupported("outputs with new statistics")
    x, weight, bias, mean, variance = (node[i] for i in range(5))
    is_training = node.is_training or bool(node.attribute("training_mode", 0))
    momentum = 1 - node.attribute("momentum", 0.9)
    return F.batch_norm(x, mean, variance, weight, bias, is_training, momentum, node.attribute("epsilon", 1e-5))


def _instance_norm(node: Node) -> Tensor:
    return F.instance_norm(node[0], weight=node[1], bias=node[2], eps=node.attribute("epsilon", 1e-5))


def _layer_norm(node: Node) -> list[Tensor | None]:
    x = node[0]
    axis, eps = node.attribute("axis", -1) % x.ndim, node.attribute("epsilon", 1e-5)
    result = F.layer_norm(x, x.shape[axis:], node[1], node.get(2), eps)
    if len(node.output_names) == 1:
        return [result]
    dims = tuple(range(axis, x.ndim))
    mean = x.mean(dims, True)
    return [result, mean, ((x - mean).square().mean(dims, True) + eps).rsqrt()]


def _rms_norm(node: Node) -> Tensor:
    x = node[0]
    axis = node.attribute("axis", -1) % x.ndim
    return F.rms_norm(x, x.shape[axis:], node[1], node.attribute("epsilon", 1e-5))


def _group_norm(node: Node) -> Tensor:
    x, scale, bias = node[0], node[1], node[2]
    groups = node.attribute("num_groups")
    if scale.shape[0] == groups != x.shape[1]:  # opset 18: one for each group
        scale, bias = (v.repeat_interleave(x.shape[1] // groups) for v in (scale, bias))
    return F.group_norm(x, groups, scale, bias, node.attribute("epsilon", 1e-5))


def _local_response_norm(node: Node) -> Tensor:
    alpha, beta, k = node.attribute("alpha", 1e-4), node.attribute("beta", 0.75), node.attribute("bias", 1.0)
    return F.local_response_norm(node[0], node.attribute("size"), alpha, beta, k)


def _lp_normalization(node: Node) -> Tensor:
    return F.normalize(node[0], node.attribute("p", 2), node.attribute("axis", -1))


LAYER_OPS: dict[str, NodeFunction] = {
    "AveragePool": _average_pool, "BatchNormalization": _batch_norm, "Conv": _conv, "ConvTranspose": _conv_transpose,
    "GlobalAveragePool": _global_average, "GlobalMaxPool": _global_max, "GroupNormalization": _group_norm,
    "InstanceNormalization": _instance_norm, "LRN": _local_response_norm, "LayerNormalization": _layer_norm,
    "LpNormalization": _lp_normalization, "MaxPool": _max_pool, "Pad": _pad, "RMSNormalization": _rms_norm,
    "Resize": resize, "Upsample": resize,
}  # fmt: skip
"""Functions by operator."""
