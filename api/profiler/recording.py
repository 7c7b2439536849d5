"""Record op calls (by a mode), named ranges of the user, and optimizer steps."""

from __future__ import annotations

import functools
import sys
import threading
from collections.abc import Callable, Sequence
from types import FrameType
from typing import TYPE_CHECKING, ParamSpec, Self, TypeVar

from ..optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from ..runtime import tracing
from ..runtime.context import State, state
from ..runtime.launches import now
from ..runtime.modes import Mode
from ..runtime.records import OpRecord
from ..runtime.tensor import Tensor
from ..runtime.tracing import Recording, Span

if TYPE_CHECKING:
    from ..optim.optimizer import Optimizer

__all__ = ["CallRecorder", "record_function"]

_OWN_PREFIX = __name__.partition(".")[0] + "."
_P = ParamSpec("_P")
_R = TypeVar("_R")


class record_function:
    """A named range in profiles: a context manager or a decorator. Without an active profile it does nothing.

    Args:
        name: Name of the range.
        args: Text that the trace shows with the range.

    Example:
        >>> with wg.profiler.profile() as prof:
        ...     with wg.profiler.record_function('step'):
        ...         result = wg.ones(2) + 1
        ...
        >>> 'step' in [event.name for event in prof.events()]
        True
    """

    def __init__(self, name: str, args: str | None = None):
        self.name = name
        self.args = args
        self._entries: list[tuple[Recording, int] | None] = []

    def __enter__(self) -> Self:
        recording = tracing.current
        self._entries.append(None if recording is None else (recording, now()))
        return self

    def __exit__(self, *_: object) -> None:
        entry = self._entries.pop()
        if entry is not None and entry[0] is tracing.current:
            shapes = None if self.args is None else (self.args,)
            entry[0].spans.append(Span(self.name, "annotation", threading.get_ident(), entry[1], now(), shapes))

    def __call__(self, function: Callable[_P, _R]) -> Callable[_P, _R]:
        @functools.wraps(function)
        def ranged(*args: _P.args, **kwargs: _P.kwargs) -> _R:
            with record_function(self.name, self.args):
                return function(*args, **kwargs)

        return ranged


class CallRecorder(Mode):
    """Records every op call of the thread that started it.

    It is the bottom of the mode stack, so that it sees the calls that other modes make, and other modes can be entered
    and left while it is active.
    """

    passive = True

    def __init__(self, recording: Recording, *, shapes: bool, stack: bool, memory: bool):
        self.recording = recording
        self.shapes, self.stack, self.memory = shapes, stack, memory
        self.thread = threading.get_ident()
        self._state: State | None = None
        self._hook_removers: list[Callable[[], None]] = []
        self._steps: list[tuple[int, int]] = []  # (id, start time) of optimizers whose step is running

    def start(self) -> None:
        """Add this mode at the bottom of the thread's mode stack."""
        self._state = thread_state = state()
        if thread_state.mode is None:
            thread_state.mode = self
        else:
            top = thread_state.mode
            while top._below is not None:
                top = top._below
            top._below = self
        self._hook_removers = [
            register_optimizer_step_pre_hook(self._begin_step).remove,
            register_optimizer_step_post_hook(self._end_step).remove,
        ]

    def stop(self) -> None:
        """Remove this mode from the stack, wherever it is now."""
        for remove in self._hook_removers:
            remove()
        thread_state, self._state = self._state, None
        if thread_state is None:
            return
        if thread_state.mode is self:
            thread_state.mode = self._below
            return
        above = thread_state.mode
        while above is not None and above._below is not self:
            above = above._below
        if above is not None:
            above._below = self._below

    def call(
        self, record: OpRecord, operands: Sequence[object], statics: tuple[object, ...],
        outs: Sequence[Tensor] | None, in_place: bool,
    ) -> Tensor | tuple[Tensor, ...]:  # fmt: skip
        """Pass a call on, and record its span.

        Args:
            record: The op.
            operands: Tensors, numbers or None.
            statics: The static arguments.
            outs: The tensors to write; None for fresh results.
            in_place: True for an in-place op, False for `out=`.

        Returns:
            The call's result.
        """
        span = Span(record.name + "_" * in_place, "op", threading.get_ident(), 0, 0)
        if self.shapes:
            span.shapes = tuple(list(o.meta.shape) if isinstance(o, Tensor) else [] for o in operands)
        if self.stack:
            span.stack = _stack()
        device = next((o.meta.device for o in (*operands, *(outs or ())) if isinstance(o, Tensor)), None)
        driver = device._driver if device is not None and self.memory else None
        level_before = self.recording.level(driver) if driver is not None else 0
        span.begin = now()
        try:
            result: Tensor | tuple[Tensor, ...] = self.proceed(record, operands, statics, outs, in_place)
        finally:
            span.end = now()
            self.recording.spans.append(span)
        if self.memory:
            if device is None:
                device = (result[0] if isinstance(result, tuple) else result).meta.device
            span.device = str(device)
            span.memory = self.recording.level(device.driver) - level_before if driver is not None else 0
        return result

    def _begin_step(self, optimizer: Optimizer, *_: object) -> None:
        self._steps.append((id(optimizer), now()))

    def _end_step(self, optimizer: Optimizer, *_: object) -> None:
        while self._steps:  # skip entries of steps that raised an exception
            optimizer_id, begin = self._steps.pop()
            if optimizer_id == id(optimizer):
                name = f"Optimizer.step#{type(optimizer).__name__}.step"
                self.recording.spans.append(Span(name, "annotation", threading.get_ident(), begin, now()))
                return


def _stack() -> tuple[str, ...]:
    """Return the user's stack frames, the innermost first."""
    frames = []
    frame: FrameType | None = sys._getframe(2)
    while frame is not None:
        code, module = frame.f_code, str(frame.f_globals.get("__name__"))
        if not module.startswith(_OWN_PREFIX) and not code.co_filename.startswith("<"):
            frames.append(f"{code.co_filename}({frame.f_lineno}): {code.co_name}")
        frame = frame.f_back
    return tuple(frames)
