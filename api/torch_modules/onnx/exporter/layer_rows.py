"""Rows for convolutions, pooling, padding, normalization, attention and interpolation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...runtime import dtypes
from .conversion import Conversion, Row, RowResult, Rows
from .dynamic_sizes import Int, Size, as_int
from .expressions import convert_rowwise, reduce_node, reduced_axes
from .graph import Value

__all__ = ["LAYER_ROWS"]


# --- Convolutions ---


def _pads(padding: Sequence[int], rank: int) -> list[int]:
    """Return padding before every dimension, then after it; the op's static has both, or one for both."""
    return [*padding[:rank], *padding[-rank:]]


def _convolution(c: Conversion) -> RowResult:
    kernel = c.shape("weight")[2:]
    operands = [c.input(name) for name in ("input", "weight", "bias") if c.has(name)]
    return c.graph.op(
        "Conv", *operands, kernel_shape=[as_int(n, "the size of a kernel") for n in kernel],
        strides=list(c.static("stride")), pads=_pads(c.static("padding"), len(kernel)),
        dilations=list(c.static("dilation")), group=c.static("groups", 1),
    )  # fmt: skip


def _transposed_convolution(c: Conversion) -> RowResult:
    kernel = [as_int(n, "the size of a kernel") for n in c.shape("weight")[2:]]
    stride, dilation = c.static("stride"), c.static("dilation")
    rank = len(kernel)
    pads = _pads(c.static("padding"), rank)
    sizes = c.shape("grad_output")[2:]
    # Several sizes of the result have an input of this size: `output_padding` says which one it is.
    full = [(n - 1) * s + d * (k - 1) + 1 for n, s, d, k in zip(sizes, stride, dilation, kernel, strict=True)]
    extra = [
        as_int(size - n + a + b, "the output padding")
        for size, n, a, b in zip(c.static("size"), full, pads[:rank], pads[rank:], strict=True)
    ]
    return c.graph.op(
        "ConvTranspose", c.input("grad_output"), c.input("weight"), kernel_shape=kernel, strides=list(stride),
        pads=pads, dilations=list(dilation), output_padding=extra, group=c.static("groups", 1),
    )  # fmt: skip


# --- Windows ---


