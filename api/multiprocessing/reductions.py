"""How tensors are pickled for another process: as places in shared memory."""

from __future__ import annotations

from multiprocessing.reduction import ForkingPickler
from typing import Any

from ..conversion import _rebuilt
from ..runtime import dtypes
from ..runtime.device import device, meta
from ..runtime.dispatch import empty
from ..runtime.errors import GradientError
from ..runtime.tensor import Tensor
from . import sharing

__all__ = ["describe", "has_memory", "install", "rebuild"]


def describe(tensor: Tensor) -> tuple[Any, ...]:
    """What another process needs beside the storage: class, dtype, shape, strides, bytes from the storage's start,
    whether a gradient is wanted. Raises `GradientError` for a result, `DeviceError` for one that is not on `cpu`."""
    if tensor.node is not None:
        raise GradientError("a tensor with a history cannot be sent to another process; send x.detach()")
    sharing.check(tensor)
    layout = tensor.meta
    start = tensor.start - tensor.storage.start if layout.numel else 0
    own = getattr(tensor, "__dict__", {})
    more = {"persistent": own["persistent"]} if "persistent" in own else None  # a buffer's
    return type(tensor), layout.dtype.name, layout.shape, layout.strides, start, tensor.needs, more


def rebuild(storage: Any, kind: type, dtype: str, shape: Any, strides: Any, start: int, needs: bool, more: Any) -> Any:
    """The tensor that `describe` told of, over `storage` (None: it has no elements)."""
    layout = meta(dtypes.parse(dtype), shape, strides, device("cpu"))
    made = empty(layout) if storage is None else Tensor(storage, layout, storage.start + start)
    made = _rebuilt(kind, made, needs)
    for name, value in (more or {}).items():
        setattr(made, name, value)
    return made


def _reduce(tensor: Tensor) -> tuple[Any, ...]:
    told = describe(tensor)
    if not tensor.meta.numel:
        return rebuild, (None, *told)
    sharing.share([tensor.storage])
    place = sharing.place_of(tensor.storage)
    assert place is not None
    ticket = sharing.desk.ticket(place.segment)
    return _receive, ((*ticket, place.token, place.segment.nbytes), place.offset, place.nbytes, told)


def _receive(source: tuple[Any, ...], offset: int, nbytes: int, told: tuple[Any, ...]) -> Any:
    segment = sharing.fetch(*source)
    return rebuild(sharing.storage_at(segment, source[2], offset, nbytes), *told)


def has_memory(kind: type) -> bool:
    """Whether tensors of a class have memory: not so parameters whose shape is unknown, which pickle by themselves."""
    return issubclass(kind, Tensor) and not hasattr(kind, "materialize")


def install() -> None:
    """Have multiprocessing's pickler send tensors this way, those of subclasses too, whenever they are defined."""

    def register(kind: Any) -> None:
        if has_memory(kind):
            ForkingPickler.register(kind, _reduce)
        for each in kind.__subclasses__():
            register(each)

    def defined(kind: Any, **named: Any) -> None:
        super(Tensor, kind).__init_subclass__(**named)
        register(kind)

    register(Tensor)
    Tensor.__init_subclass__ = classmethod(defined)  # type: ignore[assignment]
