"""Plan reductions: each result combines all elements along the reduced dimensions.

Dimensions of the result ("outer") and reduced dimensions are merged separately (`IterationSpace`), and iterated in the
memory order of the largest operand. A reduction accumulates in a *state*: one or more fields, such as value and index.

CPU schedules:

- `rows`: vectors along the innermost reduced dimension.
- `columns`: vectors along the innermost dimension of the result.
- `short`: contiguous rows of up to 15 elements.
- `interleaved`: rows of one to eight vectors, interleaved: as many rows at once as a vector has lanes.
- `general`: one element at a time, for other short rows and for states that a vector cannot hold.

GPU schedule: `tree`, where a work-group computes one or several neighbouring results and combines the states of its
work-items in local memory.

If there are fewer results than the device can run work-items, the reduced elements are split: the first launch writes
partial states, and `finish` (`tree_finish` on a GPU) combines them. No schedule uses atomics, so the same call gives
the same bits. `triton/reduction.py` plans the same for Triton.
"""

from __future__ import annotations

from math import prod

from .. import dtypes
from ..backends.protocol import Step
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..dtypes import DType
from ..errors import ArgumentError, DTypeError, IndexShapeError, ShapeError
from ..layout import broadcast, collapse, expand_strides, normalize_dims
from . import Planned, Request
from .elementwise import DTYPE_KINDS, compute_dtype
from .reduction_cpu import cpu_steps
from .reduction_opencl import gpu_steps
from .reduction_states import IterationSpace, output_dtype

__all__ = ["LAUNCHES", "plan"]


def plan(request: Request) -> Planned:
    """Plan a reduction: the layouts of its results, its launches, and the scratch for partial states.

    Raises:
        ShapeError: if `out` has another shape than the result.
        DTypeError: if the result is floating and `out` is not.
        IndexShapeError: if the op has no value for zero elements and a reduced dimension is empty.
    """
    record = request.record
    for operand, layout in zip(record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor; make one with tensor()")
    shape = broadcast((m.shape for _, m in request.tensors), request.where())
    dims = _dims(request, len(shape))
    state_dtype = _state_dtype(request)
    result_shape = tuple(1 if d in dims else n for d, n in enumerate(shape))
    if not request.optional_static("keepdim", False):
        result_shape = tuple(n for d, n in enumerate(shape) if d not in dims)
    outputs = request.into or tuple(
        meta(output_dtype(request, o.result, state_dtype), result_shape, None, request.device) for o in record.outputs
    )
    for layout, output in zip(outputs, record.outputs, strict=True):
        if layout.shape != result_shape:
            raise ShapeError(
                f"{request.where()}: the result has shape {list(result_shape)}, out has {list(layout.shape)}"
            )
        if output.result == "float" and layout.dtype.kind != "f":
            raise DTypeError(f"{request.where()}: the result is floating and cannot be written to {layout.dtype.name}")
    if record.detail.get("empty") == "error":
        for d in dims:
            if not shape[d]:
                raise IndexShapeError(
                    f"{request.where()}: nothing to reduce: dimension {d} has no elements, and "
                    f"{record.called or record.name} has no value for none"
                )
    if not outputs[0].numel:
        return Planned(outputs)
    space = _iteration_space(request, shape, dims, outputs)
    element = "uchar" if state_dtype is dtypes.bool_ else state_dtype.compute
    steps, scratch = LAUNCHES[request.capabilities.style](request, outputs, space, element)
    return Planned(outputs, steps, scratch)


def _dims(request: Request, ndim: int) -> tuple[int, ...]:
    """Return the dimensions to reduce: all of them for None.

    As in PyTorch, an empty tuple means all of them, too, but none for `any` and `all`.
    """
    dim = request.optional_static("dim")
    if isinstance(dim, (tuple, list)) and not dim and request.record.outputs[0].result != "truth":
        dim = None
    return normalize_dims(dim, ndim, request.where())


def _state_dtype(request: Request) -> DType:
    """Return the dtype of the states; for half dtypes, kernels compute in the dtype's `compute` type."""
    record = request.record
    dtype = request.optional_static("dtype")
    if dtype is not None:
        parsed = dtypes.parse(dtype)
        needs_float = record.outputs[0].result == "float"
        if (needs_float and parsed.kind != "f") or parsed.kind not in DTYPE_KINDS[record.dtypes]:
            raise DTypeError(f"{request.where()}: cannot give {parsed.name}; dtype must be a floating type")
        return parsed
    common_dtype = compute_dtype(request)
    rules = {o.result for o in record.outputs if o.type == "value"}
    if "accumulate" in rules:
        return dtypes.accumulator(common_dtype)
    return dtypes.int64 if rules == {"index"} else common_dtype


def _iteration_space(
    request: Request, shape: tuple[int, ...], dims: tuple[int, ...], outputs: tuple[Meta, ...]
) -> IterationSpace:
    """Merge the dimensions of the result, and the reduced dimensions `dims`."""
    tensors = [m for _, m in request.tensors]
    inputs = [expand_strides(m, shape) for m in tensors]
    main = max(range(len(tensors)), key=lambda i: tensors[i].numel)
    outer_dims = [d for d in range(len(shape)) if d not in dims]
    size_one_dims = dims if outputs[0].ndim == len(shape) and len(outer_dims) != len(shape) else ()
    outer_strides = [tuple(s[d] for d in outer_dims) for s in inputs]
    for out in outputs:
        outer_strides.append(tuple(s for d, s in enumerate(out.strides) if d not in size_one_dims))
    outer_sizes, merged = collapse(tuple(shape[d] for d in outer_dims), [*outer_strides, outer_strides[main]])
    if not outer_sizes:
        outer_sizes, merged = (1,), [(0,)] * len(merged)
    dim_sizes = tuple(shape[d] for d in dims)
    if 0 in dim_sizes:
        return IterationSpace(outer_sizes, tuple(merged[:-1]), (0,), ((0,),) * len(inputs), main)
    strides = [tuple(s[d] for d in dims) for s in inputs]
    # An index is counted in row-major order of the reduced dimensions, so iterate in that order. Otherwise memory order
    # is faster.
    reduction_order = strides[main]
    if request.record.detail.get("has_index"):
        reduction_order = tuple(prod(dim_sizes[i + 1 :]) for i in range(len(dim_sizes)))
    reduced_sizes, reduced_strides = collapse(dim_sizes, [*strides, reduction_order])
    if not reduced_sizes:
        reduced_sizes, reduced_strides = (1,), [(0,)] * len(reduced_strides)
    return IterationSpace(outer_sizes, tuple(merged[:-1]), reduced_sizes, tuple(reduced_strides[:-1]), main)


def _triton_steps(
    request: Request, outputs: tuple[Meta, ...], space: IterationSpace, element: str
) -> tuple[tuple[Step, ...], tuple[int, ...]]:
    """Build the launches for Triton."""
    from .triton.reduction import steps  # lazy: Triton devices only

    return steps(request, outputs, space, element)


LAUNCHES = ByStyle("reductions", cpu=cpu_steps, gpu=gpu_steps, triton=_triton_steps)
