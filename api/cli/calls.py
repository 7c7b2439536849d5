"""Sample calls of every single op, for `weftgrad prebuild` and `weftgrad compile`.

They cover the tensor layouts that programs use most. A call is a function without arguments. It runs inside
`samples.capture_steps`, which lists the launches and computes nothing, so most tensors stay uninitialised. Calls of
public functions that combine several ops are in `function_calls`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import prod

import numpy as np

from .. import autograd
from ..codegen.loader import op_from_mapping
from ..codegen.model import Op
from ..creation.factories import empty
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dispatch import call
from ..runtime.dtypes import DType
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from .samples import operand_list, sample_arguments
from .shape_calls import PLANS, shape_calls
from .types import Call, MakeTensor, Shape

__all__ = ["NARROW_SHAPES", "SHAPES", "blank", "call_with_backward", "op_calls"]

# A size for the scalar path, a larger one that the calling thread still computes, and one for the thread pool.
SHAPES = ((5, 7), (300, 24), (260, 260))
# Contractions with few rows or columns, and rows shorter than a vector register, have kernels of their own.
NARROW_SHAPES = ((18, 12), (300, 12))
_MORE_SHAPES = {
    "contraction": ((64, 10), (1, 300)), "rowwise": ((64, 10),), "reduction": NARROW_SHAPES, "pointwise": NARROW_SHAPES,
    "sort": ((20000,), (1, 40000)), "scan": ((4100, 18), (1, 70000)),
}  # fmt: skip
# For ops that take only one class of dtypes: the dtypes to use instead of a floating one.
_STAND_INS = {"integer": (dtypes.int64,), "integral": (dtypes.bool_, dtypes.int64), "bool": (dtypes.bool_,)}


def blank(device: Device, *shape: int, dtype: DType = dtypes.float32, grad: bool = False) -> Tensor:
    """Return an uninitialised tensor."""
    return empty(shape, dtype=dtype, device=device, requires_grad=grad)


def op_calls(record: OpRecord, device: Device, value_dtypes: Sequence[DType]) -> Iterator[Call]:
    """Yield calls of one op and of its first derivatives."""
    op = op_from_mapping(record.spec)
    for dtype in value_dtypes:
        op_dtypes = _STAND_INS.get(op.dtypes, (dtype,)) if dtype.kind == "f" or op.dtypes == "bool" else (dtype,)
        for op_dtype in op_dtypes:
            if record.kind == "index":
                yield from _index_calls(record, device, op_dtype)
            elif record.kind == "window":
                yield from _window_calls(record, device, op_dtype)
            elif record.detail.get("plan") in PLANS:
                yield from shape_calls(record, blank, call_with_backward, device, op_dtype)
            elif record.name.startswith("attention"):
                yield from _attention_calls(record, device, op_dtype)
            elif record.kind == "custom":
                yield from _convolution_calls(record, device, op_dtype)
            else:
                yield from _layout_calls(record, op, device, op_dtype)


def call_with_backward(
    record: OpRecord, operands: Sequence[object], statics: tuple[object, ...], *, with_sum: bool = False
) -> None:
    """Call an op, and its derivative if an operand requires grad.

    Args:
        record: The op.
        operands: Its operands.
        statics: Its static arguments.
        with_sum: Call the derivative a second time with the gradient of a sum: one number, expanded to every element.
    """
    result = call(record, operands, statics)
    output = result[0] if isinstance(result, tuple) else result
    inputs = [t for t in operands if isinstance(t, Tensor) and t.needs_grad]
    if inputs and output.needs_grad:
        _backward(output, inputs)
        if with_sum:
            _backward(call(registry["sum"], (output,), (None, False, None)), inputs)


def _backward(output: Tensor, inputs: list[Tensor]) -> None:
    autograd.grad(output, inputs, grad_outputs=output.detach(), allow_unused=True, retain_graph=True)


def _make_call(record: OpRecord, arguments: Mapping[str, object], op: Op, *, with_sum: bool = False) -> Call:
    statics = tuple(arguments[n] for n in record.statics)
    return partial(call_with_backward, record, operand_list(op, arguments), statics, with_sum=with_sum)


def _layout_calls(record: OpRecord, op: Op, device: Device, dtype: DType) -> Iterator[Call]:
    """Yield calls on contiguous tensors and along each dimension; for operators also on broadcast rows and numbers."""
    rng = np.random.default_rng(0)
    for shape in (*SHAPES, *_MORE_SHAPES.get(record.kind, ())):
        for grad in (False, True) if dtype.kind == "f" and op.grad != "none" else (False,):
            named = sample_arguments(op, device, dtype, rng, grad=grad, shape=shape)
            yield _make_call(record, named, op, with_sum=True)
            if op.operator:
                for override in _broadcast_variants(op, device, dtype, shape, grad):
                    yield _make_call(record, named | override, op)
            for override in _static_variants(record, op, shape):
                yield _make_call(record, named | override, op, with_sum=True)


def _broadcast_variants(op: Op, device: Device, dtype: DType, shape: Shape, grad: bool) -> Iterator[dict[str, object]]:
    """Replace one operand at a time by a row, by a number and, where rows are short, by a column."""
    values = [p.name for p in op.operands if p.role == "tensor" and p.type == "value"]
    if len(values) < 2:
        return
    for name in values:
        yield {name: blank(device, shape[-1], dtype=dtype, grad=grad)}
        yield {name: 0.5 if dtype.kind == "f" else dtype.kind != "b"}
        if shape in NARROW_SHAPES:
            yield {name: blank(device, shape[0], 1, dtype=dtype, grad=grad)}


def _has_full_operands(op: Op) -> bool:
    """Return True if all tensor operands have the shape of the result."""
    return all(p.scope == "full" for p in op.operands if p.is_tensor)


def _static_variants(record: OpRecord, op: Op, shape: Shape) -> Iterator[dict[str, object]]:
    """Yield dimensions for reductions and row ops, and target dtypes for copies."""
    names = {p.name: p.annotation for p in op.statics}
    if record.kind == "reduction" and "dim" in names:
        yield {"dim": 0}
        yield {"dim": 1}
    elif "dim" in names and (record.kind in ("sort", "scan") or (record.kind == "rowwise" and _has_full_operands(op))):
        yield {"dim": 0}
    elif record.name == "copy":
        for target in (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_):
            yield {"dtype": target}


# Index ops ------------------------------------------------------------------------------------------------------------


def _index_calls(record: OpRecord, device: Device, dtype: DType) -> Iterator[Call]:
    """Yield calls that index vectors and matrices along each dimension, and along both merged into one."""
    name = record.name
    for rows, columns in (SHAPES[0], SHAPES[-1]):
        if name in ("mask_counts", "mask_positions"):
            for mask in (blank(device, rows, columns, dtype=d) for d in (dtypes.bool_, dtype)):
                offsets = call(registry["mask_counts"], (mask,))
                yield partial(call, record, (mask, offsets)[: len(record.operands)], (rows,) * len(record.statics))
            continue
        if name == "bag_of":
            yield partial(call, record, (blank(device, rows, dtype=dtypes.int64),), (rows * columns,))
            continue
        if name == "bag_sums":
            index = blank(device, rows, dtype=dtypes.int64)
            for grad, mean in product((False, True), (False, True)) if dtype.kind == "f" else ():
                table = blank(device, rows, columns, dtype=dtype, grad=grad)
                yield partial(call_with_backward, record, [table, index, index], (rows, -1, mean))
            continue
        for grad in (False, True):
            make_tensor = partial(blank, device, dtype=dtype, grad=grad and dtype.kind == "f")
            matrix, vector = make_tensor(rows, columns), make_tensor(rows)
            if "count" in record.statics:
                spans = [(vector, 0, 1), (matrix, 0, 1), (matrix, 1, 1), (matrix, 0, 2)]
                for (tensor, dim, count), indices in product(spans, ((rows,), (3, rows))):
                    yield from _merged_index_calls(record, device, tensor, dim, count, indices, make_tensor)
            else:
                for tensor, dim in ((vector, 0), (matrix, 0), (matrix, 1)):
                    index = blank(device, *tensor.shape, dtype=dtypes.int64)
                    yield _index_call(record, tensor, index, make_tensor(*tensor.shape), {"dim": dim})


def _merged_index_calls(
    record: OpRecord, device: Device, tensor: Tensor, dim: int, count: int, indices: Shape, make_tensor: MakeTensor
) -> Iterator[Call]:
    if record.name in ("embedding_rows", "embedding_shared") and (dim or count > 1 or tensor.ndim < 2):
        return
    source = make_tensor(*tensor.shape[:dim], *indices, *tensor.shape[dim + count :])
    index = blank(device, *indices, dtype=dtypes.int64)
    yield _index_call(record, tensor, index, source, {"dim": dim, "count": count, "skipped": 0})


def _index_call(record: OpRecord, tensor: Tensor, index: Tensor, source: Tensor, statics: Mapping[str, object]) -> Call:
    tensors = {"input": tensor, "index": index, "source": source}
    # x[index] and x[index] = v count negative indices from the end; gather and scatter do not.
    negative = "count" in record.statics
    static_values = {**statics, "shape": tuple(tensor.shape), "misses": False, "check": 0, "negative": negative}
    operands = [tensors[o.name] for o in record.operands]
    return partial(call_with_backward, record, operands, tuple(static_values[s] for s in record.statics))


# Convolution ----------------------------------------------------------------------------------------------------------

# in_channels, out_channels, spatial size, kernel size, stride, padding, groups, number of spatial dimensions if not 2.
_CONVOLUTIONS = (
    (1, 16, 8, 3, 1, 1, 1), (3, 16, 32, 3, 1, 1, 1), (16, 32, 8, 3, 2, 1, 1), (16, 32, 28, 3, 1, 1, 1),
    (16, 32, 32, 3, 2, 1, 1), (3, 16, 32, 7, 2, 3, 1), (3, 8, 28, 5, 1, 2, 1), (1, 6, 28, 5, 1, 0, 1),
    (16, 32, 16, 1, 1, 0, 1), (16, 32, 16, 1, 2, 0, 1), (16, 16, 16, 3, 1, 1, 16), (3, 64, 32, 4, 4, 0, 1),
    (16, 16, 16, 3, 2, 1, 16), (16, 32, 64, 3, 1, 1, 1, 1), (16, 32, 64, 1, 1, 0, 1, 1), (16, 16, 64, 4, 1, 3, 16, 1),
    (3, 16, 8, 3, 1, 1, 1, 3), (16, 32, 8, 3, 2, 1, 1, 3),
)  # fmt: skip


def _convolution_calls(record: OpRecord, device: Device, dtype: DType) -> Iterator[Call]:
    """Yield convolutions with the kernel sizes, strides and groups of common networks, for batches of 2 and 32."""
    for batch, (ins, outs, size, kernel, stride, padding, groups, *spatial_dims_override) in product(
        (2, 32), _CONVOLUTIONS
    ):
        spatial_dims, output_size = (
            spatial_dims_override[0] if spatial_dims_override else 2,
            (size + 2 * padding - kernel) // stride + 1,
        )
        for grad in (False, True) if dtype.kind == "f" else (False,):
            make_tensor = partial(blank, device, dtype=dtype, grad=grad)
            tensors = {
                "input": make_tensor(batch, ins, *(size,) * spatial_dims),
                "weight": make_tensor(outs, ins // groups, *(kernel,) * spatial_dims),
                "grad_output": make_tensor(batch, outs, *(output_size,) * spatial_dims),
            }  # fmt: skip
            sizes = {"convolution_input": (size,) * spatial_dims, "convolution_weight": (kernel,) * spatial_dims}
            static_values = {
                "stride": (stride,) * spatial_dims, "padding": (padding,) * spatial_dims,
                "dilation": (1,) * spatial_dims, "groups": groups, "size": sizes.get(record.name),
            }  # fmt: skip
            statics = tuple(static_values[s] for s in record.statics)
            biases = (None, make_tensor(outs)) if "bias" in {o.name for o in record.operands} else (None,)
            for bias in biases:
                operands = [{**tensors, "bias": bias}[o.name] for o in record.operands]
                yield partial(call_with_backward, record, operands, statics)


# Windows --------------------------------------------------------------------------------------------------------------

# Pooling of sequences, images and volumes: spatial size, kernel (None: adaptive), stride, padding, dilation.
_WINDOWS: tuple[tuple[Shape, Shape | None, Shape, Shape, Shape], ...] = (
    ((64,), (2,), (2,), (0,), (1,)), ((28, 28), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((56, 56), (2, 2), (2, 2), (0, 0), (1, 1)), ((56, 56), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((56, 56), (3, 3), (1, 1), (1, 1), (1, 1)), ((9, 9), (3, 3), (3, 3), (0, 0), (1, 1)),
    ((9, 9), (3, 3), (1, 1), (0, 0), (2, 2)), ((8, 8, 8), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)),
    ((13, 13), None, (1, 1), (0, 0), (1, 1)),
)  # fmt: skip


def _window_calls(record: OpRecord, device: Device, dtype: DType) -> Iterator[Call]:
    """Yield calls with windows of common sizes; ops that map window results back take those results as their input."""
    uses_columns = "window_columns" in (record.name, record.detail["gradient"])
    for size, kernel, stride, padding, dilation in _WINDOWS:
        if uses_columns and kernel is None:
            continue
        windows = tuple(5 for _ in size) if kernel is None else tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
        )  # fmt: skip
        is_covering = record.detail["over"] == "covering"
        shape = (2, 16, *(windows if is_covering else size))
        if uses_columns and is_covering and kernel is not None:
            shape = (2, 16 * prod(kernel), prod(windows))
        static_values = {
            "size": size if is_covering else windows, "kernel": kernel, "stride": stride, "padding": padding,
            "dilation": dilation, "counted": True, "divisor": 0,
        }  # fmt: skip
        for grad in (False, True) if dtype.kind == "f" else (False,):
            operands = [blank(device, *shape, dtype=dtype, grad=grad)]
            operands += [blank(device, *shape, dtype=dtypes.int64) for _ in record.operands[1:]]
            yield partial(
                call_with_backward, record, operands, tuple(static_values[s] for s in record.statics), with_sum=True
            )


# Attention ------------------------------------------------------------------------------------------------------------

# Batch, query heads, key/value heads, sequence length, head dimension.
_ATTENTIONS = ((2, 4, 4, 10, 16), (2, 8, 8, 128, 64), (1, 8, 2, 256, 128))


def _attention_calls(record: OpRecord, device: Device, dtype: DType) -> Iterator[Call]:
    """Yield attention calls for common head sizes: causal, with dropout, with a bool mask, with a float mask."""
    for batch, heads, kv_heads, length, width in _ATTENTIONS:
        if width > 16 and dtype is dtypes.float64:
            continue
        make_tensor = partial(blank, device, dtype=dtype)
        rows = partial(blank, device, batch, heads, length, dtype=dtype if dtype.itemsize > 2 else dtypes.float32)
        masks = blank(device, 1, 1, length, length, dtype=dtypes.bool_), make_tensor(1, 1, length, length)
        variants = ((None, True, False), (None, False, True), (masks[0], False, False), (masks[1], False, False))
        for mask, is_causal, has_dropout in variants:
            tensors = {
                "query": make_tensor(batch, heads, length, width), "key": make_tensor(batch, kv_heads, length, width),
                "value": make_tensor(batch, kv_heads, length, width), "mask": mask,
                "grad_output": make_tensor(batch, heads, length, width),
                "result": make_tensor(batch, heads, length, width), "logsumexp": rows(), "delta": rows(), "scale": 0.5,
                "p": 0.5, "rescale": 2.0, "seed": 7, "offset": 7,
            }  # fmt: skip
            statics = (is_causal, has_dropout)[: len(record.statics)]
            yield partial(call, record, tuple(tensors[o.name] for o in record.operands), statics)
