"""Give `dispatch` the C versions of its functions, bound to the classes of tensors, memory and the autograd graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from . import native
from .autograd import node
from .backends.arguments import Base, Scratch
from .backends.host import HostSegment
from .backends.queues import Counter, QueueStream
from .context import State, _local
from .device import Device, Meta
from .pool import Block, Pool, Segment
from .storage import Storage
from .tensor import Extra, Tensor

__all__ = ["bind"]

_CLASSES: tuple[type, ...] = (
    Base, Block, Counter, Device, Extra, HostSegment, Meta, Pool, QueueStream, Scratch, Segment, State, Storage, Tensor,
    node.Node, node.Recipe, node.Saved,
)  # fmt: skip


def bind(plan: type, *functions: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return the C versions of `dispatch`'s call, call_into and empty, or the Python `functions` themselves.

    The C code also returns storages to their pools.

    Args:
        plan: The class `Plan`.
        functions: The Python versions.
    """
    if not native.present:
        return functions
    native.bind({cls.__name__: cls for cls in (*_CLASSES, plan)}, _local, node._numbers, functions)
    return native.call, native.call_into, native.empty
