"""Plan contractions: reduce any equation of two operands to a batch of matrix products.

A dimension of both operands and the result is a batch dimension. A dimension of one operand and the result belongs to m
or n. A dimension that the result does not have belongs to k. Each group is merged to one dimension with one stride if
the layouts allow it: `...mk,kn->...mn` is a single product however many dimensions `...` has.

A step before the product copies an operand whose dimensions do not merge, or that is contiguous along none of them. A
step after it copies a result whose rows are not contiguous, or sums the parts of a split-K product. The last of these
steps applies the epilogue, if the op has one.

`contraction_terms.py` parses the equation, and `contraction_builder.py` reduces it to products of matrices.
`contraction_cpu.py`, `contraction_opencl.py` and `triton/contraction.py` have the steps for each style of device;
`contraction_plan.py` chooses the CPU and GPU schedules.
"""

from __future__ import annotations

from collections.abc import Sequence

from .. import dtypes
from ..backends.styles import ByStyle
from ..device import Meta, meta
from ..errors import ArgumentError, ShapeError
from . import Planned, Request, contraction_cpu, contraction_opencl
from .contraction_builder import Builder
from .contraction_terms import (
    Gemm,
    TensorView,
    bind,
    epilogue_inputs,
    parse,
    strides_by_label,
)
from .elementwise import compute_dtype, result_dtype

__all__ = ["COPIES", "PRODUCTS", "plan"]

_ACCUMULATOR_TYPES = {"float16": dtypes.float32, "bfloat16": dtypes.float32}


def plan(request: Request) -> Planned:
    """Plan one call: copies of the operands that need one, the product, and a copy of the result if it needs one.

    Raises:
        ArgumentError: An operand is not a tensor.
        ShapeError: The operands' sizes do not fit the equation, or the result does not fit `out`.
    """
    for operand, layout in zip(request.record.operands, request.operands, strict=True):
        if operand.role == "tensor" and not isinstance(layout, Meta):
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
    # The factors are the two operands of the product; the epilogue reads the other tensors.
    factor_names = request.record.detail.get("factors")
    factors = [
        (position, operand, layout)
        for position, (operand, layout) in enumerate(request.tensors)
        if factor_names is None or operand.name in factor_names
    ]
    terms = parse(str(request.record.detail["equation"]))
    sizes, labels = bind(request, terms, [(operand, layout) for _, operand, layout in factors])
    shape = tuple(sizes[label] for label in labels[2])
    compute_type = compute_dtype(request)
    if request.into is None:
        out = meta(result_dtype(request.record.outputs[0], compute_type, request), shape, None, request.device)
    else:
        out = request.into[0]
    if out.shape != shape:
        raise ShapeError(f"{request.where()}: the result has shape {list(shape)}, out has {list(out.shape)}")
    if not out.numel:
        return Planned((out,))
    buffers = [(position, layout) for position, _, layout in factors] + [(len(request.tensors), out)]
    views = [
        TensorView(position, layout.dtype, strides_by_label(term_labels, layout, sizes))
        for term_labels, (position, layout) in zip(labels, buffers, strict=True)
    ]
    epilogue = epilogue_inputs(request, labels[2], out, sizes)
    multiplies_half = request.capabilities.kernel_style.multiplies_half
    element = compute_type if multiplies_half else _ACCUMULATOR_TYPES.get(compute_type.name, compute_type)
    style = request.capabilities.style
    builder = Builder(request, sizes, element, epilogue, PRODUCTS[style], COPIES[style])
    builder.add_product(*views)
    return Planned((out,), tuple(builder.steps), tuple(builder.scratch))


def _add_triton_product(builder: Builder, gemm: Gemm, a: TensorView, b: TensorView, c: TensorView) -> None:
    from .triton import contraction  # lazy: Triton devices only

    contraction.add_product(builder, gemm, a, b, c)


def _add_triton_copy(
    builder: Builder, dims: Sequence[tuple[int, ...]], source: TensorView, target: TensorView, parts: int,
    part_step: int, last: bool,
) -> None:  # fmt: skip
    from .triton import contraction_copies  # lazy: Triton devices only

    contraction_copies.add_copy(builder, dims, source, target, zeros=not parts, last=last)


PRODUCTS = ByStyle(
    "contractions", cpu=contraction_cpu.add_product, gpu=contraction_opencl.add_gpu_product, triton=_add_triton_product
)
COPIES = ByStyle(
    "copies of contractions", cpu=contraction_opencl.add_copy, gpu=contraction_opencl.add_copy, triton=_add_triton_copy
)
