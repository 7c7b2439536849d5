"""PyTorch's switches for deterministic algorithms. Here every algorithm is deterministic, so they choose nothing.

Sums are made in a fixed order on every device, without atomics on floats: the same call on the same device gives the
same bits, whichever way these are set. What was set is remembered and told.
"""

from __future__ import annotations

from typing import Any

from .runtime.errors import ArgumentError

__all__ = [
    "are_deterministic_algorithms_enabled", "get_deterministic_debug_mode",
    "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode", "use_deterministic_algorithms",
]  # fmt: skip

_MODES = ("default", "warn", "error")
_set = {"enabled": False, "warn_only": False}


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Ask for deterministic algorithms: what all are, with or without. Raises `ArgumentError` for what is no bool."""
    for name, value in (("mode", mode), ("warn_only", warn_only)):
        if not isinstance(value, bool):
            raise ArgumentError(f"use_deterministic_algorithms: {name} must be True or False, not {value!r}")
    _set.update(enabled=mode, warn_only=warn_only)


def are_deterministic_algorithms_enabled() -> bool:
    """Whether `use_deterministic_algorithms` was asked for. Algorithms are deterministic if not, too."""
    return _set["enabled"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether it was asked for with `warn_only`. There is nothing to warn of."""
    return _set["warn_only"]


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """The same switch by a number or a word: 0 "default", 1 "warn", 2 "error". Raises `ArgumentError`."""
    known = debug_mode in _MODES if isinstance(debug_mode, str) else type(debug_mode) is int and 0 <= debug_mode <= 2
    if not known:
        raise ArgumentError(f"set_deterministic_debug_mode: one of 0, 1, 2 or {', '.join(_MODES)}, not {debug_mode!r}")
    mode = _MODES.index(debug_mode) if isinstance(debug_mode, str) else debug_mode
    use_deterministic_algorithms(mode > 0, warn_only=mode == 1)


def get_deterministic_debug_mode() -> int:
    """0, 1 or 2: see `set_deterministic_debug_mode`."""
    return 0 if not _set["enabled"] else 1 if _set["warn_only"] else 2
