"""Plots of training steps: memory over the first steps, and a timeline of host and device for one step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .plot_axes import Plan
from .steps import Curve, Timeline, curves, timelines

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .report_types import Report

__all__ = ["plans"]

_KERNELS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")  # colours of the longest kernels
_OTHER_KERNELS, _HOST, _BACKWARD, _CALLS = "#9a9a9a", "#b8c4d6", "#d9c5a0", "#6d8bb3"
_LABELS = {"host": "host: ranges", "calls": "host: calls"}
_UNITS = ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB"), (1, "bytes"))


def plans(reports: Sequence[Report]) -> Iterator[Plan]:
    """Yield the plans of all figures."""
    for report in reports:
        for curve in curves(report):
            if curve.steps:
                yield f"Memory, {curve.name} ({curve.device})", (9.0, 3.6), partial(_memory, curve=curve)
        for line in timelines(report):
            if any(line.bars.values()):
                high = 1.6 + 0.55 * len(line.bars) + 0.2 * 3
                yield f"Timeline, {line.name} ({line.device})", (11.0, high), partial(_timeline, line=line)


def _memory(figure: Figure, curve: Curve) -> None:
    """Draw reserved memory, peak within a step and memory in use after it; below, driver calls as bars."""
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 1))
    numbers = list(range(1, len(curve.steps) + 1))
    max_bytes = max(max(step["reserved"], step["peak"]) for step in curve.steps)
    size, unit = next((s, u) for s, u in _UNITS if max_bytes >= s or s == 1)
    for values, label, colour, style in (
        ([step["reserved"] for step in curve.steps], "held from the driver", "#d55e00", "o-"),
        ([step["peak"] for step in curve.steps], "most in use within the step", "#0072b2", "o-"),
        ([step["allocated"] for step in curve.steps], "in use behind the step", "#009e73", "o--"),
    ):
        upper.plot(numbers, [value / size for value in values], style, markersize=4, color=colour, label=label)
    upper.set(ylabel=unit)
    upper.set_ylim(0, max_bytes / size * 1.12 or 1)
    upper.grid(True, alpha=0.3)
    for heights, label, colour in (
        ([step["driver_allocations"] for step in curve.steps], "taken", "#d55e00"),
        ([-step["driver_frees"] for step in curve.steps], "given back", "#56b4e9"),
    ):
        lower.bar(numbers, heights, 0.5, color=colour, label=f"segments {label}")
    lower.axhline(0, color="black", linewidth=0.8)
    high = max([step["driver_allocations"] for step in curve.steps] + [1])
    low = max(step["driver_frees"] for step in curve.steps)
    lower.set_ylim(-low * 1.2, high * 1.2)
    lower.yaxis.get_major_locator().set_params(integer=True, nbins=3)
    lower.set_xticks(numbers)
    lower.set(xlabel="step", ylabel="calls of\nthe driver")
    lower.grid(True, axis="y", alpha=0.3)
    figure.legend(loc="outside lower center", ncols=5, frameon=False, fontsize=8)


def _timeline(figure: Figure, line: Timeline) -> None:
    """Draw one lane for the host's ranges, one for its calls, and one for each device's kernels."""
    axes = figure.subplots()
    devices = [lane for lane in line.bars if lane not in _LABELS]
    kernel_time: dict[str, float] = {}
    for lane in devices:
        for _, length, name in line.bars[lane]:
            kernel_time[name] = kernel_time.get(name, 0.0) + length
    longest = sorted(kernel_time, key=lambda name: -kernel_time[name])
    colour_of = dict(zip(longest, _KERNELS, strict=False))
    scale, unit = (1e-3, "ms") if line.span >= 2000 else (1.0, "µs")
    labels = []
    for row, lane in enumerate(line.bars):
        bars = sorted(line.bars[lane], key=lambda bar: (bar[0], -bar[1]))
        colours = [_colour(lane, name, colour_of) for _, _, name in bars]
        axes.broken_barh([(begin * scale, max(length, line.span / 4000) * scale) for begin, length, _ in bars],
                         (row - 0.4, 0.8), facecolors=colours, edgecolors="white", linewidths=0.3)  # fmt: skip
        if lane in _LABELS:
            _write_names(axes, bars, row, line.span, scale)
        labels.append(f"{_LABELS.get(lane, f'kernels of {lane}')}\nbusy {line.busy(lane) / line.span:.0%}")
    axes.set_yticks(range(len(labels)), labels, fontsize=8)
    axes.set_ylim(len(labels) - 0.4, -0.6)
    axes.set_xlim(0, line.span * scale)
    axes.set(xlabel=f"{unit} since the step began; the step took {line.span * scale:.4g} {unit}")
    axes.grid(True, axis="x", alpha=0.3)
    from matplotlib.patches import Patch  # lazy: optional dependency

    handles = [
        Patch(color=colour, label=f"{name} {kernel_time[name] / line.span:.0%}") for name, colour in colour_of.items()
    ]
    if len(kernel_time) > len(colour_of):
        other_time = sum(kernel_time.values()) - sum(kernel_time[name] for name in colour_of)
        handles.append(Patch(color=_OTHER_KERNELS, label=f"other kernels {other_time / line.span:.0%}"))
    if handles:
        figure.legend(handles=handles, loc="outside lower center", ncols=4, frameon=False, fontsize=8)


def _colour(lane: str, name: str, named: Mapping[str, str]) -> str:
    if lane == "host":
        return _BACKWARD if name.endswith("_backward") else _HOST
    return _CALLS if lane == "calls" else named.get(name, _OTHER_KERNELS)


def _write_names(axes: Axes, bars: Sequence[tuple[float, float, str]], row: int, span: float, scale: float) -> None:
    """Write names into the bars that are wide enough."""
    for begin, length, name in bars:
        short = name.removeprefix("Optimizer.step#").removesuffix("_backward")
        if length / span > 0.0068 * len(short) + 0.005:
            axes.text((begin + length / 2) * scale, row, short, ha="center", va="center", fontsize=6.5, clip_on=True)
