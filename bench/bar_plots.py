"""Plots of bars: how much longer peers take than a device, and devices beside each other where both have a row.

Devices are compared by the same rows alone: the same op, dtype and shapes, and right on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from .plot_axes import colours, parts, round_ticks
from .rows import Entry

__all__ = ["plans"]

Ratios = dict[str, dict[str, tuple[tuple[float, float], bool]]]
_MOST = 34  # rows of a figure
_WIDE = 9.0  # inches


def plans(kernels: Sequence[Entry]) -> Iterator[tuple[str, tuple[float, float], Callable[[Any], None]]]:
    """What there is to draw: title, size in inches, and a function that fills a figure."""
    for suite in dict.fromkeys(e.suite for e in kernels):
        own = [e for e in kernels if e.suite == suite]
        places = list(dict.fromkeys((e.hardware, e.device) for e in own))
        for place in places:
            ratios = _ratios([e for e in own if (e.hardware, e.device) == place], {d for _, d in places})
            title = f"Ratios to peers, {suite}" + (f", {place[0]} ({place[1]})" if len(places) > 1 else "")
            yield from _figures(title, list(ratios.items()), _draw_ratios)
        if len(places) > 1:
            yield from _figures(f"Devices, {suite}", list(_side_by_side(own).items()), _draw_devices)


def _figures(
    title: str, rows: list[tuple[str, dict[str, Any]]], draw: Callable[..., None]
) -> Iterator[tuple[str, tuple[float, float], Callable[[Any], None]]]:
    """Figures of no more rows than can be read; a series has one colour in all of them."""
    chosen = colours(sorted({name for _, found in rows for name in found}))
    count = -(-len(rows) // _MOST)
    each = -(-len(rows) // max(count, 1))
    for number, some in enumerate(parts(rows, each)):
        series = sorted({name for _, found in some for name in found})
        high = 1.6 + len(some) * max(0.2, 0.09 + 0.11 * len(series))
        more = f", {number + 1} of {count}" if count > 1 else ""
        yield title + more, (_WIDE, high), partial(draw, rows=some, colours=chosen)


def _ratios(entries: Sequence[Entry], devices: set[str]) -> Ratios:
    """By row and peer: ratios of minima and medians, and whether an aim was missed. `devices` are not among peers:
    they are compared where all of them are."""
    found: Ratios = {}
    for entry in entries:
        for peer in entry.peers:
            ratio = entry.ratio(peer)
            if ratio and peer not in devices - {entry.device}:
                found.setdefault(f"{entry.group}: {entry.name}", {})[peer] = ratio, peer in entry.missed
    return found


def _side_by_side(entries: Sequence[Entry]) -> dict[str, dict[str, tuple[float, float]]]:
    """By row and device: microseconds, least and median; rows that two devices or more have."""
    found: dict[str, dict[str, tuple[float, float]]] = {}
    for entry in entries:
        if entry.time is not None:
            times = entry.time["least"] * 1e6, entry.time["median"] * 1e6
            row = found.setdefault(f"{entry.group}: {entry.name}", {})
            row[f"{entry.hardware} ({entry.device})"] = times
    return {name: row for name, row in found.items() if len(row) > 1}


def _places(rows: Sequence[tuple[str, dict[str, Any]]], name: str, thick: float) -> Iterator[tuple[float, Any]]:
    """Where a series' bars lie, and what they show: those of a row around its middle, however many it has."""
    for y, (_, found) in enumerate(rows):
        if name in found:
            own = sorted(found)
            yield y + (own.index(name) - (len(own) - 1) / 2) * thick, found[name]


def _draw_ratios(figure: Any, rows: list[tuple[str, dict[str, Any]]], colours: Mapping[str, str]) -> None:
    axes = figure.subplots()
    series = sorted({name for _, found in rows for name in found})
    thick = 0.8 / len(series)
    values = [value for _, found in rows for ratio, _ in found.values() for value in ratio]
    for i, name in enumerate(series):
        places = list(_places(rows, name, thick))
        bars = axes.barh([y for y, _ in places], [ratio[0] - 1 for _, (ratio, _) in places], thick * 0.92, left=1,
                         color=colours[name], label=f"{name} / ours, minima")  # fmt: skip
        for bar, (_, (_, missed)) in zip(bars, places, strict=True):
            if missed:
                bar.set(hatch="////", edgecolor="white", linewidth=0)
        _medians(axes, [(y, ratio[1]) for y, (ratio, _) in places], i == len(series) - 1)
    axes.axvline(1, color="black", linewidth=1)
    _across(axes, min(*values, 0.5) / 1.15, max(*values, 2) * 1.15)
    _down(axes, rows)
    axes.set_xlabel("the other's time by ours: right of 1 ours is faster\nhatched: an aim was missed", fontsize=8)
    _legend(figure, series)


def _draw_devices(figure: Any, rows: list[tuple[str, dict[str, Any]]], colours: Mapping[str, str]) -> None:
    axes = figure.subplots()
    series = sorted({name for _, found in rows for name in found})
    thick = 0.8 / len(series)
    values = [value for _, found in rows for times in found.values() for value in times]
    low = min(values) / 1.5
    for i, name in enumerate(series):
        places = list(_places(rows, name, thick))
        axes.barh([y for y, _ in places], [least - low for _, (least, _) in places], thick * 0.92, left=low,
                  color=colours[name], label=f"{name}, minima")  # fmt: skip
        _medians(axes, [(y, median) for y, (_, median) in places], i == len(series) - 1)
    _across(axes, low, max(values) * 1.15)
    _down(axes, rows)
    axes.set_xlabel("µs a call, the same op, dtype and shapes on each: further left is faster", fontsize=8)
    _legend(figure, series)


def _medians(axes: Any, points: Sequence[tuple[float, float]], named: bool) -> None:
    axes.scatter([x for _, x in points], [y for y, _ in points], marker="|", s=28, color="black", linewidths=1.2,
                 zorder=3, label="medians" if named else None)  # fmt: skip


def _across(axes: Any, low: float, high: float) -> None:
    axes.set_xscale("log")
    ticks = round_ticks(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" if tick < 1e6 else f"{tick:.0e}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)


def _down(axes: Any, rows: Sequence[tuple[str, Any]]) -> None:
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", alpha=0.3)


def _legend(figure: Any, series: Sequence[str]) -> None:
    columns = max(1, min(3, 110 // (16 + max(map(len, series)))))  # as many as the width holds
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
