"""The calls whose kernels `weftgrad prebuild` compiles: every op by itself, on the layouts that programs have most.

Each is a function without arguments, to be called while launches are only listed (`samples.collecting`): nothing is
computed, so values do not matter and most tensors are left empty. What the public functions make of several ops is in
`scenes`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from math import prod
from typing import Any

import numpy as np

from ..codegen.loader import op_from_mapping
from ..codegen.model import Op
from ..runtime import dtypes
from ..runtime.device import Device
from ..runtime.dispatch import call
from ..runtime.dtypes import DType
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from .samples import arguments
from .shape_calls import PLANS, shape_calls

__all__ = ["blank", "calls_of", "differentiated"]

# Few short rows; more, longer ones that the calling thread still computes; and what goes to the pooled device.
SHAPES = ((5, 7), (300, 24), (260, 260))
# Contractions of few rows or columns, and rows shorter than a whole vector, are computed in other ways.
_NARROW = ((18, 12), (300, 12))
_MORE_SHAPES = {
    "contraction": ((64, 10), (1, 300)), "rowwise": ((64, 10),), "reduction": _NARROW, "pointwise": _NARROW,
    "sort": ((20000,), (1, 40000)), "scan": ((4100, 18), (1, 70000)),
}  # fmt: skip
# Dtypes that stand for a class of dtypes where the ones that were asked for do not belong to it.
_STAND_INS = {"integer": (dtypes.int64,), "integral": (dtypes.bool_, dtypes.int64), "bool": (dtypes.bool_,)}

Call = Callable[[], Any]


def blank(place: Device, *shape: int, dtype: DType = dtypes.float32, grad: bool = False) -> Any:
    """An uninitialised tensor."""
    from ..factories import empty

    return empty(shape, dtype=dtype, device=place, requires_grad=grad)


def calls_of(record: OpRecord, place: Device, types: Sequence[DType]) -> Iterator[Call]:
    """Calls of one op, with their first derivatives."""
    op = op_from_mapping(record.spec)
    for dtype in types:
        own = _STAND_INS.get(op.dtypes, (dtype,)) if dtype.kind == "f" or op.dtypes == "bool" else (dtype,)
        for each in own:
            if record.kind == "index":
                yield from _index_calls(record, place, each)
            elif record.kind == "window":
                yield from _window_calls(record, place, each)
            elif record.detail.get("plan") in PLANS:
                yield from shape_calls(record, blank, differentiated, place, each)
            elif record.name.startswith("attention"):
                yield from _attention_calls(record, place, each)
            elif record.kind == "custom":
                yield from _convolution_calls(record, place, each)
            else:
                yield from _calls(record, op, place, each)


def differentiated(
    record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], *, summed: bool = False
) -> None:
    """Call an op and its derivative for a gradient of the result's layout; if `summed`, for a sum's as well, which is
    one number in every place."""
    result = call(record, operands, statics)
    out = result[0] if isinstance(result, tuple) else result
    inputs = [t for t in operands if isinstance(t, Tensor) and t.needs]
    if inputs and out.needs:
        _backward(out, inputs)
        if summed:
            _backward(call(registry["sum"], (out,), (None, False, None)), inputs)


def _backward(out: Any, inputs: list[Tensor]) -> None:
    from ..autograd import grad

    grad(out, inputs, grad_outputs=out.detach(), allow_unused=True, retain_graph=True)


def _prepared(record: OpRecord, named: dict[str, Any], op: Op, *, summed: bool = False) -> Call:
    operands: list[Any] = []
    for p in op.operands:
        operands += named[p.name] if p.role == "list" else [named[p.name]]
    return partial(differentiated, record, operands, tuple(named[n] for n in record.statics), summed=summed)


def _calls(record: OpRecord, op: Op, place: Device, dtype: DType) -> Iterator[Call]:
    """Contiguous, along each dimension, and for what has an operator broadcast against a row and with numbers."""
    rng = np.random.default_rng(0)
    for shape in (*SHAPES, *_MORE_SHAPES.get(record.kind, ())):
        for grad in (False, True) if dtype.kind == "f" and op.grad != "none" else (False,):
            named = arguments(op, place, dtype, rng, grad=grad, shape=shape)
            yield _prepared(record, named, op, summed=True)
            if op.operator:
                for changed in _broadcast(op, named, place, dtype, shape, grad):
                    yield _prepared(record, named | changed, op)
            for changed in _along(record, op, shape):
                yield _prepared(record, named | changed, op, summed=True)


def _broadcast(
    op: Op, named: dict[str, Any], place: Device, dtype: DType, shape: tuple[int, ...], grad: bool
) -> Iterator[dict[str, Any]]:
    """Each operand in turn as a row and as a number, of short rows as a column too, the others as they are."""
    values = [p.name for p in op.operands if p.role == "tensor" and p.type == "value"]
    if len(values) < 2:
        return
    for name in values:
        yield {name: blank(place, shape[-1], dtype=dtype, grad=grad)}
        yield {name: 0.5 if dtype.kind == "f" else dtype.kind != "b"}
        if shape in _NARROW:
            yield {name: blank(place, shape[0], 1, dtype=dtype, grad=grad)}


def _alike(op: Op) -> bool:
    """Whether all tensors have the shape of the result."""
    return all(p.scope == "full" for p in op.operands if p.is_tensor)


def _along(record: OpRecord, op: Op, shape: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """The dimensions along which reductions and row ops go, the dtypes to which copies convert."""
    names = {p.name: p.annotation for p in op.statics}
    if record.kind == "reduction" and "dim" in names:
        yield from ({"dim": d} for d in (0, 1))
    elif "dim" in names and (record.kind in ("sort", "scan") or (record.kind == "rowwise" and _alike(op))):
        yield {"dim": 0}
    elif record.name == "copy":
        yield from ({"dtype": d} for d in (dtypes.float32, dtypes.float64, dtypes.int64, dtypes.bool_))


# Index ops ------------------------------------------------------------------------------------------------------------


def _index_calls(record: OpRecord, place: Device, dtype: DType) -> Iterator[Call]:
    """Vectors and matrices, indexed along either dimension, and along both as one."""
    name = record.name
    for rows, columns in (SHAPES[0], SHAPES[-1]):
        if name in ("mask_counts", "mask_positions"):
            for mask in (blank(place, rows, columns, dtype=d) for d in (dtypes.bool_, dtype)):
                offsets = call(registry["mask_counts"], (mask,))
                yield partial(call, record, (mask, offsets)[: len(record.operands)], (rows,) * len(record.statics))
            continue
        if name == "bag_of":
            yield partial(call, record, (blank(place, rows, dtype=dtypes.int64),), (rows * columns,))
            continue
        if name == "bag_sums":
            index = blank(place, rows, dtype=dtypes.int64)
            for grad, mean in product((False, True), (False, True)) if dtype.kind == "f" else ():
                table = blank(place, rows, columns, dtype=dtype, grad=grad)
                yield partial(differentiated, record, [table, index, index], (rows, -1, mean))
            continue
        for grad in (False, True):
            made = partial(blank, place, dtype=dtype, grad=grad and dtype.kind == "f")
            whole, vector = made(rows, columns), made(rows)
            if "count" in record.statics:
                spans = [(vector, 0, 1), (whole, 0, 1), (whole, 1, 1), (whole, 0, 2)]
                for (tensor, dim, count), indices in product(spans, ((rows,), (3, rows))):
                    yield from _merged(record, place, tensor, dim, count, indices, made)
            else:
                for tensor, dim in ((vector, 0), (whole, 0), (whole, 1)):
                    index = blank(place, *tensor.shape, dtype=dtypes.int64)
                    yield _placed(record, tensor, index, made(*tensor.shape), {"dim": dim})


def _merged(
    record: OpRecord, place: Device, tensor: Any, dim: int, count: int, indices: tuple[int, ...], made: Any
) -> Iterator[Call]:
    if record.name in ("embedding_rows", "embedding_shared") and (dim or count > 1 or tensor.ndim < 2):
        return
    source = made(*tensor.shape[:dim], *indices, *tensor.shape[dim + count :])
    index = blank(place, *indices, dtype=dtypes.int64)
    yield _placed(record, tensor, index, source, {"dim": dim, "count": count, "skipped": 0})


def _placed(record: OpRecord, tensor: Any, index: Any, source: Any, statics: dict[str, Any]) -> Call:
    given = {"input": tensor, "index": index, "source": source}
    known = {**statics, "shape": tuple(tensor.shape), "misses": False}
    operands = [given[o.name] for o in record.operands]
    return partial(differentiated, record, operands, tuple(known[s] for s in record.statics))


# Convolution ----------------------------------------------------------------------------------------------------------

# Channels in and out, size along each dimension, kernel, stride, padding, groups, dimensions if not two.
_CONVOLUTIONS = (
    (1, 16, 8, 3, 1, 1, 1), (3, 16, 32, 3, 1, 1, 1), (16, 32, 8, 3, 2, 1, 1), (16, 32, 28, 3, 1, 1, 1),
    (16, 32, 32, 3, 2, 1, 1), (3, 16, 32, 7, 2, 3, 1), (3, 8, 28, 5, 1, 2, 1), (1, 6, 28, 5, 1, 0, 1),
    (16, 32, 16, 1, 1, 0, 1), (16, 32, 16, 1, 2, 0, 1), (16, 16, 16, 3, 1, 1, 16), (3, 64, 32, 4, 4, 0, 1),
    (16, 16, 16, 3, 2, 1, 16), (16, 32, 64, 3, 1, 1, 1, 1), (16, 32, 64, 1, 1, 0, 1, 1), (16, 16, 64, 4, 1, 3, 16, 1),
    (3, 16, 8, 3, 1, 1, 1, 3), (16, 32, 8, 3, 2, 1, 1, 3),
)  # fmt: skip


def _convolution_calls(record: OpRecord, place: Device, dtype: DType) -> Iterator[Call]:
    """The kernels, strides and groups of common networks, for a few images and for many."""
    for batch, (ins, outs, size, kernel, stride, padding, groups, *rest) in product((2, 32), _CONVOLUTIONS):
        space, out = rest[0] if rest else 2, (size + 2 * padding - kernel) // stride + 1
        for grad in (False, True):
            made = partial(blank, place, dtype=dtype, grad=grad)
            given = {
                "input": made(batch, ins, *(size,) * space), "weight": made(outs, ins // groups, *(kernel,) * space),
                "grad_output": made(batch, outs, *(out,) * space),
            }  # fmt: skip
            sizes = {"convolution_input": (size,) * space, "convolution_weight": (kernel,) * space}
            known = {
                "stride": (stride,) * space, "padding": (padding,) * space, "dilation": (1,) * space, "groups": groups,
                "size": sizes.get(record.name),
            }  # fmt: skip
            statics = tuple(known[s] for s in record.statics)
            biases = (None, made(outs)) if "bias" in {o.name for o in record.operands} else (None,)
            for bias in biases:
                operands = [{**given, "bias": bias}[o.name] for o in record.operands]
                yield partial(differentiated, record, operands, statics)


# Windows --------------------------------------------------------------------------------------------------------------

# Spatial size, kernel (None: adaptive), stride, padding, dilation: pooling of sequences, images and volumes.
_WINDOWS: tuple[tuple[Any, ...], ...] = (
    ((64,), (2,), (2,), (0,), (1,)), ((28, 28), (2, 2), (2, 2), (0, 0), (1, 1)),
    ((56, 56), (2, 2), (2, 2), (0, 0), (1, 1)), ((56, 56), (3, 3), (2, 2), (1, 1), (1, 1)),
    ((56, 56), (3, 3), (1, 1), (1, 1), (1, 1)), ((9, 9), (3, 3), (3, 3), (0, 0), (1, 1)),
    ((9, 9), (3, 3), (1, 1), (0, 0), (2, 2)), ((8, 8, 8), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1)),
    ((13, 13), None, (1, 1), (0, 0), (1, 1)),
)  # fmt: skip


def _window_calls(record: OpRecord, place: Device, dtype: DType) -> Iterator[Call]:
    """Windows of common sizes over a few images, and where an op's `size` is that of its input, over what they make."""
    columns = "window_columns" in (record.name, record.detail["gradient"])
    for size, kernel, stride, padding, dilation in _WINDOWS:
        if columns and kernel is None:
            continue
        windows = tuple(5 for _ in size) if kernel is None else tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, s, p, d in zip(size, kernel, stride, padding, dilation, strict=True)
        )  # fmt: skip
        back = record.detail["over"] == "covering"
        shape = (2, 16, *(windows if back else size))
        if columns and back:
            shape = (2, 16 * prod(kernel), prod(windows))
        known = {
            "size": size if back else windows, "kernel": kernel, "stride": stride, "padding": padding,
            "dilation": dilation, "counted": True, "divisor": 0,
        }  # fmt: skip
        for grad in (False, True) if dtype.kind == "f" else (False,):
            operands = [blank(place, *shape, dtype=dtype, grad=grad)]
            operands += [blank(place, *shape, dtype=dtypes.int64) for _ in record.operands[1:]]
            yield partial(differentiated, record, operands, tuple(known[s] for s in record.statics), summed=True)


