"""The argument `out` of functions that have two results, such as values and indices."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments.out import copy_to_out
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor

__all__ = ["require_single_out", "store_pair"]


def store_pair(results: Sequence[Tensor], out: Tensor | Sequence[Tensor] | None, where: str) -> Sequence[Tensor]:
    """Return two results, or copy them to the two tensors of `out`, and return these.

    Args:
        results: The two results.
        out: Two tensors, or None.
        where: The calling function, for the message.

    Raises:
        ArgumentError: `out` does not have two tensors.
    """
    if out is None:
        return results
    if not isinstance(out, (tuple, list)) or len(out) != 2:
        raise ArgumentError(f"{where}: has two results, so out takes two tensors, not {type(out).__name__}")
    first, second = results
    return copy_to_out(first, out[0], where), copy_to_out(second, out[1], where)


def require_single_out(out: Tensor | Sequence[Tensor] | None, where: str) -> Tensor | None:
    """Return `out` of a call with one result. Raises `ArgumentError` unless it is a tensor or None."""
    if out is not None and not isinstance(out, Tensor):
        raise ArgumentError(f"{where}: out must be a tensor, not {type(out).__name__}")
    return out
