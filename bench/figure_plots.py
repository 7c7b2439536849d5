"""Plots of `weftgrad bench --figures`: host and device of a training step, and training with and without a cache.

`figure_traces` measures them and says which figures of the PyTorch paper they repeat.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

from .figure_traces import (
    CACHED,
    PHASES,
    UNCACHED,
    CachingRun,
    HostBar,
    KernelBar,
    StepTrace,
    caching_runs,
    step_traces,
)
from .plot_axes import COLOURS, Plan
from .rows import number

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from .report_types import Report

__all__ = ["plans"]

_WIDTH = 7.0  # inches, of a page without its margins
_PHASE_COLOURS = dict(zip(PHASES, ("#0072b2", "#d55e00", "#009e73"), strict=True))
_MODE_COLOURS = {CACHED: "#0072b2", UNCACHED: "#d55e00"}
_MODE_LABELS = {CACHED: "caching allocator", UNCACHED: "no cache: a driver allocation for each block"}
_PYTHON = "#d9d9d9"
_HOST, _DEVICE = 0.0, 1.0  # rows of a trace
_HALF_BAR = 0.28
_FIRST_KERNELS = 12  # of the panel that shows a step's begin
_MAX_ARROWS = 24  # between host and device over a whole step
_MIN_NAME_DISTANCE = 0.025  # between the names of two calls, as a share of the axis
_LAST_NAME = 0.93  # names of later calls would leave the axis
_NAME_WIDTH = 0.011  # of a letter in a bar, as a share of the axis
_PALE = ("#e69f00", "#56b4e9", "#cc79a7")  # colours on which names are black


def plans(reports: Sequence[Report]) -> Iterator[Plan]:
    """Yield the plans of all figures."""
    for report in reports:
        for trace in step_traces(report):
            if trace.host and trace.kernels:
                yield f"Host and device, {trace.name} ({trace.device})", (_WIDTH, 5.2), partial(_step, trace=trace)
        for run in caching_runs(report):
            yield f"Caching allocator, {run.name} ({run.device})", (_WIDTH, 4.2), partial(_caching, run=run)


def _step(figure: Figure, trace: StepTrace) -> None:
    """Draw the whole step above, and its first operators below, with lines from a call to its kernel."""
    whole, begin = figure.subplots(2, 1, height_ratios=(2, 3))
    scale, unit = _time_unit(trace.device_end)
    whole.broken_barh([(0, trace.host_end * scale)], (_HOST - _HALF_BAR, 2 * _HALF_BAR), facecolors=_PYTHON,
                      linewidths=0)  # fmt: skip
    _bars(whole, [(bar.begin, bar.length, bar.phase) for bar in trace.host], _HOST, scale)
    _bars(whole, [(bar.begin, bar.length, bar.phase) for bar in trace.kernels], _DEVICE, scale)
    if not trace.is_synchronous:
        step = max(1, len(trace.kernels) // _MAX_ARROWS)
        for kernel in trace.kernels[::step]:
            _connect(whole, kernel, scale, _PHASE_COLOURS[kernel.phase])
    whole.set_title(_summary(trace), loc="left", fontsize=8)
    _rows(whole, trace, trace.device_end * scale, f"{unit} since the step began")
    _first_operators(begin, trace)
    from matplotlib.patches import Patch  # lazy: optional dependency

    handles = [Patch(color=_PHASE_COLOURS[phase], label=phase) for phase in trace.phase_spans()]
    handles.append(Patch(color=_PYTHON, label="host: Python between calls"))
    whole.legend(handles=handles, loc="upper center", bbox_to_anchor=(0.5, -0.26), ncols=4, frameon=False, fontsize=8)


def _first_operators(axes: Axes, trace: StepTrace) -> None:
    """Draw the first kernels and the calls that queued them. Calls that queue no kernel are left out."""
    kernels = sorted(trace.kernels, key=lambda bar: bar.queued)[:_FIRST_KERNELS]
    calls = [call for call in trace.host if any(_queues(call, kernel) for kernel in kernels)]
    intervals = [(bar.begin, bar.begin + bar.length) for bars in (calls, kernels) for bar in bars]
    first = min(begin for begin, _ in intervals)
    span = max(end for _, end in intervals) - first
    scale, unit = _time_unit(span)
    names = list(dict.fromkeys(call.name for call in calls))
    named_until = -1.0  # share of the axis
    colour_of = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(names)}
    until = (max(call.begin + call.length for call in calls) if calls else first) - first
    axes.broken_barh([(0, until * scale)], (_HOST - _HALF_BAR, 2 * _HALF_BAR), facecolors=_PYTHON, linewidths=0)
    for call in calls:
        bar = ((call.begin - first) * scale, call.length * scale)
        axes.broken_barh([bar], (_HOST - _HALF_BAR, 2 * _HALF_BAR), facecolors=colour_of[call.name],
                         edgecolors="white", linewidths=0.4)  # fmt: skip
        middle = (call.begin + call.length / 2 - first) / span
        if middle - named_until >= _MIN_NAME_DISTANCE and middle <= _LAST_NAME:
            axes.text(middle * span * scale, _HOST - _HALF_BAR - 0.05, call.name, rotation=40, rotation_mode="anchor",
                      ha="left", va="bottom", fontsize=6.5)  # fmt: skip
            named_until = middle
    for kernel in kernels:
        call_name = next((call.name for call in calls if _queues(call, kernel)), "")
        colour = colour_of.get(call_name, COLOURS[-1])
        bar = ((kernel.begin - first) * scale, kernel.length * scale)
        axes.broken_barh([bar], (_DEVICE - _HALF_BAR, 2 * _HALF_BAR), facecolors=colour, edgecolors="white",
                         linewidths=0.4)  # fmt: skip
        if kernel.length / span > _NAME_WIDTH * len(call_name) + 0.01:
            middle = (kernel.begin + kernel.length / 2 - first) * scale
            axes.text(middle, _DEVICE, call_name, ha="center", va="center", fontsize=6.5,
                      color="black" if colour in _PALE else "white")  # fmt: skip
        _connect(axes, kernel, scale, colour, first)
    title = f"the first {len(kernels)} kernels, in the colours of the calls that queued them"
    axes.set_title(title, loc="left", fontsize=8)
    _rows(axes, trace, span * scale, f"{unit} since the first call began", room=1.0)


def _queues(call: HostBar, kernel: KernelBar) -> bool:
    return call.begin <= kernel.queued <= call.begin + call.length


def _time_unit(span: float) -> tuple[float, str]:
    """Return the factor and the name of the unit for a span of microseconds."""
    return (1e-3, "ms") if span >= 2000 else (1.0, "µs")


def _bars(axes: Axes, bars: Sequence[tuple[float, float, str]], row: float, scale: float) -> None:
    """Draw bars (begin, length, phase) in the colours of their phases."""
    axes.broken_barh([(begin * scale, length * scale) for begin, length, _ in bars], (row - _HALF_BAR, 2 * _HALF_BAR),
                     facecolors=[_PHASE_COLOURS[phase] for _, _, phase in bars], linewidths=0)  # fmt: skip


def _connect(axes: Axes, kernel: KernelBar, scale: float, colour: str, origin: float = 0.0) -> None:
    """Draw a line from the host's call to the kernel's begin."""
    axes.plot([(kernel.queued - origin) * scale, (kernel.begin - origin) * scale],
              [_HOST + _HALF_BAR, _DEVICE - _HALF_BAR], color=colour, linewidth=0.7, alpha=0.8)  # fmt: skip


def _rows(axes: Axes, trace: StepTrace, end: float, label: str, room: float = 0.0) -> None:
    """Label the rows of host and device, and the axis of time. Leave `room` above for names."""
    axes.set_yticks([_HOST, _DEVICE], ["host", trace.device], fontsize=8)
    axes.set_ylim(_DEVICE + 0.45, _HOST - 0.45 - room)
    axes.set_xlim(0, end)
    axes.set_xlabel(label, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(True, axis="x", alpha=0.3)


def _summary(trace: StepTrace) -> str:
    if trace.is_synchronous:
        return f"{trace.device} is synchronous: a call returns after its kernel has run, so the host is never ahead"
    scale, unit = _time_unit(trace.device_end)
    return (
        f"the host has queued the step after {trace.host_end * scale:.3g} {unit}, the device is done after "
        f"{trace.device_end * scale:.3g} {unit};\nthe host is at most {trace.max_lead * scale:.3g} {unit} and "
        f"{trace.max_queue} kernels ahead"
    )


def _caching(figure: Figure, run: CachingRun) -> None:
    """Draw each iteration's duration with the part of driver calls hatched; below, its driver allocations."""
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    width = 0.38
    for offset, mode in ((-width / 2, CACHED), (width / 2, UNCACHED)):
        iterations = run.shortest(mode)
        xs = [i + 1 + offset for i in range(len(iterations))]
        colour = _MODE_COLOURS[mode]
        upper.bar(xs, [i.total for i in iterations], width, color=colour, label=_MODE_LABELS[mode])
        upper.bar(xs, [i.driver for i in iterations], width, color="none", edgecolor="white", hatch="////", linewidth=0)
        lower.bar(xs, [i.allocations for i in iterations], width, color=colour)
        for x, iteration in zip(xs, iterations, strict=True):
            upper.annotate(number(iteration.total), (x, iteration.total), (0, 1), textcoords="offset points",
                           ha="center", va="bottom", fontsize=7)  # fmt: skip
            lower.annotate(f"{iteration.allocations}", (x, iteration.allocations), (0, 1), textcoords="offset points",
                           ha="center", va="bottom", fontsize=7)  # fmt: skip
    upper.set_ylabel("ms", fontsize=8)
    lower.set_ylabel("driver\nallocations", fontsize=8)
    lower.set_xlabel("iteration", fontsize=8)
    lower.set_xticks(range(1, len(run.shortest(CACHED)) + 1))
    for axes in (upper, lower):
        axes.set_ylim(0, axes.get_ylim()[1] * 1.1)
        axes.tick_params(labelsize=8)
        axes.grid(True, axis="y", alpha=0.3)
        axes.set_axisbelow(True)
    tries = len(run.tries[CACHED])
    upper.set_title(f"duration of each iteration, the shortest of {tries} tries; kernels were compiled before\n"
                    "hatched: in the driver's calls for memory, with the wait for the device before memory is freed",
                    loc="left", fontsize=8)  # fmt: skip
    from matplotlib.patches import Patch  # lazy: optional dependency

    handles = [Patch(color=_MODE_COLOURS[mode], label=_MODE_LABELS[mode]) for mode in (CACHED, UNCACHED)]
    figure.legend(handles=handles, loc="outside lower center", ncols=2, frameon=False, fontsize=8)
