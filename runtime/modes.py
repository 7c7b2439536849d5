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

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self

from .context import state
from .dispatch import call, call_into
from .records import OpRecord
from .tensor import Tensor

if TYPE_CHECKING:
    from .call_types import CallResult, Statics

__all__ = ["Mode"]


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
