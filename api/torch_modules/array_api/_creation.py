"""Functions that create tensors."""

from __future__ import annotations

import array
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..creation import dlpack, factories, from_data, sequences
from ..linear_algebra import triangles
from ..runtime import dtypes
from ..runtime.device import DeviceLike
from ..runtime.dtypes import DType
from ..runtime.errors import ArgumentError
from ..runtime.tensor import Tensor
from ..shape import joining
from ._operands import Scalar, check_tensors

__all__ = [
    "arange", "asarray", "empty", "empty_like", "eye", "from_dlpack", "full", "full_like", "linspace", "meshgrid",
    "ones", "ones_like", "tril", "triu", "zeros", "zeros_like",
]  # fmt: skip

_BUFFERS = (memoryview, array.array)
"""Types with the buffer protocol whose elements have a dtype. The bytes of `bytes` and `bytearray` have none."""


def arange(
    start: int | float, /, stop: int | float | None = None, step: int | float = 1, *,
    dtype: DType | None = None, device: DeviceLike | None = None,
) -> Tensor:  # fmt: skip
    """Return evenly spaced numbers from `start` up to, but without, `stop`.

    Args:
        start: The first number; the end, after 0, if there is no `stop`.
        stop: The end, which is not part of the result.
        step: The difference between neighbours; it may be negative.
        dtype: Dtype; None: int64 for integers, else the default dtype.
        device: Device; None: the default device.

    Returns:
        Vector; without elements if `stop` is not in the direction of `step`.

    Example:
        >>> wg.array_api.arange(1, 7, 2)
        tensor([1, 3, 5])
    """
    first, end = (0, start) if stop is None else (start, stop)
    if (end - first) * step <= 0 and step != 0:
        numbers_are_int = all(isinstance(number, int) for number in (first, end, step))
        return empty(0, dtype=dtype or (dtypes.int64 if numbers_are_int else dtypes.default_dtype()), device=device)
    return sequences.arange(first, end, step, dtype=dtype, device=device)


def asarray(
    obj: Any, /, *, dtype: DType | None = None, device: DeviceLike | None = None, copy: bool | None = None
) -> Tensor:
    """Convert an object to a tensor.

    Args:
        obj: Tensor, number, nested sequences of numbers, or an object with DLPack or the buffer protocol.
        dtype: Dtype; None: that of `obj`, for Python numbers bool, int64 or the default dtype.
        device: Device; None: that of a tensor, else the default device.
        copy: Whether to copy. None: if the memory cannot be shared. False: raise an error if it cannot be shared.

    Returns:
        Tensor of the shape of `obj`.

    Raises:
        ArgumentError: `copy` is False and the memory cannot be shared. It is a `ValueError`.

    Example:
        >>> wg.array_api.asarray([[1, 2], [3, 4]], dtype=wg.float32)
        tensor([[1., 2.],
                [3., 4.]])
    """
    if isinstance(obj, Tensor):
        if copy is False and not (dtype in (None, obj.meta.dtype) and obj.to(device=device) is obj):
            raise ArgumentError("asarray: another dtype or device needs a copy; do not pass copy=False")
        return obj.to(device=device, dtype=dtype, copy=bool(copy))
    if type(obj) in _BUFFERS:
        obj = np.asarray(obj)
    elif not isinstance(obj, (np.ndarray, np.generic)) and hasattr(type(obj), "__dlpack__"):
        return asarray(dlpack.from_dlpack(obj, copy=copy), dtype=dtype, device=device)
    return from_data.asarray(obj, dtype=dtype, device=device, copy=copy)


def empty(shape: int | Sequence[int], *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return an uninitialized tensor.

    Args:
        shape: Shape.
        dtype: Dtype; None: the default dtype.
        device: Device; None: the default device.

    Returns:
        Tensor of shape `shape`, whose elements are undefined.

    Example:
        >>> wg.array_api.empty((2, 3)).shape
        weftgrad.Size([2, 3])
    """
    return factories.empty(_shape(shape), dtype=dtype, device=device)


def empty_like(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return an uninitialized tensor of the shape of another.

    Args:
        x: Tensor.
        dtype: Dtype; None: that of `x`.
        device: Device; None: that of `x`.

    Returns:
        Tensor whose elements are undefined.

    Example:
        >>> wg.array_api.empty_like(wg.ones(2)).shape
        weftgrad.Size([2])
    """
    return factories.empty_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int, n_cols: int | None = None, /, *, k: int = 0, dtype: DType | None = None,
    device: DeviceLike | None = None,
) -> Tensor:  # fmt: skip
    """Return a matrix with ones on a diagonal, and zeros elsewhere.

    Args:
        n_rows: Number of rows.
        n_cols: Number of columns; None: `n_rows`.
        k: The diagonal: positive numbers are above the main one.
        dtype: Dtype; None: the default dtype.
        device: Device; None: the default device.

    Returns:
        Tensor of shape `(n_rows, n_cols)`.

    Example:
        >>> wg.array_api.eye(2, 3, k=1)
        tensor([[0., 1., 0.],
                [0., 0., 1.]])
    """
    if k == 0:
        return factories.eye(n_rows, n_cols, dtype=dtype, device=device)
    columns = n_rows if n_cols is None else n_cols
    row = sequences.arange(n_rows, device=device).unsqueeze(1)
    column = sequences.arange(columns, device=device)
    return (column - row == k).to(dtype or dtypes.default_dtype())


