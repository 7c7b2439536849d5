"""Promote dtypes, collect operands and divide work for elementwise kernels.

The planners of pointwise and random ops use all functions here, and so do those for Triton and for many tensors. Other
kinds promote dtypes and divide work by the same rules.
"""

from __future__ import annotations

from dataclasses import dataclass

from .. import dtypes
from ..backends.protocol import Slot
from ..device import Meta
from ..dtypes import DType
from ..errors import ArgumentError, UnsupportedDType
from ..records import Output
from . import Request, slot

__all__ = [
    "COSTS", "DTYPE_KINDS", "Operands", "compute_dtype", "elementwise_parts", "operands_of", "result_dtype",
    "stride_classes",
]  # fmt: skip

DTYPE_KINDS = {"bool": "b", "integer": "ui", "float": "f", "numeric": "uif", "integral": "bui", "all": "buif"}
# Cost of a math function per 4-byte element on one CPU core, in units of 1/8 ns (measured: PoCL, AVX-512). Reading and
# writing an element costs 1. A function that is not listed costs 4.
COSTS = {
    "abs": 0, "ceil": 0, "copysign": 0, "floor": 0, "isfinite": 0, "isinf": 0, "isnan": 0, "maximum": 0, "minimum": 0,
    "round": 0, "sign": 0, "trunc": 0, "exp": 1, "exp2": 1, "reciprocal": 1, "sqrt": 1, "asin": 2, "cosh": 2, "erf": 2,
    "expm1": 2, "log": 2, "log10": 2, "log1p": 2, "log2": 2, "logistic": 2, "rsqrt": 2, "sinh": 2, "tanh": 2,
    "digamma": 64, "lgamma": 64, "polygamma": 64, "trigamma": 64,
    **dict.fromkeys((f"bessel_{name}" for name in ("j0", "j1", "y0", "y1", "i0", "i1", "i0e", "i1e")), 128),
    **dict.fromkeys(("bessel_k0", "bessel_k1", "bessel_k0e", "bessel_k1e", "erfcx", "ndtr", "zeta"), 128),
    **dict.fromkeys(("chebyshev_t", "chebyshev_u", "gegenbauer", "hermite", "laguerre"), 128),
    "airy_ai": 256, "airy_ai_prime": 256, "ndtri": 256, "gamma_density": 256, "gammainc": 512, "gammaincc": 512,
}  # fmt: skip


def compute_dtype(request: Request) -> DType:
    """Return the common dtype of the value operands by PyTorch's promotion rules.

    A Python number does not turn an integer tensor into a floating one for an op that takes floating dtypes only:
    `elu(x, 1.0)` with integer `x` is an error, as in PyTorch.

    Raises:
        UnsupportedDType: if the op's `dtypes` does not include the common dtype.
    """
    operands: list[tuple[DType, int]] = []
    for operand, argument in zip(request.record.operands, request.operands, strict=True):
        if operand.type != "value" or argument is None or operand.role == "number":
            continue
        if isinstance(argument, Meta):
            operands.append((argument.dtype, 0 if argument.ndim else 1))
        else:
            operands.append((dtypes.number_dtype(argument()), 2))
    if not operands:
        return dtypes.default_dtype()
    dtype = dtypes.promote_operands(operands)
    record = request.record
    if record.outputs[0].result == "float":
        dtype = dtype if dtype.kind == "f" else dtypes.default_dtype()
    elif record.dtypes == "float" and dtype.kind == "f" and any(level < 2 for _, level in operands):
        dtype = dtypes.promote_operands([o for o in operands if o[1] < 2 or o[0].kind != "f"])
    if dtype.kind not in DTYPE_KINDS[record.dtypes]:
        raise UnsupportedDType(f"{request.where()}: takes {record.dtypes} dtypes, not {dtype.name}; convert with .to()")
    return dtype


