"""Indexing and assignment: slices, ints, None and `...` are one view; integer tensors and masks gather and scatter."""

from __future__ import annotations

from typing import Any

from .runtime.dispatch import call
from .runtime.errors import IndexOutOfRange
from .runtime.records import registry
from .runtime.tensor import Tensor

__all__ = ["get", "set"]


def get(tensor: Tensor, item: Any) -> Tensor:
    """`tensor[item]`."""
    items = item if isinstance(item, tuple) else (item,)
    return call(registry["index_view"], (tensor,), _basic(tensor, items))  # type: ignore[no-any-return]


def set(tensor: Tensor, item: Any, value: Any) -> None:
    """`tensor[item] = value`."""
    items = item if isinstance(item, tuple) else (item,)
    target = call(registry["index_view"], (tensor,), _basic(tensor, items))
    target.copy_(value)


def _basic(tensor: Tensor, items: tuple[Any, ...]) -> tuple[Any, ...]:
    """Statics of the `index_view` op: ints, (start, stop, step), None; `...` spelled out."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > tensor.meta.ndim:
        raise IndexOutOfRange(f"too many indices: {used} for a tensor of {tensor.meta.ndim} dimensions")
    found: list[Any] = []
    for item in items:
        if item is Ellipsis:
            found += [(None, None, None)] * (tensor.meta.ndim - used)
        elif isinstance(item, slice):
            found.append((_bound(item.start), _bound(item.stop), _bound(item.step)))
        elif item is None:
            found.append(None)
        else:
            found.append(item.__index__())
    return tuple(found)


def _bound(value: Any) -> Any:
    return None if value is None else value.__index__()