def from_dlpack(x: Any, /, *, device: DeviceLike | None = None, copy: bool | None = None) -> Tensor:
    """Create a tensor that shares the memory of an array or of another library's tensor.

    Args:
        x: Object with `__dlpack__`.
        device: Device of the result; None: that of `x`. Memory of another device is copied.
        copy: Whether to copy the memory. None: if it cannot be shared. False: raise an error if it cannot be shared.

    Returns:
        Tensor of the shape and dtype of `x`.

    Raises:
        ExchangeError: The memory cannot be shared as the arguments demand. It is a `BufferError`.

    Example:
        >>> import numpy as np
        >>> wg.array_api.from_dlpack(np.arange(3))
        tensor([0, 1, 2])
    """
    return dlpack.from_dlpack(x, device=device, copy=copy)


def full(
    shape: int | Sequence[int], fill_value: Scalar, *, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return a tensor that is filled with a number.

    Args:
        shape: Shape.
        fill_value: The number.
        dtype: Dtype; None: bool, int64 or the default dtype, by the number.
        device: Device; None: the default device.

    Returns:
        Tensor of shape `shape`.

    Example:
        >>> wg.array_api.full(3, 7)
        tensor([7, 7, 7])
    """
    return factories.full(_shape(shape), fill_value, dtype=dtype, device=device)


def full_like(
    x: Tensor, /, fill_value: Scalar, *, dtype: DType | None = None, device: DeviceLike | None = None
) -> Tensor:
    """Return a tensor of the shape of another that is filled with a number.

    Args:
        x: Tensor.
        fill_value: The number.
        dtype: Dtype; None: that of `x`.
        device: Device; None: that of `x`.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.full_like(wg.ones(2), 3)
        tensor([3., 3.])
    """
    return factories.full_like(x, fill_value, dtype=dtype, device=device)


def linspace(
    start: float, stop: float, /, num: int, *, dtype: DType | None = None, device: DeviceLike | None = None,
    endpoint: bool = True,
) -> Tensor:  # fmt: skip
    """Return evenly spaced numbers.

    Args:
        start: The first number.
        stop: The last number; with `endpoint=False`, the one after the last.
        num: How many.
        dtype: Dtype; None: the default dtype.
        device: Device; None: the default device.
        endpoint: Whether `stop` is the last number.

    Returns:
        Vector of `num` elements.

    Example:
        >>> wg.array_api.linspace(0, 1, 4, endpoint=False)
        tensor([0.0000, 0.2500, 0.5000, 0.7500])
    """
    if endpoint:
        return sequences.linspace(start, stop, num, dtype=dtype, device=device)
    return sequences.linspace(start, stop, num + 1, dtype=dtype, device=device)[:num]


def meshgrid(*arrays: Tensor, indexing: str = "xy") -> list[Tensor]:
    """Return the coordinates of the points of a grid.

    Args:
        *arrays: Vectors of one dtype.
        indexing: `xy`: the first vector varies along the second axis; `ij`: along the first.

    Returns:
        List of a tensor for each vector.

    Example:
        >>> wg.array_api.meshgrid(wg.tensor([1, 2]), wg.tensor([3, 4, 5]))[1].tolist()
        [[3, 3], [4, 4], [5, 5]]
    """
    check_tensors("meshgrid", *arrays)
    return list(joining.meshgrid(*arrays, indexing=indexing)) if arrays else []


def ones(shape: int | Sequence[int], *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of ones.

    Args:
        shape: Shape.
        dtype: Dtype; None: the default dtype.
        device: Device; None: the default device.

    Returns:
        Tensor of shape `shape`.

    Example:
        >>> wg.array_api.ones(2, dtype=wg.int8)
        tensor([1, 1], dtype=weftgrad.int8)
    """
    return factories.ones(_shape(shape), dtype=dtype, device=device)


def ones_like(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of ones of the shape of another.

    Args:
        x: Tensor.
        dtype: Dtype; None: that of `x`.
        device: Device; None: that of `x`.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.ones_like(wg.zeros(2))
        tensor([1., 1.])
    """
    return factories.ones_like(x, dtype=dtype, device=device)


def tril(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the lower triangles of matrices, with zeros above a diagonal.

    Args:
        x: Tensor of shape `(..., M, N)`.
        k: The diagonal: positive numbers are above the main one.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.tril(wg.ones(2, 2))
        tensor([[1., 0.],
                [1., 1.]])
    """
    return triangles.tril(x, k)


def triu(x: Tensor, /, *, k: int = 0) -> Tensor:
    """Return the upper triangles of matrices, with zeros below a diagonal.

    Args:
        x: Tensor of shape `(..., M, N)`.
        k: The diagonal: positive numbers are above the main one.

    Returns:
        Tensor of the shape of `x`.

    Example:
        >>> wg.array_api.triu(wg.ones(2, 2), k=1)
        tensor([[0., 1.],
                [0., 0.]])
    """
    return triangles.triu(x, k)


def zeros(shape: int | Sequence[int], *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of zeros.

    Args:
        shape: Shape.
        dtype: Dtype; None: the default dtype.
        device: Device; None: the default device.

    Returns:
        Tensor of shape `shape`.

    Example:
        >>> wg.array_api.zeros((1, 2))
        tensor([[0., 0.]])
    """
    return factories.zeros(_shape(shape), dtype=dtype, device=device)


def zeros_like(x: Tensor, /, *, dtype: DType | None = None, device: DeviceLike | None = None) -> Tensor:
    """Return a tensor of zeros of the shape of another.

    Args:
        x: Tensor.
        dtype: Dtype; None: that of `x`.
        device: Device; None: that of `x`.

    Returns:
        Tensor.

    Example:
        >>> wg.array_api.zeros_like(wg.ones(2))
        tensor([0., 0.])
    """
    return factories.zeros_like(x, dtype=dtype, device=device)


def _shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    return (shape,) if isinstance(shape, int) else tuple(shape)
