"""The argument `out`: the tensor to which a function writes its result."""

from __future__ import annotations

from ..runtime import dtypes
from ..runtime.dispatch import call_into, fit, is_recorded
from ..runtime.errors import ArgumentError, DTypeError, GradientError, ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor

__all__ = ["copy_to_out"]


def copy_to_out(result: Tensor, out: Tensor, where: str) -> Tensor:
    """Copy `result` to `out`, for functions whose kernels cannot write to `out` directly.

    The rules are those of all `out=`. An `out` without elements gets memory for the result.

    Raises:
        ArgumentError: `out` is no tensor.
        ShapeError: `out` has another shape.
        DTypeError: The dtype of the result cannot be cast to that of `out`.
        GradientError: Gradients would have to be recorded.
    """
    if not isinstance(out, Tensor):
        raise ArgumentError(f"{where}: out must be a tensor, not {type(out).__name__}")
    if is_recorded(result, out):
        raise GradientError(f"{where}(out=...): out= does not record gradients; use it under no_grad()")
    fit(out, result.meta.shape)
    if out.meta.shape != result.meta.shape:
        raise ShapeError(
            f"{where}: the result has shape {list(result.meta.shape)}, out has {list(out.meta.shape)}; make them equal"
        )
    if not dtypes.can_store(out.meta.dtype, result.meta.dtype):
        raise DTypeError(
            f"{where}: the result is {result.meta.dtype.name} and cannot be written to {out.meta.dtype.name}; "
            f"make out with dtype={result.meta.dtype.name}"
        )
    call_into(registry["copy"], (result,), (None,), (out,), in_place=False)
    return out
