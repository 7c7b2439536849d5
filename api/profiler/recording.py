"""How calls come into a recording: a mode that looks on, ranges of users, steps of optimizers."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any, Self, TypeVar

from ..runtime import tracing
from ..runtime.context import State, state
from ..runtime.modes import Mode
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor
from ..runtime.tracing import Recording, Span, now

__all__ = ["Calls", "record_function"]

_OWN = __name__.partition(".")[0] + "."
_F = TypeVar("_F", bound=Callable[..., Any])


class record_function:
    """A named range in profiles: a context, or a decorator. Outside of a profile it does nothing.

    args: a text that is shown with the range in a trace.
    """

    def __init__(self, name: str, args: str | None = None):
        self.name = name
        self.args = args
        self._begun: list[tuple[Recording, int] | None] = []

    def __enter__(self) -> Self:
        recording = tracing.current
        self._begun.append(None if recording is None else (recording, now()))
        return self

    def __exit__(self, *_: object) -> None:
        begun = self._begun.pop()
        if begun is not None and begun[0] is tracing.current:
            shapes = None if self.args is None else (self.args,)
            begun[0].spans.append(Span(self.name, "annotation", threading.get_ident(), begun[1], now(), shapes))

    def __call__(self, function: _F) -> _F:
        @functools.wraps(function)
        def ranged(*given: Any, **named: Any) -> Any:
            with record_function(self.name, self.args):
                return function(*given, **named)

        return ranged  # type: ignore[return-value]


class Calls(Mode):
    """Notes every call of the thread that began it, from the bottom of the stack: it sees what other modes made of
    a call, and they may come and go meanwhile."""

    passive = True

    def __init__(self, recording: Recording, *, shapes: bool, stack: bool, memory: bool):
        self.recording = recording
        self.shapes, self.stack, self.memory = shapes, stack, memory
        self.thread = threading.get_ident()
        self._state: State | None = None
        self._hooks: list[Any] = []
        self._steps: list[tuple[int, int]] = []  # optimizers that are stepping, and since when

    def start(self) -> None:
        """Begin to look on."""
        from ..optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

        self._state = own = state()
        if own.mode is None:
            own.mode = self
        else:
            top = own.mode
            while top._below is not None:
                top = top._below
            top._below = self
        self._hooks = [register_optimizer_step_pre_hook(self._before), register_optimizer_step_post_hook(self._behind)]

    def stop(self) -> None:
        """Leave the stack, wherever this is in it by now."""
        for hook in self._hooks:
            hook.remove()
        own, self._state = self._state, None
        if own is None:
            return
        if own.mode is self:
            own.mode = self._below
            return
        above = own.mode
        while above is not None and above._below is not self:
            above = above._below
        if above is not None:
            above._below = self._below

    def call(
        self, record: OpRecord, operands: Sequence[Any], statics: tuple[Any, ...], outs: Sequence[Tensor] | None,
        in_place: bool,
    ) -> Any:  # fmt: skip
        span = Span(record.name + "_" * in_place, "op", threading.get_ident(), 0, 0)
        if self.shapes:
            span.shapes = tuple(list(o.meta.shape) if isinstance(o, Tensor) else [] for o in operands)
        if self.stack:
            span.stack = _stack()
        device = next((o.meta.device for o in (*operands, *(outs or ())) if isinstance(o, Tensor)), None)
        driver = device._driver if device is not None and self.memory else None
        before = self.recording.level(driver) if driver is not None else 0
        span.begin = now()
        try:
            found = self.proceed(record, operands, statics, outs, in_place)
        finally:
            span.end = now()
            self.recording.spans.append(span)
        if self.memory:
            if device is None:
                device = (found[0] if isinstance(found, tuple) else found).meta.device
            span.device = str(device)
            span.memory = self.recording.level(device.driver) - before if driver is not None else 0
        return found

    def _before(self, optimizer: Any, *_: Any) -> None:
        self._steps.append((id(optimizer), now()))

    def _behind(self, optimizer: Any, *_: Any) -> None:
        while self._steps:  # a step that raised left its begin behind
            which, begin = self._steps.pop()
            if which == id(optimizer):
                name = f"Optimizer.step#{type(optimizer).__name__}.step"
                self.recording.spans.append(Span(name, "annotation", threading.get_ident(), begin, now()))
                return


def _stack() -> tuple[str, ...]:
    """The user's frames, the innermost first."""
    found = []
    frame: Any = sys._getframe(2)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if not module.startswith(_OWN) and not code.co_filename.startswith("<"):
            found.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return tuple(found)
