"""Helpers that plots share: colours, ticks of logarithmic axes, splitting rows into figures."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["COLOURS", "Plan", "chunks", "colours", "in_short", "round_ticks", "ticks_up"]

T = TypeVar("T")
Plan: TypeAlias = "tuple[str, tuple[float, float], Callable[[Figure], None]]"
"""A figure's title, its size in inches, and a function that draws it."""
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f6f6f")  # Okabe and Ito's palette
_FIXED = {"torch": "#d55e00", "numpy": "#009e73", "cupy": "#cc79a7", "jax": "#e69f00", "tinygrad": "#56b4e9"}
_ROUND = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9))


def colours(names: Sequence[str]) -> dict[str, str]:
    """Return a colour for each name. A library always has the same colour; other names get the remaining ones."""
    fixed = {name: _FIXED[name] for name in names if name in _FIXED}
    free = [colour for colour in COLOURS if colour not in fixed.values()]
    other_names = [name for name in dict.fromkeys(names) if name not in fixed]
    return fixed | {name: free[i % len(free)] for i, name in enumerate(other_names)}


def chunks(items: list[T], size: int) -> Iterator[list[T]]:
    """Yield chunks of `size` items; the last one may be shorter."""
    for begin in range(0, len(items), max(size, 1)):
        yield items[begin : begin + size]


def ticks_up(axes: Axes, low: float, high: float) -> None:
    """Set round tick values on a logarithmic y axis, written without exponents up to a million."""
    ticks = round_ticks(low, high)
    axes.set_yticks(ticks, [f"{tick:g}" if tick < 1e6 else f"{tick:.0e}" for tick in ticks])
    axes.tick_params(axis="y", which="minor", left=False, labelleft=False)
    axes.set_ylim(low, high)


def in_short(value: float) -> str:
    """Return a number with a unit prefix (powers of 1000): `200`, `50K`, `1M`, `2G`."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= size * 0.9999:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def round_ticks(low: float, high: float) -> list[float]:
    """Return at least four round numbers between `low` and `high`, with as few digits as possible."""
    ticks: list[float] = []
    for digits in _ROUND:
        ticks = [m * 10.0**p for p in range(-12, 13) for m in digits if low <= m * 10.0**p <= high]
        if len(ticks) > 3:
            break
    return ticks
