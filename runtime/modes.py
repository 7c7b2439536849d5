"""Modes intercept every call of `dispatch`: autocast, the profiler, recording.

    class Count(Mode):
        def call(self, record, operands, statics, outs, in_place):
            self.calls += 1
            return self.proceed(record, operands, statics, outs, in_place)

    with Count() as count: ...

Modes nest, and belong to a thread. The innermost mode sees a call first. `proceed` passes it to the next outer mode,
and the outermost mode passes it to the op. Only `dispatch` knows of modes: it tests an attribute of the thread's state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Self, TypeVar

from .context import state
from .dispatch import call, call_into
from .records import OpRecord
from .tensor import Tensor

if TYPE_CHECKING:
    from .call_types import CallResult, Statics

__all__ = ["Mode", "call_composite", "notify_host_read"]

_Result = TypeVar("_Result")


class Mode:
    """A context in which every call of this thread goes through `call`.

    passive: the mode only observes, so multi-tensor launches need not be split into one call per tensor for it.
    """

    _below: Mode | None = None
    passive = False

    def __enter__(self) -> Self:
        thread_state = state()
        self._below = thread_state.mode
        thread_state.mode = self
        return self

    def __exit__(self, *_: object) -> None:
        state().mode = self._below

    def call(
        self,
        record: OpRecord,
        operands: Sequence[object],
        statics: Statics,
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> CallResult:
        """Handle one call. Override this.

        Args:
            record: The op.
            operands: Tensors, numbers or None.
            statics: The static arguments.
            outs: The tensors to write; None for fresh results.
            in_place: True for an in-place op, False for `out=`.
        """
        return self.proceed(record, operands, statics, outs, in_place)

    def proceed(
        self,
        record: OpRecord,
        operands: Sequence[object],
        statics: Statics,
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> CallResult:
        """Pass the call to the next outer mode, or run it."""
        thread_state = state()
        thread_state.mode = self._below
        try:
            if outs is None:
                return call(record, operands, statics)
            return call_into(record, operands, statics, outs, in_place=in_place)
        finally:
            thread_state.mode = self

    def composite(
        self, record: OpRecord, operands: Sequence[object], statics: Statics, compute: Callable[[], _Result]
    ) -> _Result:
        """Handle a function of several ops as one call. Most modes do not override this: they see each of the ops.

        Args:
            record: Describes the function: its name, and the names of its operands and static arguments.
            operands: Tensors, numbers or None.
            statics: The static arguments.
            compute: Runs the function.
        """
        return compute() if self._below is None else self._below.composite(record, operands, statics, compute)

    def read_on_host(self, tensor: Tensor) -> None:
        """Note that the program reads the values of a tensor as Python numbers or as a NumPy array."""
        if self._below is not None:
            self._below.read_on_host(tensor)


def call_composite(
    record: OpRecord, operands: Sequence[object], statics: Statics, compute: Callable[[], _Result]
) -> _Result:
    """Return `compute()`, a function of several ops that a mode may handle as one call (see `Mode.composite`)."""
    mode = state().mode
    return compute() if mode is None else mode.composite(record, operands, statics, compute)


def notify_host_read(tensor: Tensor) -> None:
    """Tell the modes of this thread that the program reads the values of `tensor` on the host."""
    mode = state().mode
    if mode is not None:
        mode.read_on_host(tensor)