# Attention ------------------------------------------------------------------------------------------------------------

# Batch, heads of the query and of key and value, positions, features.
_ATTENTIONS = ((2, 4, 4, 10, 16), (2, 8, 8, 128, 64), (1, 8, 2, 256, 128))


def _attention_calls(record: OpRecord, place: Device, dtype: DType) -> Iterator[Call]:
    """Heads of common sizes, without a mask and with each kind of mask."""
    for batch, heads, own, count, width in _ATTENTIONS:
        if width > 16 and dtype is dtypes.float64:
            continue
        made = partial(blank, place, dtype=dtype)
        rows = partial(blank, place, batch, heads, count, dtype=dtype if dtype.itemsize > 2 else dtypes.float32)
        masks = blank(place, 1, 1, count, count, dtype=dtypes.bool_), made(1, 1, count, count)
        variants = ((None, True, False), (None, False, True), (masks[0], False, False), (masks[1], False, False))
        for mask, is_causal, dropping in variants:
            given = {
                "query": made(batch, heads, count, width), "key": made(batch, own, count, width),
                "value": made(batch, own, count, width), "mask": mask, "grad_output": made(batch, heads, count, width),
                "result": made(batch, heads, count, width), "logsumexp": rows(), "delta": rows(), "scale": 0.5,
                "p": 0.5, "rescale": 2.0, "seed": 7, "offset": 7,
            }  # fmt: skip
            statics = (is_causal, dropping)[: len(record.statics)]
            yield partial(call, record, tuple(given[o.name] for o in record.operands), statics)
