"""Reduce values that are written to the same position, for `scatter_reduce` and `index_reduce`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from .._generated import ops
from ..runtime import dtypes, views
from ..runtime.dispatch import call, call_into
from ..runtime.dtypes import DType
from ..runtime.errors import NotSupported
from ..runtime.records import OpRecord, registry
from ..runtime.tensor import Tensor
from .assignment import tensor_value

__all__ = ["check_reduce", "reduce_into"]

# By PyTorch's name of the reduction, the part of an op's name: `scatter_add`, `put_maximum_at`. A mean is a sum that is
# divided by the number of values.
_REDUCTION_OPS = {"sum": "add", "mean": "add", "prod": "multiply", "amax": "maximum", "amin": "minimum"}


def _lowest_value(dtype: DType) -> float:
    return {"f": -np.inf, "b": False}[dtype.kind] if dtype.kind in "fb" else int(np.iinfo(dtype.numpy).min)


def _highest_value(dtype: DType) -> float:
    return {"f": np.inf, "b": True}[dtype.kind] if dtype.kind in "fb" else int(np.iinfo(dtype.numpy).max)


# The neutral element of each reduction. Without `include_self` it replaces the old values before the reduction.
_NEUTRAL: dict[str, Callable[[DType], float]] = {
    "sum": lambda dtype: 0, "mean": lambda dtype: 0, "prod": lambda dtype: 1, "amax": _lowest_value,
    "amin": _highest_value,
}  # fmt: skip


def _write_op(action: str, indexes_slices: bool) -> OpRecord:
    """Return the op that writes by index: `action` is "write", or a value of `_REDUCTION_OPS`."""
    if action == "write":
        return registry["put_at" if indexes_slices else "scatter"]
    return registry[f"put_{action}_at" if indexes_slices else f"scatter_{action}"]


def reduce_into(
    target: Tensor,
    index: Tensor,
    source: Tensor,
    statics: tuple[int, ...],
    reduce: str,
    include_self: bool,
    in_place: bool,
) -> Tensor:
    """Reduce `source` into `target` at the positions in `index`.

    Args:
        target: Tensor of at least one dimension.
        index: Non-negative positions in dimension `dim`: of the shape of `source` if each element has its own index,
            as in scatter ops; a vector if each slice has one.
        source: Values to combine, of the dtype of `target`. With an index for each slice it has the shape of `target`,
            but for the length of `index` in dimension `dim`.
        statics: Static arguments of the op: `(dim,)` for an index for each element, `(dim, 1)` for each slice.
        reduce: "sum", "prod", "mean", "amax" or "amin".
        include_self: Whether the values of `target` take part.
        in_place: Write to `target`, instead of to a copy.

    Returns:
        `target`, or the new tensor. Integers get means that are rounded down.
    """
    indexes_slices = len(statics) == 2

    def apply(record: OpRecord, operands: tuple[Tensor, ...], step_statics: tuple[int, ...]) -> None:
        nonlocal target
        if in_place:
            call_into(record, (target, *operands), step_statics, (target,), in_place=True)
        else:
            target = call(record, (target, *operands), step_statics)

    if not include_self:
        neutral = tensor_value(_NEUTRAL[reduce](target.meta.dtype), target, source.meta.shape)
        apply(_write_op("write", indexes_slices), (index, neutral), statics)
    apply(_write_op(_REDUCTION_OPS[reduce], indexes_slices), (index, source), statics)
    if reduce == "mean":
        counts = _index_counts(target, index, statics, 1 if include_self else 0)
        counts = counts if include_self else ops.clamp_min(counts, 1)  # positions without values keep their own
        if target.meta.dtype.kind == "f":
            apply(registry["true_divide"], (counts,), ())
        else:
            apply(registry["floor_divide"], (call(registry["copy"], (counts,), (target.meta.dtype,)),), ())
    return target


def _index_counts(target: Tensor, index: Tensor, statics: tuple[int, ...], initial: int) -> Tensor:
    """Return `initial` plus the number of times that each position occurs in `index`.

    Returns:
        Int64 tensor: of the shape of `target` if each element has its own index; else with the size of `target` in the
        indexed dimension, and a size of 1 in each later one.
    """
    initial_count = tensor_value(initial, index, ())
    if initial_count.meta.dtype is not dtypes.int64:
        initial_count = call(registry["copy"], (initial_count,), (dtypes.int64,))
    ones = tensor_value(1, initial_count, index.meta.shape)
    if len(statics) == 1:
        base = call(registry["expand"], (initial_count,), (target.meta.shape,))
        return call(registry["scatter_add"], (base, index, ones), statics)
    axis = statics[0]
    base = call(registry["expand"], (initial_count,), (target.meta.shape[axis : axis + 1],))
    counts = call(registry["put_add_at"], (base, index, ones), (0, 1))
    return views.reshape(counts, (*counts.meta.shape, *(1,) * (target.meta.ndim - axis - 1)))


def check_reduce(reduce: str, supported: tuple[str, ...], input: Tensor, where: str) -> None:
    """Raise `NotSupported` for the name of a reduction that is not `supported`, and for the mean of bools."""
    if reduce not in supported:
        raise NotSupported(f"{where}: reduce must be one of {', '.join(supported)}, not {reduce!r}")
    if reduce == "mean" and input.meta.dtype is dtypes.bool_:
        raise NotSupported(f"{where}: bool has no mean; convert it with .to()")
