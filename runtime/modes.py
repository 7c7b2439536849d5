"""What plugs in at the choke point: anomaly detection, autocast, a profiler, recording.

    class Count(Mode):
        def call(self, record, operands, statics, outs, in_place):
            self.calls += 1
            return self.proceed(record, operands, statics, outs, in_place)

    with Count() as count: ...

Modes nest, and belong to a thread. The innermost sees a call first; `proceed` hands it to the next one out, and the
last one to the op itself. No binding knows of them: `dispatch` tests one slot.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from .context import state
from .dispatch import call, call_into
from .records import OpRecord
from .tensor import Tensor

__all__ = ["Mode"]


class Mode:
    """A context in which every call of this thread goes through `call`.

    passive: it only looks on, so that one launch for many tensors need not become one a tensor for its sake.
    """

    _below: Mode | None = None
    passive = False

    def __enter__(self) -> Self:
        own = state()
        self._below = own.mode
        own.mode = self
        return self

    def __exit__(self, *_: object) -> None:
        state().mode = self._below

    def call(
        self,
        record: OpRecord,
        operands: Sequence[Any],
        statics: tuple[Any, ...],
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> Any:
        """See one call; `outs` are results that exist already, None for fresh ones. Override this."""
        return self.proceed(record, operands, statics, outs, in_place)

    def proceed(
        self,
        record: OpRecord,
        operands: Sequence[Any],
        statics: tuple[Any, ...],
        outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> Any:
        """Make the call, as the modes outside of this one see it."""
        own = state()
        own.mode = self._below
        try:
            if outs is None:
                return call(record, operands, statics)
            return call_into(record, operands, statics, outs, in_place=in_place)
        finally:
            own.mode = self
