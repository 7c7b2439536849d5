"""Pickle tensors for another process as locations in shared memory. `sharing` manages that memory."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

from ..runtime import dtypes
from ..runtime.device import device, meta
from ..runtime.dispatch import empty
from ..runtime.errors import GradientError
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion import _as_type
from . import sharing

__all__ = ["describe", "has_memory", "install", "rebuild"]


def describe(tensor: Tensor) -> tuple[Any, ...]:
    """Return what another process needs besides the storage to rebuild a tensor.

    Returns:
        Class, dtype name, shape, strides, offset in bytes from the start of the storage, whether it requires grad, and
        extra attributes or None.

    Raises:
        GradientError: The tensor is the result of a differentiated op.
        DeviceError: The tensor is not on `cpu`.
    """
    if tensor.node is not None:
        raise GradientError("a tensor with a history cannot be sent to another process; send x.detach()")
    sharing.check(tensor)
    layout = tensor.meta
    start = tensor.start - tensor.storage.start if layout.numel else 0
    attributes = getattr(tensor, "__dict__", {})
    extra_attributes = (
        {"persistent": attributes["persistent"]} if "persistent" in attributes else None
    )  # set on a module's buffer
    return type(tensor), layout.dtype.name, layout.shape, layout.strides, start, tensor.needs, extra_attributes


def rebuild(
    storage: Any, kind: type, dtype: str, shape: Any, strides: Any, start: int, needs: bool, extra_attributes: Any
) -> Tensor:
    """Return the tensor that `describe` described, over `storage` (None: it has no elements)."""
    layout = meta(dtypes.parse(dtype), shape, strides, device("cpu"))
    tensor = empty(layout) if storage is None else Tensor(storage, layout, storage.start + start)
    tensor = _as_type(kind, tensor, needs)
    for name, value in (extra_attributes or {}).items():
        setattr(tensor, name, value)
    return tensor


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    description = describe(tensor)
    if not tensor.meta.numel:
        return rebuild, (None, *description)
    sharing.share([tensor.storage])
    location = sharing.find_location(tensor.storage)
    assert location is not None
    ticket = sharing.desk.ticket(location.segment)
    return _receive, ((*ticket, location.token, location.segment.nbytes), location.offset, location.nbytes, description)


def _receive(source: tuple[Any, ...], offset: int, nbytes: int, description: tuple[Any, ...]) -> Any:
    segment = sharing.fetch(*source)
    return rebuild(sharing.storage_at(segment, source[2], offset, nbytes), *description)


def has_memory(kind: type) -> bool:
    """Return whether tensors of a class have memory. Uninitialised parameters do not; they pickle themselves."""
    return issubclass(kind, Tensor) and not hasattr(kind, "materialize")


def install() -> None:
    """Register this way of pickling for `Tensor` and all its subclasses, present and future."""

    def register(kind: Any) -> None:
        if has_memory(kind):
            ForkingPickler.register(kind, _reduce)
        for subclass in kind.__subclasses__():
            register(subclass)

    def init_subclass(kind: Any, **kwargs: Any) -> None:
        super(Tensor, kind).__init_subclass__(**kwargs)
        register(kind)

    register(Tensor)
    Tensor.__init_subclass__ = classmethod(init_subclass)  # type: ignore[assignment]