class _Windows:
    """Windows over the last dimensions, as attributes of a pooling operator."""

    def __init__(self, c: Conversion):
        size = c.static("size")
        self.rank = rank = len(size)
        kernel = c.static("kernel")
        self.is_adaptive = kernel is None
        if kernel is None:
            return
        self.sizes = c.shape()[-rank:]
        dilation = c.static("dilation", (1,) * rank)
        kernels, strides = ([as_int(n, "a window") for n in numbers] for numbers in (kernel, c.static("stride")))
        padding = list(c.static("padding"))
        reaches = [d * (k - 1) + 1 for d, k in zip(dilation, kernels, strict=True)]
        floors = [(n + 2 * p - r) // s + 1 for n, p, r, s in zip(self.sizes, padding, reaches, strides, strict=True)]
        self.kernel = kernels
        self.attributes: dict[str, object] = {"kernel_shape": kernels, "strides": strides, "pads": [*padding, *padding],
                           "ceil_mode": int(tuple(floors) != tuple(size))}  # fmt: skip
        self.dilations = {"dilations": list(dilation)} if set(dilation) != {1} else {}


def _with_batch(c: Conversion, rank: int) -> tuple[Value, bool]:
    """Return the operand with a batch dimension, and whether that was inserted."""
    ndim = len(c.shape())
    if ndim == rank + 2:
        return c.input(), False
    if ndim == rank + 1:
        return c.graph.op("Unsqueeze", c.input(), c.graph.ints([0])), True
    raise c.unsupported(f"pooling in {rank} dimensions of a tensor with {ndim} dimensions")


def _max_pool(c: Conversion) -> RowResult:
    return _max_pool_results(c, has_positions=True)


def _max_pool_values(c: Conversion) -> RowResult:
    return _max_pool_results(c, has_positions=False)


def _max_pool_results(c: Conversion, has_positions: bool) -> RowResult:
    graph, windows = c.graph, _Windows(c)
    if windows.is_adaptive or c.dtype().kind != "f":
        raise c.unsupported("adaptive windows of different sizes, or integers; use max_pool with a kernel size")
    value, is_inserted = _with_batch(c, windows.rank)
    results = graph.node("MaxPool", [value], 1 + has_positions, **windows.attributes, **windows.dilations)
    if has_positions:
        # ONNX counts the positions over the whole tensor, this op in each plane.
        plane = graph.op("ReduceProd", c.sizes(windows.sizes), keepdims=0)
        results = [results[0], graph.op("Mod", results[1], plane)]
    return [graph.op("Squeeze", v, graph.ints([0])) for v in results] if is_inserted else results


def _average_pool(c: Conversion) -> RowResult:
    graph, windows = c.graph, _Windows(c)
    if windows.is_adaptive:
        return _adaptive_average(c, windows.rank)
    value, is_inserted = _with_batch(c, windows.rank)
    kernel = windows.kernel
    divisor = c.static("divisor", 0)
    if divisor:  # the operator divides by the number of elements of a window, with its padding
        value = graph.op("AveragePool", value, **windows.attributes, count_include_pad=1)
        factor = graph.number(float(np.prod(kernel)) / divisor, c.dtype())
        value = graph.op("Mul", value, factor)
    elif set(kernel) != {1} or windows.attributes["strides"] != kernel:
        value = graph.op("AveragePool", value, **windows.attributes, count_include_pad=int(c.static("counted")))
    return graph.op("Squeeze", value, graph.ints([0])) if is_inserted else value


def _adaptive_average(c: Conversion, rank: int) -> RowResult:
    """Multiply each dimension by a matrix of weights: windows of different sizes have no operator."""
    value = c.input()
    for offset, size in enumerate(c.static("size")):
        dim = len(c.shape()) - rank + offset
        old = as_int(c.shape()[dim], "the size of a dimension with adaptive windows")
        weights = np.zeros((size, old))
        for i in range(size):
            first, last = i * old // size, -(-(i + 1) * old // size)
            weights[i, first:last] = 1 / (last - first)
        value = _multiply_dim(c, value, weights, dim)
    return value


def _multiply_dim(c: Conversion, value: Value, weights: np.ndarray, dim: int) -> Value:
    """Multiply a matrix `(new size, old size)` with the elements along a dimension."""
    graph, ndim = c.graph, len(c.shape())
    matrix = graph.constant(np.asarray(weights, np.float32 if c.dtype().itemsize == 2 else c.dtype().numpy), c.dtype())
    if dim == ndim - 2:
        return graph.op("MatMul", matrix, value)
    order = [d for d in range(ndim) if d != dim] + [dim]
    last = value if dim == ndim - 1 else graph.op("Transpose", value, perm=order)
    product = graph.op("MatMul", last, graph.op("Transpose", matrix, perm=[1, 0]))
    return product if dim == ndim - 1 else graph.op("Transpose", product, perm=[order.index(d) for d in range(ndim)])


def _resample(c: Conversion) -> RowResult:
    """Multiply by the matrix that the tables of first elements and weights describe."""
    tables = [c.call.constants.get(c.position(name)) for name in ("first", "weights")]
    if tables[0] is None or tables[1] is None:
        raise c.unsupported("its tables are computed from the inputs")
    first, weights = (table.values() for table in tables if table is not None)
    dim = c.static("dim")
    old = as_int(c.shape()[dim], "the size of a resampled dimension")
    matrix = np.zeros((len(first), old))
    for k, row in enumerate(weights):
        positions = first + k
        is_inside = (positions >= 0) & (positions < old)
        np.add.at(matrix, (np.flatnonzero(is_inside), positions[is_inside]), row[is_inside])
    return c.graph.cast(_multiply_dim(c, c.input(), matrix, dim), c.dtype(), c.results[0].dtype)


def _interpolate(c: Conversion) -> RowResult:
    """Resize, with the coordinates that PyTorch has for each mode."""
    graph = c.graph
    size, scale, mode, align_corners, recompute, antialias = (c.static(name) for name in c.call.record.statics)
    kind = {"nearest": "nearest", "nearest-exact": "nearest", "linear": "linear", "bilinear": "linear",
            "trilinear": "linear", "bicubic": "cubic"}.get(mode)  # fmt: skip
    if kind is None or c.dtype().kind != "f" or (antialias and graph.opset < 18):
        raise c.unsupported(f"mode {mode!r}{' with antialias' * bool(antialias)} of {c.dtype().name}")
    coordinates = "asymmetric" if mode == "nearest" else "align_corners" if align_corners else "half_pixel"
    attributes: dict[str, object] = {"mode": kind, "coordinate_transformation_mode": coordinates}
    if kind == "nearest":
        attributes["nearest_mode"] = "floor" if mode == "nearest" else "round_prefer_ceil"
    elif kind == "cubic":
        attributes["cubic_coeff_a"] = -0.5 if antialias else -0.75
    if antialias:
        attributes.update(antialias=1, exclude_outside=1)
    shape = c.results[0].shape
    if size is None and not recompute and not align_corners:
        factors = scale if isinstance(scale, tuple) else (scale,) * (len(shape) - 2)
        scales = graph.constant(np.array([1.0, 1.0, *factors], np.float32))
        return graph.op("Resize", c.input(), "", scales, **attributes)
    return graph.op("Resize", c.input(), "", "", c.sizes(shape), **attributes)


# --- Padding ---

_PAD_MODES = {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}


def _pad(c: Conversion) -> RowResult:
    graph, mode = c.graph, _PAD_MODES[c.static("mode")]
    before, after = c.static("before"), c.static("after")
    if mode == "wrap" and graph.opset < 19:
        return _pad_circular(c, before, after)
    pads = c.sizes([*before, *after])
    operands = [c.input("input"), pads]
    if c.has("fill"):
        operands.append(graph.op("Reshape", c.cast_input("fill", c.dtype()), graph.ints([])))
    return graph.op("Pad", *operands, mode=mode)


def _pad_circular(c: Conversion, before: Sequence[Int], after: Sequence[Int]) -> RowResult:
    """Concatenate parts of both ends: the mode `wrap` exists since opset 19."""
    graph, value = c.graph, c.input("input")
    last = np.iinfo(np.int64).max
    for dim, (a, b) in enumerate(zip(before, after, strict=True)):
        if a < 0 or b < 0:
            raise c.unsupported("circular padding that crops")
        parts = []
        if a != 0:
            parts.append(graph.op("Slice", value, graph.shape([-a]), graph.ints([last]), graph.ints([dim])))
        parts.append(value)
        if b != 0:
            parts.append(graph.op("Slice", value, graph.ints([0]), graph.shape([b]), graph.ints([dim])))
        value = graph.op("Concat", *parts, axis=dim) if len(parts) > 1 else value
    return value


# --- Normalization ---


def _layer_norm(c: Conversion) -> RowResult:
    graph, dtype = c.graph, c.dtype()
    names = [name for name in ("weight", "bias") if c.has(name)]
    if any(c.dtype(name) is not dtype for name in names) or dtype is not c.results[0].dtype:
        return convert_rowwise(c)
    shape = [as_int(n, "a normalized size") for n in c.static("normalized_shape")]
    number_type = np.float32 if dtype.itemsize == 2 else dtype.numpy
    weight = c.input("weight") if c.has("weight") else graph.constant(np.ones(shape, number_type), dtype)
    operands = [c.input(), weight, *([c.input("bias")] if c.has("bias") else [])]
    return graph.op("LayerNormalization", *operands, axis=-len(shape), epsilon=float(c.constant_number("eps")))


def _softmax(op_type: str) -> Row:
    def row(c: Conversion) -> RowResult:
        dtype = c.results[0].dtype
        return c.graph.op(op_type, c.cast_input(0, dtype), axis=c.static("dim"))

    return row


def _group_norm(c: Conversion) -> RowResult:
    """Instance norm of the groups as channels, then weight and bias of the channels."""
    graph, shape, dtype = c.graph, c.shape(), c.dtype()
    if not c.is_tensor("weight") or not c.is_tensor("bias"):
        raise c.unsupported("its weights are numbers")
    groups = as_int(c.static("groups", None) or c.number("groups"), "the number of groups")  # type: ignore[arg-type]
    flat = graph.op("Reshape", c.input(), graph.ints([0, groups, -1]))
    number_type = np.float32 if dtype.itemsize == 2 else dtype.numpy
    one, zero = (graph.constant(np.full(groups, v, number_type), dtype) for v in (1, 0))
    normal = graph.op("InstanceNormalization", flat, one, zero, epsilon=float(c.constant_number("eps")))
    value = graph.op("Reshape", normal, c.sizes(shape))
    axes = graph.ints(range(1, len(shape) - 1))
    for op_type, name in (("Mul", "weight"), ("Add", "bias")):
        factor = c.cast_input(name, dtype)
        value = graph.op(op_type, value, graph.op("Unsqueeze", factor, axes) if len(shape) > 2 else factor)
    return [value]


def _moments(c: Conversion) -> RowResult:
    """Mean, variance and 1 / deviation in two passes, which lose no digits."""
    graph = c.graph
    axes, keepdim = reduced_axes(c)
    result = c.results[0].dtype
    value = c.cast_input("input", result)
    mean = reduce_node(graph, "ReduceMean", value, axes, True)
    centred = graph.op("Sub", value, mean)
    variance = reduce_node(graph, "ReduceMean", graph.op("Mul", centred, centred), axes, keepdim)
    shifted = graph.op("Add", variance, graph.number(c.constant_number("eps"), result))
    if not keepdim and axes:
        mean = graph.op("Squeeze", mean, graph.ints(axes))
    return [mean, variance, graph.op("Reciprocal", graph.op("Sqrt", shifted))]


# --- Attention ---


def _attention(c: Conversion) -> RowResult:
    """softmax(scale * query @ key.T + mask) @ value; fully masked rows give 0."""
    if c.static("dropping", False):
        raise c.unsupported("it drops attention weights; export the model in evaluation mode")
    graph, dtype = c.graph, c.dtype("query")
    query, key, value = (c.cast_input(name, dtype) for name in ("query", "key", "value"))
    heads, shared_heads = c.shape("query")[1], c.shape("key")[1]
    if heads != shared_heads:
        key, value = (_repeat_heads(c, v, name, heads) for v, name in ((key, "key"), (value, "value")))
    scale = graph.number(c.constant_number("scale"), dtype)
    keys = graph.op("Transpose", key, perm=[0, 1, 3, 2])
    scores = graph.op("MatMul", graph.op("Mul", query, scale), keys)
    mask = _causal_mask(c) if c.static("is_causal", False) else None
    is_added = c.has("mask") and c.dtype("mask") is not dtypes.bool_
    if c.has("mask") and not is_added:
        own = c.input("mask")
        mask = own if mask is None else graph.op("And", mask, own)
    if is_added:
        scores = graph.op("Add", scores, c.cast_input("mask", dtype))
    low = graph.number(-np.inf, dtype)
    if mask is not None:
        scores = graph.op("Where", mask, scores, low)
    weights = graph.op("Softmax", scores, axis=-1)
    if is_added:
        mask = graph.op("Greater", reduce_node(graph, "ReduceMax", scores, [3], True), low)
    if c.has("mask") and mask is not None:
        weights = graph.op("Where", mask, weights, graph.number(0, dtype))
    return [graph.op("MatMul", weights, value)]


def _repeat_heads(c: Conversion, value: Value, name: str, heads: Int) -> Value:
    batch, shared, length, features = c.shape(name)
    repeats = heads // shared
    graph = c.graph
    wide = graph.op("Unsqueeze", value, graph.ints([2]))
    wide = graph.op("Expand", wide, c.sizes([batch, shared, repeats, length, features]))
    return graph.op("Reshape", wide, c.sizes([batch, heads, length, features]))


def _causal_mask(c: Conversion) -> Value:
    """Return true where a key is not later than the query, both counted from the first."""
    graph = c.graph
    rows, columns = c.shape("query")[2], c.shape("key")[2]
    if not isinstance(rows, Size) and not isinstance(columns, Size):
        return graph.constant(np.tril(np.ones((rows, columns), np.bool_)))
    zero, one = graph.number(0, dtypes.int64), graph.number(1, dtypes.int64)
    ends = [graph.op("Squeeze", c.sizes([n]), graph.ints([0])) for n in (rows, columns)]
    row_index, column_index = (graph.op("Range", zero, end, one) for end in ends)
    return graph.op("GreaterOrEqual", graph.op("Unsqueeze", row_index, graph.ints([1])), column_index)


LAYER_ROWS: Rows = {
    "convolution": _convolution, "convolution_input": _transposed_convolution, "max_windows": _max_pool,
    "max_window_values": _max_pool_values,
    "average_windows": _average_pool, "resample": _resample, "interpolate": _interpolate, "pad_copy": _pad,
    "layer_norm": _layer_norm, "softmax": _softmax("Softmax"), "log_softmax": _softmax("LogSoftmax"),
    "normalize_groups": _group_norm, "moments": _moments, "attention": _attention,
}  # fmt: skip
