"""Anomaly detection: say which forward call a gradient with NaN belongs to."""

from __future__ import annotations

import traceback
from typing import Any, Self

from ..runtime.context import state
from ..runtime.modes import Mode
from ..runtime.records import OpRecord

__all__ = ["detect_anomaly", "set_detect_anomaly"]


class detect_anomaly(Mode):
    """A context that reports where a NaN gradient comes from.

    Inside, every node stores the Python stack of its forward call. A NaN in a gradient raises `AnomalyError`, which
    names the backward function and that call.

    Args:
        check_nan: Check gradients for NaN; False only stores the stacks.

    Raises:
        AnomalyError: From backward, if a gradient contains NaN.

    Example:
        >>> x = wg.zeros(1, requires_grad=True)
        >>> try:
        ...     with wg.autograd.detect_anomaly():
        ...         (x / x).sum().backward()
        ... except RuntimeError as error:
        ...     print(type(error).__name__)
        ...
        AnomalyError
    """

    def __init__(self, check_nan: bool = True):
        self._checks_nan = check_nan
        self._previous = False

    def __enter__(self) -> Self:
        thread_state = state()
        self._previous = thread_state.anomaly
        thread_state.anomaly = self._checks_nan
        return super().__enter__()

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        state().anomaly = self._previous

    def call(self, record: OpRecord, operands: Any, statics: Any, outs: Any, in_place: bool) -> Any:
        """Run the op and store the stack in its node."""
        outputs = self.proceed(record, operands, statics, outs, in_place)
        for result in outputs if isinstance(outputs, tuple) else (outputs,):
            if result.node is not None and result.node.trace is None:
                result.node.trace = "".join(traceback.format_stack(limit=_TRACE_FRAMES)[:-2])
        return outputs


_TRACE_FRAMES = 12  # stack frames in an error message
_active_detectors: list[detect_anomaly] = []


class set_detect_anomaly:
    """Switch anomaly detection on or off for this thread.

    As a context manager, restore the previous setting at the end.

    Args:
        mode: Whether to detect anomalies.
        check_nan: Check gradients for NaN; False only stores the stacks.

    Example:
        >>> with wg.autograd.set_detect_anomaly(True):
        ...     wg.ones(1, requires_grad=True).sum().backward()
        ...
    """

    def __init__(self, mode: bool, check_nan: bool = True):
        self._previous = bool(_active_detectors)
        self._switch(mode, check_nan)

    @staticmethod
    def _switch(mode: bool, check_nan: bool = True) -> None:
        if mode and not _active_detectors:
            _active_detectors.append(detect_anomaly(check_nan).__enter__())
        elif not mode and _active_detectors:
            _active_detectors.pop().__exit__()

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        self._switch(self._previous)
