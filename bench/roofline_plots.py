"""Plot rooflines: rows as points, below the limits that were measured on their device (`roofline`)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from .plot_axes import COLOURS, Plan, in_short, round_ticks, ticks_up
from .roofline import Best, Roof, is_below_roof, rates, roofs
from .rows import Entry, number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["plans"]

_GIGA = 1e-9
_DASHES = ("-", "--", ":", "-.")
_MARKERS = "os^Dv"  # each with all colours
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Panel:
    """One kind of rows. axis: what lies along the x axis, arithmetic intensity, bytes or operations of a call."""

    axis: Literal["intensity", "bytes", "operations"]
    title: str
    x_label: str
    y_label: str

    def point(self, entry: Entry) -> Point | None:
        """Return a row's x, and its rate per second; None if the row belongs to another panel."""
        bytes_rate, flops_rate = rates(entry)
        if bytes_rate and flops_rate:
            return (entry.flops / entry.bytes, flops_rate) if self.axis == "intensity" else None
        if bytes_rate:
            return (entry.bytes, bytes_rate) if self.axis == "bytes" else None
        return (entry.flops, flops_rate) if flops_rate and self.axis == "operations" else None


_PANELS = (
    _Panel("intensity", "rows with bytes and operations", "operations a byte", "GFLOP/s"),
    _Panel("bytes", "rows with bytes", "bytes a call", "GB/s"),
    _Panel("operations", "rows with operations", "work of a call, operations", "GFLOP/s"),
)


def plans(kernels: Sequence[Entry]) -> Iterator[Plan]:
    """Yield the plan of a figure for each device, with a panel for each kind of rows that it has."""
    for hardware, roof in roofs(kernels).items():
        entries = [e for e in kernels if e.hardware == hardware and is_below_roof(e)]
        panels = [panel for panel in _PANELS if any(panel.point(e) for e in entries)]
        if panels:
            devices = ", ".join(dict.fromkeys(e.device for e in entries))
            yield (f"Roofline, {hardware} ({devices})", (1 + 5.5 * len(panels), 4.6),
                   partial(_draw, entries=entries, roof=roof, panels=panels))  # fmt: skip


def _draw(figure: Figure, entries: list[Entry], roof: Roof, panels: Sequence[_Panel]) -> None:
    for axes, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        rows = [(entry, point) for entry in entries if (point := panel.point(entry))]
        _draw_points(axes, rows)
        axes.set_xscale("log")
        axes.set_yscale("log")
        low, high = min(x for _, (x, _) in rows) / 2, max(x for _, (x, _) in rows) * 2
        peaks = [(f"{kind}: ", peak) for kind, peak in roof.peaks.items() if kind in {e.kind for e, _ in rows}]
        if panel.axis == "bytes":
            _draw_bandwidths(axes, roof, low, high)
        elif panel.axis == "operations" or roof.bandwidth is None:
            for style, (label, peak) in enumerate(peaks):
                _draw_limit(axes, [(low, peak.rate), (high, peak.rate)], label, peak, "GFLOP/s", style)
        elif peaks:
            # Extend the x axis so that the slope of memory's bandwidth is visible.
            low = min(low, min(peak.rate for _, peak in peaks) / roof.bandwidth.rate / 6)
            _draw_slopes(axes, roof, peaks, low, high)
        ticks_up(axes, min(y for _, (_, y) in rows) * _GIGA / 2, axes.get_ylim()[1] * 1.2)
        ticks = round_ticks(low, high)
        axes.set_xticks(ticks, [in_short(tick) for tick in ticks])
        axes.tick_params(axis="x", which="minor", bottom=False, labelbottom=False)
        axes.set_xlim(low, high)
        axes.set(xlabel=panel.x_label, ylabel=panel.y_label, title=panel.title)
        axes.grid(True, which="major", alpha=0.3)
        axes.legend(fontsize=7.5, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2, frameon=False)


def _draw_points(axes: Axes, rows: Sequence[tuple[Entry, Point]]) -> None:
    """Draw a point for each row, in a colour and shape for each device and group."""
    groups = list(dict.fromkeys((e.device, e.group) for e, _ in rows))
    has_several_devices = len({device for device, _ in groups}) > 1
    for i, (device, group) in enumerate(groups):
        points = [point for e, point in rows if (e.device, e.group) == (device, group)]
        axes.scatter([x for x, _ in points], [y * _GIGA for _, y in points], s=26, alpha=0.85, linewidths=0.5,
                     edgecolors="white", color=COLOURS[i % len(COLOURS)],
                     marker=_MARKERS[i // len(COLOURS) % len(_MARKERS)],
                     label=f"{group} ({device})" if has_several_devices else group, zorder=3)  # fmt: skip


def _draw_bandwidths(axes: Axes, roof: Roof, low: float, high: float) -> None:
    """Draw memory's bandwidth, and by steps that of caches for data of a size and larger."""
    if roof.bandwidth is not None:
        rate = roof.bandwidth.rate
        _draw_limit(axes, [(low, rate), (high, rate)], "memory: ", roof.bandwidth, "GB/s", 0)
    best = roof.cache()
    if best is not None:
        sizes = sorted({float(size) for size, _ in roof.cached})
        steps: list[Point] = []
        for begin, end in zip([low, *sizes], sizes, strict=False):
            cache = roof.cache(int(end))
            if cache is not None:
                steps += [(begin, cache.rate), (end, cache.rate)]
        _draw_limit(axes, steps, "caches: ", best, "GB/s", 1)


def _draw_slopes(axes: Axes, roof: Roof, peaks: Sequence[tuple[str, Best]], low: float, high: float) -> None:
    """Draw each peak with the slope of memory's bandwidth below it; the highest one with that of the caches, too."""
    bandwidths = [roof.bandwidth, roof.cache()]
    limits = [(label, peak, bandwidths[0]) for label, peak in peaks]
    limits.append(("in caches, ", max((peak for _, peak in peaks), key=lambda b: b.rate), bandwidths[1]))
    for style, (label, peak, bandwidth) in enumerate(limits):
        if bandwidth is not None:
            ridge = min(max(peak.rate / bandwidth.rate, low), high)
            levels = [(x, min(peak.rate, x * bandwidth.rate)) for x in sorted({low, high, ridge})]
            _draw_limit(axes, levels, label, peak, "GFLOP/s", style)


def _draw_limit(axes: Axes, points: Sequence[Point], label: str, best: Best, unit: str, style: int) -> None:
    """Draw a line through points, whose label has the rate and the row that reached it."""
    text = f"{label}{number(best.rate * _GIGA)} {unit} by {best.row}" + ("~" if best.doubts else "")
    axes.plot([x for x, _ in points], [y * _GIGA for _, y in points], _DASHES[style % len(_DASHES)], color="black",
              linewidth=1.2, label=text)  # fmt: skip
