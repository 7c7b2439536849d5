"""Functions that reduce or scan axes: statistics, positions of extrema, truth, cumulative sums and differences."""

from __future__ import annotations

from .._generated import ops
from ..indexing import gathering
from ..reductions import differences, scans, statistics
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..shape import joining
from ._operands import Axes, check_tensors, reduce_along

__all__ = [
    "all", "any", "argmax", "argmin", "count_nonzero", "cumulative_prod", "cumulative_sum", "diff", "max", "mean",
    "min", "nonzero", "prod", "std", "sum", "var",
]  # fmt: skip


def all(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return True where all elements along axes are nonzero.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of dtype bool.

    Example:
        >>> wg.array_api.all(wg.tensor([[True, False], [True, True]]), axis=1)
        tensor([False,  True])
    """
    return reduce_along("all", x, axis, keepdims, ops.all)


def any(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return True where an element along axes is nonzero.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of dtype bool.

    Example:
        >>> wg.array_api.any(wg.tensor([[True, False], [False, False]]), axis=1)
        tensor([ True, False])
    """
    return reduce_along("any", x, axis, keepdims, ops.any)


def argmax(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the greatest element along an axis, the first of equal ones.

    Args:
        x: Tensor.
        axis: The axis; None: the flattened tensor.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of dtype int64.

    Example:
        >>> wg.array_api.argmax(wg.tensor([1, 3, 2]))
        tensor(1)
    """
    check_tensors("argmax", x)
    return ops.argmax(x, axis, keepdims)


def argmin(x: Tensor, /, *, axis: int | None = None, keepdims: bool = False) -> Tensor:
    """Return the position of the least element along an axis, the first of equal ones.

    Args:
        x: Tensor.
        axis: The axis; None: the flattened tensor.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of dtype int64.

    Example:
        >>> wg.array_api.argmin(wg.tensor([2, 1, 3]))
        tensor(1)
    """
    check_tensors("argmin", x)
    return ops.argmin(x, axis, keepdims)


def count_nonzero(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the number of elements along axes that are not 0.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of dtype int64.

    Example:
        >>> wg.array_api.count_nonzero(wg.tensor([0, 3, -1]))
        tensor(2)
    """
    return reduce_along("count_nonzero", x, axis, keepdims, ops.count_nonzero)


def cumulative_prod(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the products of the elements up to each position along an axis.

    Args:
        x: Tensor.
        axis: The axis; it may be left out for a vector.
        dtype: Dtype of the result; None: int64 for integers, else that of `x`.
        include_initial: Whether the result begins with 1, and has an element more.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.cumulative_prod(wg.tensor([2, 3]), include_initial=True)
        tensor([1, 2, 6])
    """
    dim = _scanned_axis("cumulative_prod", x, axis)
    result = scans.cumprod(x, dim, dtype=dtype)
    return _with_initial(result, dim, 1) if include_initial else result


def cumulative_sum(
    x: Tensor, /, *, axis: int | None = None, dtype: DType | None = None, include_initial: bool = False
) -> Tensor:
    """Return the sums of the elements up to each position along an axis.

    Args:
        x: Tensor.
        axis: The axis; it may be left out for a vector.
        dtype: Dtype of the result; None: int64 for integers, else that of `x`.
        include_initial: Whether the result begins with 0, and has an element more.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.cumulative_sum(wg.tensor([1, 2, 3]))
        tensor([1, 3, 6])
    """
    dim = _scanned_axis("cumulative_sum", x, axis)
    result = scans.cumsum(x, dim, dtype=dtype)
    return _with_initial(result, dim, 0) if include_initial else result


def _scanned_axis(name: str, x: Tensor, axis: int | None) -> int:
    check_tensors(name, x)
    if axis is None and x.meta.ndim != 1:
        raise ArgumentError(f"{name}: needs an axis for shape {list(x.meta.shape)}")
    return 0 if axis is None else axis


def _with_initial(result: Tensor, dim: int, value: int) -> Tensor:
    shape = list(result.meta.shape)
    shape[dim] = 1
    return joining.cat([result.new_full(tuple(shape), value), result], dim)


def diff(
    x: Tensor, /, *, axis: int = -1, n: int = 1, prepend: Tensor | None = None, append: Tensor | None = None
) -> Tensor:
    """Return the differences of neighbours along an axis.

    Args:
        x: Tensor.
        axis: The axis.
        n: How often to take differences.
        prepend: Tensor to put before `x` along the axis first.
        append: Tensor to put after it.

    Returns:
        Tensor with `n` elements less along the axis.

    Example:
        >>> wg.array_api.diff(wg.tensor([1, 4, 9]))
        tensor([3, 5])
    """
    check_tensors("diff", x)
    tensors = [tensor for tensor in (prepend, x, append) if tensor is not None]
    joined = joining.cat(tensors, axis) if len(tensors) > 1 else x
    return differences.diff(joined, n, axis)


def max(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the greatest element along axes; NaN if one is.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of the dtype of `x`.

    Example:
        >>> wg.array_api.max(wg.tensor([[1, 3], [5, 4]]), axis=0)
        tensor([5, 4])
    """
    return reduce_along("max", x, axis, keepdims, ops.amax)


def mean(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the mean of the elements along axes.

    Args:
        x: Tensor of a floating dtype.
        axis: The axes; None: all.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of the dtype of `x`.

    Example:
        >>> wg.array_api.mean(wg.tensor([1.0, 2.0]))
        tensor(1.5000)
    """
    return reduce_along("mean", x, axis, keepdims, ops.mean)


def min(x: Tensor, /, *, axis: Axes = None, keepdims: bool = False) -> Tensor:
    """Return the least element along axes; NaN if one is.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of the dtype of `x`.

    Example:
        >>> wg.array_api.min(wg.tensor([[1, 3], [5, 2]]), axis=0)
        tensor([1, 2])
    """
    return reduce_along("min", x, axis, keepdims, ops.amin)


def nonzero(x: Tensor, /) -> tuple[Tensor, ...]:
    """Return the positions of the elements that are not 0.

    Args:
        x: Tensor with an axis.

    Returns:
        A vector of int64 for each axis.

    Raises:
        ArgumentError: `x` has no axis. It is a `ValueError`.

    Example:
        >>> wg.array_api.nonzero(wg.tensor([0, 3, 0, 4]))
        (tensor([1, 3]),)
    """
    check_tensors("nonzero", x)
    if not x.meta.ndim:
        raise ArgumentError("nonzero: the tensor has no axis; compare it with 0 instead")
    result = gathering.nonzero(x, as_tuple=True)
    assert isinstance(result, tuple)  # with as_tuple
    return result


def prod(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the product of the elements along axes.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        dtype: Dtype of the result; None: int64 for integers, else that of `x`.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.prod(wg.tensor([2, 3]))
        tensor(6)
    """
    return reduce_along("prod", x, axis, keepdims, lambda t, dims, keep: ops.prod(t, dims, keep, dtype=dtype))


def std(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the standard deviation of the elements along axes.

    Args:
        x: Tensor of a floating dtype.
        axis: The axes; None: all.
        correction: Number subtracted from the number of elements; 1: Bessel's correction.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of the dtype of `x`.

    Example:
        >>> wg.array_api.std(wg.tensor([1.0, 3.0]))
        tensor(1.)
    """
    return reduce_along(
        "std", x, axis, keepdims, lambda t, dims, keep: statistics.std(t, dims, None, keep, correction=correction)
    )


def sum(x: Tensor, /, *, axis: Axes = None, dtype: DType | None = None, keepdims: bool = False) -> Tensor:
    """Return the sum of the elements along axes.

    Args:
        x: Tensor.
        axis: The axes; None: all.
        dtype: Dtype of the result; None: int64 for integers, else that of `x`.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.sum(wg.tensor([[1, 2], [3, 4]]), axis=1, keepdims=True)
        tensor([[3],
                [7]])
    """
    return reduce_along("sum", x, axis, keepdims, lambda t, dims, keep: ops.sum(t, dims, keep, dtype=dtype))


def var(x: Tensor, /, *, axis: Axes = None, correction: float = 0.0, keepdims: bool = False) -> Tensor:
    """Return the variance of the elements along axes.

    Args:
        x: Tensor of a floating dtype.
        axis: The axes; None: all.
        correction: Number subtracted from the number of elements; 1: Bessel's correction.
        keepdims: Whether reduced axes stay, with size 1.

    Returns:
        Tensor of the dtype of `x`.

    Example:
        >>> wg.array_api.var(wg.tensor([1.0, 3.0]), correction=1)
        tensor(2.)
    """
    return reduce_along(
        "var", x, axis, keepdims, lambda t, dims, keep: statistics.var(t, dims, None, keep, correction=correction)
    )
