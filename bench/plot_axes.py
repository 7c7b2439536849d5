"""What plots share: colours, ticks of logarithmic axes, figures that take so much and no more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["COLOURS", "colours", "in_short", "parts", "round_ticks", "ticks_up"]

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#6f6f6f")  # Okabe and Ito's palette
_FIXED = {"torch": "#d55e00", "numpy": "#009e73", "cupy": "#cc79a7", "jax": "#e69f00", "tinygrad": "#56b4e9"}
_ROUND = ((1,), (1, 2, 5), (1, 1.5, 2, 3, 5, 7), (1, 1.2, 1.4, 1.6, 1.8, 2, 2.5, 3, 3.5, 4, 5, 6, 7, 8, 9))


def colours(names: Sequence[str]) -> dict[str, str]:
    """A colour for each name, the same one for a library wherever it is; others have those that are not taken."""
    found = {name: _FIXED[name] for name in names if name in _FIXED}
    free = [colour for colour in COLOURS if colour not in found.values()]
    others = [name for name in dict.fromkeys(names) if name not in found]
    return found | {name: free[i % len(free)] for i, name in enumerate(others)}


def parts(items: list[Any], most: int) -> Iterator[list[Any]]:
    """Runs of `most` items, the last one of what is left."""
    for begin in range(0, len(items), max(most, 1)):
        yield items[begin : begin + most]


def ticks_up(axes: Any, low: float, high: float) -> None:
    """Round numbers, written out, up a logarithmic axis."""
    ticks = round_ticks(low, high)
    axes.set_yticks(ticks, [f"{tick:g}" if tick < 1e6 else f"{tick:.0e}" for tick in ticks])
    axes.tick_params(axis="y", which="minor", left=False, labelleft=False)
    axes.set_ylim(low, high)


def in_short(value: float) -> str:
    """`200`, `50K`, `1M`, `2G`: powers of 1000."""
    for unit, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("K", 1e3)):
        if value >= size * 0.9999:
            return f"{value / size:g}{unit}"
    return f"{value:g}"


def round_ticks(low: float, high: float) -> list[float]:
    """Four round numbers or more between two, the roundest ones that are so many."""
    found: list[float] = []
    for digits in _ROUND:
        found = [m * 10.0**p for p in range(-12, 13) for m in digits if low <= m * 10.0**p <= high]
        if len(found) > 3:
            break
    return found
