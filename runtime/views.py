"""Views used by the runtime itself and installed on Tensor by the api: reshape and contiguous choose between a view
and a copy."""

from __future__ import annotations

from .dispatch import call
from .errors import ShapeError
from .kinds.view import view_strides
from .records import registry
from .tensor import Tensor

__all__ = ["contiguous", "infer_shape", "reshape"]


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
