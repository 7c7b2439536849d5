"""Pickle tensors for another process as locations in shared memory. `sharing` manages that memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import TypeAlias, TypeGuard

from ..runtime import dtypes
from ..runtime.device import device, meta
from ..runtime.dispatch import empty
from ..runtime.errors import GradientError
from ..runtime.storage import Storage
from ..runtime.tensor import Tensor
from ..tensor_methods.conversion import _as_type
from . import sharing

__all__ = ["Description", "describe", "install", "is_tensor_with_memory", "rebuild"]

Description: TypeAlias = tuple[
    type[Tensor], str, tuple[int, ...], tuple[int, ...], int, bool, Mapping[str, object] | None
]  # fmt: skip
"""Class, dtype name, shape, strides, offset in bytes from the start of the storage, whether it requires grad, and extra
attributes or None."""


def describe(tensor: Tensor) -> Description:
    """Return what another process needs besides the storage to rebuild a tensor.

    Raises:
        GradientError: The tensor is the result of a differentiated op.
        DeviceError: The tensor is not on `cpu`.
    """
    if tensor.node is not None:
        raise GradientError("a tensor with a history cannot be sent to another process; send x.detach()")
    sharing.require_cpu(tensor)
    layout = tensor.meta
    start = tensor.start - tensor.storage.start if layout.numel else 0
    attributes = getattr(tensor, "__dict__", {})
    extra_attributes = (
        {"persistent": attributes["persistent"]} if "persistent" in attributes else None
    )  # set on a module's buffer
    return type(tensor), layout.dtype.name, layout.shape, layout.strides, start, tensor.needs_grad, extra_attributes


def rebuild(
    storage: Storage | None, kind: type[Tensor], dtype: str, shape: tuple[int, ...], strides: tuple[int, ...] | None,
    start: int, needs_grad: bool, extra_attributes: Mapping[str, object] | None,
) -> Tensor:  # fmt: skip
    """Return the tensor that `describe` described, over `storage` (None: it has no elements)."""
    layout = meta(dtypes.parse(dtype), shape, strides, device("cpu"))
    tensor = empty(layout) if storage is None else Tensor(storage, layout, storage.start + start)
    tensor = _as_type(kind, tensor, needs_grad)
    for name, value in (extra_attributes or {}).items():
        setattr(tensor, name, value)
    return tensor


def _reduce(tensor: Tensor) -> tuple[Callable[..., Tensor], tuple[object, ...]]:
    description = describe(tensor)
    if not tensor.meta.numel:
        return rebuild, (None, *description)
    sharing.share([tensor.storage])
    location = sharing.find_location(tensor.storage)
    assert location is not None
    address, ticket = sharing.desk.ticket(location.segment)
    source = (address, ticket, location.token, location.segment.nbytes)
    return _receive, (source, location.offset, location.nbytes, description)


def _receive(source: tuple[str, bytes, bytes, int], offset: int, nbytes: int, description: Description) -> Tensor:
    """Return a tensor that another process sent: `source` has the arguments of `sharing.fetch`."""
    address, ticket, token, segment_nbytes = source
    segment = sharing.fetch(address, ticket, token, segment_nbytes)
    return rebuild(sharing.storage_at(segment, token, offset, nbytes), *description)


def _has_memory(kind: type[Tensor]) -> bool:
    """Return whether tensors of a class have memory. Uninitialised parameters do not; they pickle themselves."""
    return not hasattr(kind, "materialize")


def is_tensor_with_memory(value: object) -> TypeGuard[Tensor]:
    """Return whether an object is a tensor to pickle as `describe` and `rebuild` do it."""
    return isinstance(value, Tensor) and _has_memory(type(value))


def install() -> None:
    """Register this way of pickling for `Tensor` and all its subclasses, present and future."""

    def register(kind: type[Tensor]) -> None:
        if _has_memory(kind):
            ForkingPickler.register(kind, _reduce)
        for subclass in kind.__subclasses__():
            register(subclass)

    own_init_subclass = vars(Tensor)["__init_subclass__"].__func__

    def init_subclass(kind: type[Tensor], **kwargs: object) -> None:
        own_init_subclass(kind, **kwargs)
        register(kind)

    register(Tensor)
    type.__setattr__(Tensor, "__init_subclass__", classmethod(init_subclass))
