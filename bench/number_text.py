"""Format numbers for tables."""

from __future__ import annotations

__all__ = ["number"]


def number(value: float) -> str:
    """Format a number with three significant digits, without an exponent: 0.0123, 4.57, 1230."""
    if value != value or abs(value) == float("inf"):
        return str(value)
    integer_digits = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if integer_digits or abs(value) >= 0.1:
        return f"{value:.{max(0, 3 - integer_digits)}f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or not value else f"{value:.1e}"
