"""Reductions of the ranks' values that a rank computes itself, by kernels, once it has received them."""

from __future__ import annotations

from collections.abc import Sequence

from ..autograd.grad_mode import no_grad
from ..runtime import dtypes
from ..runtime.dispatch import call_into
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from .reduce_ops import ReduceOp

__all__ = ["RECORDS", "average", "combine", "combine_in_order"]

RECORDS = {
    ReduceOp.SUM: registry["add"],
    ReduceOp.AVG: registry["add"],
    ReduceOp.PRODUCT: registry["mul"],
    ReduceOp.MIN: registry["minimum"],
    ReduceOp.MAX: registry["maximum"],
    ReduceOp.BAND: registry["bitwise_and"],
    ReduceOp.BOR: registry["bitwise_or"],
    ReduceOp.BXOR: registry["bitwise_xor"],
}
"""The op that combines two ranks' values. For `AVG` it is the sum."""


def combine(parts: Tensor, op: ReduceOp) -> Tensor:
    """Return the reduction of a float16 or bfloat16 tensor over its first dimension, computed in float32."""
    with no_grad():
        values = parts.to(dtypes.float32)
        if op in (ReduceOp.SUM, ReduceOp.AVG):
            total = values.sum(0)
            if op is ReduceOp.AVG:
                total = total / parts.meta.shape[0]
        elif op is ReduceOp.PRODUCT:
            total = values.prod(0)
        else:
            total = values.amin(0) if op is ReduceOp.MIN else values.amax(0)
        return total.to(parts.meta.dtype)


def average(tensor: Tensor, op: ReduceOp, size: int) -> None:
    """Divide the ranks' sum by the number of ranks, if `op` is `AVG`."""
    if op is ReduceOp.AVG:
        with no_grad():
            tensor.detach().div_(size)


def combine_in_order(values: Sequence[Tensor], op: ReduceOp, target: Tensor) -> None:
    """Write the reduction of the ranks' values, in the order of the ranks, to `target`.

    Each step rounds to the dtype, so this is for two ranks, or for dtypes that MPI has, too.

    Args:
        values: At least two tensors without history. The first is overwritten if `target` is the third or a later one.
        op: The reduction.
        target: A tensor without history; it may be one of `values`.
    """
    record = RECORDS[op]
    total = values[0]
    partial = values[0] if any(target is value for value in values[2:]) else target
    for position, value in enumerate(values[1:], 1):
        result = target if position == len(values) - 1 else partial
        call_into(record, (total, value), (), (result,), in_place=result is total)
        total = result
    average(target, op, len(values))