def result_dtype(output: Output, common_dtype: DType, request: Request) -> DType:
    """Return the dtype of one result by its rule (see `records.Output`).

    Raises:
        ArgumentError: if the rule names an operand that is not a tensor in this call.
    """
    rule = output.result
    if (dtype := request.optional_static("dtype")) is not None:
        return dtypes.parse(dtype)
    if rule in ("promote", "float"):
        return common_dtype
    if rule == "index":
        return dtypes.int64
    if rule == "accumulate":
        return dtypes.accumulator(common_dtype)
    if rule == "truth":
        return dtypes.uint8 if request.tensors[0][1].dtype is dtypes.uint8 else dtypes.bool_
    if rule.startswith("like:"):
        name = rule.removeprefix("like:")
        operand_dtype = next((m.dtype for o, m in request.tensors if o.name == name), None)
        if operand_dtype is None:
            raise ArgumentError(f"{request.where()}: {name} must be a tensor: the result has its dtype")
        return operand_dtype
    return dtypes.BY_NAME[rule]


@dataclass(frozen=True, slots=True)
class Operands:
    """Buffers, numbers and macros of a pointwise call; the same for all schedules.

    Attributes:
        slots: kernel parameters of the inputs, then the results.
        layouts: their layouts. An input that is a number has None; its parameter gets a result's buffer, which the
            kernel does not read.
        buffers: position of the buffer for each slot.
        numbers: positions of the call's numbers.
        defines: macros that say which operand is which number.
    """

    slots: tuple[Slot, ...]
    layouts: tuple[Meta | None, ...]
    buffers: tuple[int, ...]
    numbers: tuple[int, ...]
    defines: tuple[tuple[str, str], ...]


def operands_of(request: Request, outputs: tuple[Meta, ...], common_dtype: DType) -> Operands:
    """Collect buffers and numbers in the order of the kernel's parameters.

    Raises:
        ArgumentError: if an operand must be a number and is a tensor, or the reverse.
    """
    slots: list[Slot] = []
    layouts: list[Meta | None] = []
    buffers: list[int] = []
    defines: list[tuple[str, str]] = []
    tensors = numbers = 0
    first_output = len(request.tensors)
    for position, (operand, argument) in enumerate(zip(request.record.operands, request.operands, strict=True)):
        if operand.role in ("scalar", "number"):
            if isinstance(argument, Meta):
                raise ArgumentError(
                    f"{request.where()}: {operand.name} must be a number, not a tensor; pass {operand.name}.item()"
                )
            defines.append((f"NUMBER_{position}", str(numbers)))
            numbers += 1
        elif isinstance(argument, Meta):
            slots.append(slot(argument, operand.type))
            layouts.append(argument)
            buffers.append(tensors)
            tensors += 1
        elif operand.type == "value" and argument is not None:
            defines.append((f"NUMBER{len(slots)}", str(numbers)))
            slots.append(Slot(common_dtype.name, "value"))
            layouts.append(None)
            buffers.append(first_output)
            numbers += 1
        else:
            raise ArgumentError(f"{request.where()}: {operand.name} must be a tensor")
    for i, (output, layout) in enumerate(zip(request.record.outputs, outputs, strict=True)):
        slots.append(slot(layout, output.type))
        layouts.append(layout)
        buffers.append(first_output + i)
    defines.append(("NUMBERS", str(numbers)))
    return Operands(tuple(slots), tuple(layouts), tuple(buffers), tuple(range(numbers)), tuple(defines))


def stride_classes(operands: Operands, strides: list[tuple[int, ...]]) -> tuple[tuple[str, str], ...]:
    """Return one macro per buffer: 0 one element, 1 contiguous, 2 strided in the innermost dimension, 3 a number."""
    classes = []
    for i, (layout, s) in enumerate(zip(operands.layouts, strides, strict=True)):
        stride_class = 3 if layout is None else s[-1] if s and s[-1] in (0, 1) else 2 if s else 0
        classes.append((f"CLASS{i}", str(stride_class)))
    return tuple(classes)


def elementwise_parts(numel: int, cores: int, parts_per_core: int | None = None) -> int:
    """Return the number of work-items for `numel` elements on a CPU: few, of equal size (ARCHITECTURE.md, schedules).

    Args:
        numel: elements, each of which costs as much as an addition.
        cores: cores of the device.
        parts_per_core: work-items per core from a tuned schedule; None applies the rule by size.
    """
    if parts_per_core is not None:
        return parts_per_core * cores
    if numel <= 32 * 1024:
        return 1
    return cores if numel <= 512 * 1024 else 4 * cores
