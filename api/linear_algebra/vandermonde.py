"""Vandermonde matrices: the powers of each element of a vector."""

from __future__ import annotations

from ..creation import factories
from ..reductions import scans
from ..runtime import dtypes
from ..runtime.dispatch import call
from ..runtime.errors import ShapeError
from ..runtime.records import registry
from ..runtime.tensor import Tensor
from ..shape import joining
from ..tensor_methods.argument_checks import only_tensors

__all__ = ["powers_of", "vander"]


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:
    """Return the Vandermonde matrix of a vector: row i has the powers 0 to N - 1 of `x[i]`.

    Args:
        x: Vector `(n,)`. Integers and bool give int64.
        N: Number of columns; by default n.
        increasing: Whether powers increase from left to right.

    Returns:
        `(n, N)`.

    Raises:
        ShapeError: `x` is not a vector, or `N` is negative (a `RuntimeError`).

    Example:
        >>> wg.vander(wg.tensor([2, 3]), 3)
        tensor([[4, 2, 1],
                [9, 3, 1]])
    """
    only_tensors("vander", x)
    if x.meta.ndim != 1:
        raise ShapeError(f"vander: takes a vector, not shape {list(x.meta.shape)}")
    count = x.meta.shape[0] if N is None else N
    if count < 0:
        raise ShapeError(f"vander: N must not be negative, got {N}")
    if x.meta.dtype.kind != "f":
        x = x.to(dtypes.int64)
    powers = powers_of(x, count)
    return powers if increasing else powers.flip(1)


def powers_of(x: Tensor, count: int) -> Tensor:
    """Return the powers 0 to count - 1 of `x` along a new last dimension, by a cumulative product."""
    ones = factories.ones((*x.meta.shape, min(count, 1)), dtype=x.meta.dtype, device=x.meta.device)
    if count < 2:
        return ones
    expanded = call(registry["expand"], (call(registry["unsqueeze"], (x,), (-1,)),), ((*x.meta.shape, count - 1),))
    return joining.cat([ones, scans.cumprod(expanded, -1)], -1)
