"""`reshape` and `contiguous`, which return a view or a copy, and `view_as_dtype`.

The runtime uses them, and the api installs them on Tensor.
"""

from __future__ import annotations

from .device import meta
from .dispatch import call, is_recorded
from .dtypes import DType
from .errors import GradientError, ShapeError
from .kinds.view import view_strides
from .layout import infer_shape
from .records import registry
from .tensor import Tensor

__all__ = ["contiguous", "reshape", "view_as_dtype"]


def contiguous(tensor: Tensor) -> Tensor:
    """Return `tensor` itself if it is contiguous, else a contiguous copy."""
    if tensor.meta.contiguous:
        return tensor
    return call(registry["contiguous_copy"], (tensor,))


def reshape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Return `tensor` in `shape` (one size may be -1): a view if the strides allow it, else a copy."""
    target_shape = infer_shape(shape, tensor.meta.numel, "reshape")
    if view_strides(tensor.meta, target_shape) is None:
        tensor = contiguous(tensor)
    return call(registry["view"], (tensor,), (target_shape,))


def view_as_dtype(tensor: Tensor, dtype: DType) -> Tensor:
    """Reinterpret the memory of `tensor` as elements of `dtype`.

    If the sizes of the dtypes differ, the last dimension grows or shrinks.

    Raises:
        ShapeError: The last dimension is not contiguous, or does not consist of whole elements of `dtype`.
        GradientError: The tensor requires a gradient.
    """
    layout = tensor.meta
    if is_recorded(tensor):
        raise GradientError("view: the bits of a tensor that requires grad have no gradient; use .detach()")
    old_size, new_size = layout.dtype.itemsize, dtype.itemsize
    shape, strides = layout.shape, layout.strides
    if old_size != new_size:
        if not shape or strides[-1] != 1:
            raise ShapeError(
                f"view: {layout.dtype.name} as {dtype.name} needs neighbours along the last dimension, shape "
                f"{list(shape)} has strides {list(strides)}; call .contiguous() first"
            )
        if any(n * old_size % new_size for n in (shape[-1], *strides[:-1])) or tensor.start % new_size:
            raise ShapeError(
                f"view: {layout.dtype.name} as {dtype.name}: shape {list(shape)} with strides {list(strides)} from "
                f"byte {tensor.start} is not made of whole numbers of {new_size} bytes"
            )
        shape = (*shape[:-1], shape[-1] * old_size // new_size)
        strides = (*[s * old_size // new_size for s in strides[:-1]], 1)
    return Tensor(tensor.storage, meta(dtype, shape, strides, layout.device), tensor.start)
