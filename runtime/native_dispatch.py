"""Select the C versions of `dispatch`'s functions, if the C extension is installed.

The extension imports nothing. It is passed the classes whose objects it creates and reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import native, overriding
from .autograd import backward_state, node
from .backends.arguments import Base, Scratch
from .backends.host import HostSegment
from .backends.queues import Counter, QueueStream
from .context import State, _local
from .device import Device, Meta
from .plan_families import Family, Lineage
from .pool import Block, Pool, Segment
from .records import OpRecord
from .storage import Storage
from .tensor import Extra, Tensor

if TYPE_CHECKING:
    from .call_types import Call, CallInto, Empty

__all__ = ["bind"]

_CLASSES: tuple[type, ...] = (
    Base, Block, Counter, Device, Extra, Family, HostSegment, Lineage, Meta, OpRecord, Pool, QueueStream, Scratch,
    Segment, State, Storage, Tensor, backward_state.BackwardState, backward_state.GradientSums, node.Application,
    node.Node, node.Recipe, node.Saved,
)  # fmt: skip


def bind(plan: type, call: Call, call_into: CallInto, empty: Empty) -> tuple[Call, CallInto, Empty]:
    """Return the C versions of `dispatch`'s `call`, `call_into` and `empty`; without the extension, the arguments.

    The extension calls the Python versions in all cases that it does not handle. It also sets `Storage.__del__`, which
    returns memory to its pool.

    Args:
        plan: The class `Plan`, which `dispatch` defines.
        call: The Python version of `dispatch.call`.
        call_into: The Python version of `dispatch.call_into`.
        empty: The Python version of `dispatch.empty`.
    """
    if not native.present:
        return call, call_into, empty
    classes = {cls.__name__: cls for cls in (*_CLASSES, plan)}
    native.bind(classes, _local, node._numbers, call, call_into, empty, overriding.classes)
    return native.call, native.call_into, native.empty
