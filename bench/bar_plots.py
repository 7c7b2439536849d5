"""Bar plots: time ratios between peers and a device by row and by group of rows, and times of several devices.

Two devices are compared only by rows that both have: the same op, dtype and shapes, with correct results on both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from statistics import geometric_mean
from typing import TYPE_CHECKING, TypeVar

from .plot_axes import Plan, chunks, colours, round_ticks
from .rows import Entry

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plans"]

T = TypeVar("T")
Ratio = tuple[tuple[float, float], bool]
"""A peer's time / our time of (minima, medians), and whether an aim was missed."""
Ratios = dict[str, dict[str, Ratio]]
"""By row and peer."""
_MAX_ROWS = 34  # per figure
_WIDTH_INCHES = 9.0


def plans(kernels: Sequence[Entry]) -> Iterator[Plan]:
    """Yield the plans of all figures."""
    our_devices = {e.device for e in kernels}
    for site in dict.fromkeys((e.hardware, e.device) for e in kernels):
        means = _group_means([e for e in kernels if (e.hardware, e.device) == site], our_devices)
        if len(means) > 1:
            yield from _figures(f"Overview, {site[0]} ({site[1]})", list(means.items()), _draw_ratios)
    for suite in dict.fromkeys(e.suite for e in kernels):
        suite_entries = [e for e in kernels if e.suite == suite]
        devices = list(dict.fromkeys((e.hardware, e.device) for e in suite_entries))
        for device in devices:
            ratios = _ratios([e for e in suite_entries if (e.hardware, e.device) == device], {d for _, d in devices})
            title = f"Ratios to peers, {suite}" + (f", {device[0]} ({device[1]})" if len(devices) > 1 else "")
            yield from _figures(title, list(ratios.items()), _draw_ratios)
        if len(devices) > 1:
            yield from _figures(f"Devices, {suite}", list(_side_by_side(suite_entries).items()), _draw_devices)


