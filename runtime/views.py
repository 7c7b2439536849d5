"""Views used by the runtime itself and installed on Tensor by the api: reshape and contiguous choose between a view
and a copy."""

from __future__ import annotations

from .device import meta
from .dispatch import call, is_recorded
from .dtypes import DType
from .errors import GradientError, ShapeError
from .kinds.view import view_strides
from .records import registry
from .tensor import Tensor

__all__ = ["contiguous", "infer_shape", "reshape", "seen_as"]


def contiguous(tensor: Tensor) -> Tensor:
    """`tensor` itself if its elements lie row-major without gaps, else a copy that does."""
    if tensor.meta.contiguous:
        return tensor
    return call(registry["contiguous_copy"], (tensor,))  # type: ignore[no-any-return]


def infer_shape(shape: tuple[int, ...], numel: int, where: str) -> tuple[int, ...]:
    """`shape` with one -1 replaced by what makes it hold `numel` elements. Raises `ShapeError`."""
    known = 1
    missing = -1
    for i, size in enumerate(shape):
        if size == -1 and missing < 0:
            missing = i
        elif size < 0:
            raise ShapeError(f"{where}: invalid shape {list(shape)}: only one size may be -1")
        else:
            known *= size
    if missing >= 0:
        if known == 0 or numel % known:
            raise ShapeError(f"{where}: {numel} elements do not fill shape {list(shape)}")
        return (*shape[:missing], numel // known, *shape[missing + 1 :])
    if known != numel:
        raise ShapeError(f"{where}: shape {list(shape)} holds {known} elements, the tensor has {numel}")
    return shape


def reshape(tensor: Tensor, shape: tuple[int, ...]) -> Tensor:
    """`tensor` in `shape` (one size may be -1): a view where strides allow it, else a copy."""
    wanted = infer_shape(shape, tensor.meta.numel, "reshape")
    if view_strides(tensor.meta, wanted) is None:
        tensor = contiguous(tensor)
    return call(registry["view"], (tensor,), (wanted,))  # type: ignore[no-any-return]


def seen_as(tensor: Tensor, dtype: DType) -> Tensor:
    """The memory of `tensor` as numbers of `dtype`: as many of the same size, else more or fewer along the last
    dimension, whose elements must be neighbours. Raises `ShapeError`, `GradientError`."""
    layout = tensor.meta
    if is_recorded(tensor):
        raise GradientError("view: the bits of a tensor that requires grad have no gradient; use .detach()")
    own, new = layout.dtype.itemsize, dtype.itemsize
    shape, strides = layout.shape, layout.strides
    if own != new:
        if not shape or strides[-1] != 1:
            raise ShapeError(
                f"view: {layout.dtype.name} as {dtype.name} needs neighbours along the last dimension, shape "
                f"{list(shape)} has strides {list(strides)}; call .contiguous() first"
            )
        if any(n * own % new for n in (shape[-1], *strides[:-1])) or tensor.start % new:
            raise ShapeError(
                f"view: {layout.dtype.name} as {dtype.name}: shape {list(shape)} with strides {list(strides)} from "
                f"byte {tensor.start} is not made of whole numbers of {new} bytes"
            )
        shape = (*shape[:-1], shape[-1] * own // new)
        strides = (*[s * own // new for s in strides[:-1]], 1)
    return Tensor(tensor.storage, meta(dtype, shape, strides, layout.device), tensor.start)
