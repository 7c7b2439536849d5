"""PyTorch's switches for deterministic algorithms. Every algorithm here is deterministic, so they have no effect.

Sums are computed in a fixed order on every device, without floating-point atomics: the same call on the same device
gives the same bits, whatever the setting. The functions only store and return it.
"""

from __future__ import annotations

from ..runtime.errors import ArgumentError

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode",
    "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode", "use_deterministic_algorithms",
]  # fmt: skip

_MODES = ("default", "warn", "error")
_settings = {"enabled": False, "warn_only": False}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Store the setting; all algorithms are deterministic anyway.

    Args:
        mode: The setting that `are_deterministic_algorithms_enabled` returns.
        warn_only: The setting that `is_deterministic_algorithms_warn_only_enabled` returns.

    Raises:
        ArgumentError: Unless both are bools.

    Example:
        >>> wg.use_deterministic_algorithms(False)
    """
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise ArgumentError(f"use_deterministic_algorithms: {name} must be True or False, not {value!r}")
    _settings.update(enabled=mode, warn_only=warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Return the mode set with `use_deterministic_algorithms`.

    Returns:
        Python bool; False at first.

    Example:
        >>> wg.use_deterministic_algorithms(True)
        >>> wg.are_deterministic_algorithms_enabled()
        True
        >>> wg.use_deterministic_algorithms(False)
    """
    return _settings["enabled"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Return the `warn_only` set with `use_deterministic_algorithms`.

    Returns:
        Python bool; False at first.

    Example:
        >>> wg.is_deterministic_algorithms_warn_only_enabled()
        False
    """
    return _settings["warn_only"]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """Set the mode by number or name: 0 "default", 1 "warn", 2 "error".

    Args:
        debug_mode: Number or name.

    Raises:
        ArgumentError: For other values.

    Example:
        >>> wg.set_deterministic_debug_mode('warn')
        >>> wg.get_deterministic_debug_mode()
        1
        >>> wg.set_deterministic_debug_mode('default')
    """
    is_known_mode = (
        debug_mode in _MODES if isinstance(debug_mode, str) else type(debug_mode) is int and 0 <= debug_mode <= 2
    )
    if not is_known_mode:
        raise ArgumentError(f"set_deterministic_debug_mode: one of 0, 1, 2 or {', '.join(_MODES)}, not {debug_mode!r}")
    mode = _MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """Return 0, 1 or 2; see `set_deterministic_debug_mode`.

    Returns:
        Python int.

    Example:
        >>> wg.get_deterministic_debug_mode()
        0
    """
    return 0 if not _settings["enabled"] else 1 if _settings["warn_only"] else 2
