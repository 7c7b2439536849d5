"""Switches of anomaly detection, which reports the forward call whose gradient contains NaN."""

from __future__ import annotations

from typing import Self

from ..runtime.autograd.node import set_anomaly
from ..runtime.context import anomaly

__all__ = [
    "detect_anomaly", "is_anomaly_check_nan_enabled", "is_anomaly_enabled", "set_anomaly_enabled", "set_detect_anomaly",
]  # fmt: skip


def is_anomaly_enabled() -> bool:
    """Return True if backward reports where a NaN comes from.

    Returns:
        Python bool.

    Example:
        >>> wg.is_anomaly_enabled()
        False
    """
    return anomaly.is_enabled


def is_anomaly_check_nan_enabled() -> bool:
    """Return True if anomaly detection checks gradients for NaN; it does by default.

    Returns:
        Python bool.

    Example:
        >>> with wg.autograd.detect_anomaly(check_nan=False):
        ...     print(wg.is_anomaly_check_nan_enabled())
        ...
        False
    """
    return anomaly.checks_nan


def set_anomaly_enabled(enabled: bool, check_nan: bool = True) -> None:
    """Switch anomaly detection on or off for all threads of the process.

    Args:
        enabled: Whether to detect anomalies.
        check_nan: Check gradients for NaN; False only stores the stacks.

    Example:
        >>> wg.set_anomaly_enabled(False)
    """
    set_anomaly(enabled, check_nan)


class detect_anomaly:
    """A context that reports where a NaN gradient comes from, in all threads of the process.

    Inside, every node stores the Python stack of its forward call. A NaN in a gradient raises `AnomalyError`, which
    names the backward function and that call. At the end, the previous setting returns.

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
        self._previous_settings: list[tuple[bool, bool]] = []

    def __enter__(self) -> Self:
        self._previous_settings.append(set_anomaly(True, self._checks_nan))
        return self

    def __exit__(self, *_: object) -> None:
        set_anomaly(*self._previous_settings.pop())


class set_detect_anomaly:
    """Switch anomaly detection on or off for all threads of the process.

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
        self._previous = set_anomaly(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        set_anomaly(*self._previous)