def _figures(title: str, rows: list[tuple[str, dict[str, T]]], draw: Callable[..., None]) -> Iterator[Plan]:
    """Split rows into figures of readable height. A series has the same colour in all of them."""
    colour_of = colours(sorted({name for _, values in rows for name in values}))
    figure_count = -(-len(rows) // _MAX_ROWS)
    rows_per_figure = -(-len(rows) // max(figure_count, 1))
    for number, part in enumerate(chunks(rows, rows_per_figure)):
        series = sorted({name for _, values in part for name in values})
        height = 1.6 + len(part) * max(0.2, 0.09 + 0.11 * len(series))
        suffix = f", {number + 1} of {figure_count}" if figure_count > 1 else ""
        yield title + suffix, (_WIDTH_INCHES, height), partial(draw, rows=part, colours=colour_of)


def _ratios(entries: Sequence[Entry], devices: set[str]) -> Ratios:
    """Return, by row and peer, the ratios (minima, medians) and whether an aim was missed.

    `devices` are our own: another plot compares them.
    """
    ratios: Ratios = {}
    for entry in entries:
        for peer in entry.peers:
            ratio = entry.ratio(peer)
            if ratio and peer not in devices - {entry.device}:
                ratios.setdefault(f"{entry.group}: {entry.name}", {})[peer] = ratio, peer in entry.missed
    return ratios


def _group_means(entries: Sequence[Entry], devices: set[str]) -> Ratios:
    """Return, by group of rows and peer, the geometric means of the ratios (minima, medians). No aim is missed here."""
    samples: dict[str, dict[str, list[tuple[tuple[float, float], bool]]]] = {}
    for entry in entries:
        for values in _ratios([entry], devices).values():
            for peer, ratio in values.items():
                samples.setdefault(entry.group, {}).setdefault(peer, []).append(ratio)
    return {
        group: {
            peer: (
                (geometric_mean([minimum for (minimum, _), _ in ratios]),
                 geometric_mean([median for (_, median), _ in ratios])),
                False,
            )
            for peer, ratios in by_peer.items()
        }
        for group, by_peer in samples.items()
    }  # fmt: skip


def _side_by_side(entries: Sequence[Entry]) -> dict[str, dict[str, tuple[float, float]]]:
    """Return (minimum, median) microseconds by row and device, for rows that at least two devices have."""
    times_by_row: dict[str, dict[str, tuple[float, float]]] = {}
    for entry in entries:
        if entry.time is not None:
            times = entry.time["least"] * 1e6, entry.time["median"] * 1e6
            row = times_by_row.setdefault(f"{entry.group}: {entry.name}", {})
            row[f"{entry.hardware} ({entry.device})"] = times
    return {name: row for name, row in times_by_row.items() if len(row) > 1}


def _bars(rows: Sequence[tuple[str, dict[str, T]]], name: str, thickness: float) -> Iterator[tuple[float, T]]:
    """Yield each bar's y position and value for one series. A row's bars are centred on the row."""
    for y, (_, values) in enumerate(rows):
        if name in values:
            names = sorted(values)
            yield y + (names.index(name) - (len(names) - 1) / 2) * thickness, values[name]


def _draw_ratios(figure: Figure, rows: list[tuple[str, dict[str, Ratio]]], colours: Mapping[str, str]) -> None:
    axes = figure.subplots()
    series = sorted({name for _, ratios in rows for name in ratios})
    thickness = 0.8 / len(series)
    values = [value for _, ratios in rows for ratio, _ in ratios.values() for value in ratio]
    for i, name in enumerate(series):
        bar_positions = list(_bars(rows, name, thickness))
        bars = axes.barh([y for y, _ in bar_positions], [ratio[0] - 1 for _, (ratio, _) in bar_positions],
                         thickness * 0.92, left=1, color=colours[name], label=f"{name} / ours, minima")  # fmt: skip
        for bar, (_, (_, missed)) in zip(bars, bar_positions, strict=True):
            if missed:
                bar.set(hatch="////", edgecolor="white", linewidth=0)
        _medians(axes, [(y, ratio[1]) for y, (ratio, _) in bar_positions], i == len(series) - 1)
    axes.axvline(1, color="black", linewidth=1)
    _set_x_scale(axes, min(*values, 0.5) / 1.15, max(*values, 2) * 1.15)
    _label_rows(axes, rows)
    axes.set_xlabel("the other's time by ours: right of 1 ours is faster\nhatched: an aim was missed", fontsize=8)
    _legend(figure, series)


def _draw_devices(
    figure: Figure, rows: list[tuple[str, dict[str, tuple[float, float]]]], colours: Mapping[str, str]
) -> None:
    axes = figure.subplots()
    series = sorted({name for _, times_by_device in rows for name in times_by_device})
    thickness = 0.8 / len(series)
    values = [value for _, times_by_device in rows for times in times_by_device.values() for value in times]
    low = min(values) / 1.5
    for i, name in enumerate(series):
        bar_positions = list(_bars(rows, name, thickness))
        axes.barh([y for y, _ in bar_positions], [least - low for _, (least, _) in bar_positions], thickness * 0.92,
                  left=low, color=colours[name], label=f"{name}, minima")  # fmt: skip
        _medians(axes, [(y, median) for y, (_, median) in bar_positions], i == len(series) - 1)
    _set_x_scale(axes, low, max(values) * 1.15)
    _label_rows(axes, rows)
    axes.set_xlabel("µs a call, the same op, dtype and shapes on each: further left is faster", fontsize=8)
    _legend(figure, series)


def _medians(axes: Axes, points: Sequence[tuple[float, float]], named: bool) -> None:
    axes.scatter([x for _, x in points], [y for y, _ in points], marker="|", s=28, color="black", linewidths=1.2,
                 zorder=3, label="medians" if named else None)  # fmt: skip


def _set_x_scale(axes: Axes, low: float, high: float) -> None:
    axes.set_xscale("log")
    ticks = round_ticks(low, high)
    axes.set_xticks(ticks, [f"{tick:g}" if tick < 1e6 else f"{tick:.0e}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlim(low, high)


def _label_rows(axes: Axes, rows: Sequence[tuple[str, object]]) -> None:
    axes.set_yticks(range(len(rows)), [label for label, _ in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_axisbelow(True)
    axes.grid(True, axis="x", alpha=0.3)


def _legend(figure: Figure, series: Sequence[str]) -> None:
    columns = max(1, min(3, 110 // (16 + max(map(len, series)))))  # as many as fit into the width
    figure.legend(loc="outside lower center", ncols=columns, frameon=False, fontsize=8)
