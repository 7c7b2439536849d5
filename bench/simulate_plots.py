"""The picture of `weftgrad simulate`: efficiency, exposed communication and memory by number of devices."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ..distributed.simulate import Machine, Prediction, Timeline
from ..runtime.errors import ArgumentError
from .plot_axes import colours, in_short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["draw", "write"]

_SIZE = (9.0, 3.4)  # inches
_MARKERS = "osD^v<>"


def write(path: Path, timeline: Timeline, machine: Machine, predictions: Mapping[str, Sequence[Prediction]]) -> None:
    """Draw the predictions into a file.

    Args:
        path: The file; its ending is the format.
        timeline: The recorded step.
        machine: The machine.
        predictions: Predictions by plan.

    Raises:
        ArgumentError: matplotlib is not installed, or the file cannot be written.
    """
    try:
        from matplotlib.figure import Figure  # lazy: optional dependency
    except ImportError:
        raise ArgumentError("simulate: --plot needs matplotlib: pip install 'weftgrad[bench]'") from None
    figure = Figure(figsize=_SIZE, layout="constrained")
    draw(figure, timeline, machine, predictions)
    try:
        figure.savefig(path, dpi=150)
    except (OSError, ValueError) as error:
        raise ArgumentError(f"simulate: {path} cannot be written: {error}") from None


def draw(figure: Figure, timeline: Timeline, machine: Machine, predictions: Mapping[str, Sequence[Prediction]]) -> None:
    """Draw three panels, with a line for each plan: efficiency, exposed communication, memory of a device."""
    efficiency, exposed, memory = figure.subplots(1, 3)
    colour_of = colours(list(predictions))
    for number, (plan, rows) in enumerate(predictions.items()):
        devices = [row.devices for row in rows]
        style = {"color": colour_of[plan], "marker": _MARKERS[number % len(_MARKERS)], "markersize": 3.5}
        efficiency.plot(devices, [100 * row.efficiency for row in rows], label=plan, **style)
        exposed.plot(devices, [100 * row.exposed_seconds / row.step_seconds for row in rows], **style)
        memory.plot(devices, [row.memory_bytes / 1e9 for row in rows], **style)
    efficiency.set_title("efficiency, %", fontsize=9)
    exposed.set_title("exposed communication and waiting,\n% of the step", fontsize=9)
    memory.set_title("memory of a device, GB", fontsize=9)
    memory.set_yscale("log")
    if machine.memory:
        memory.axhline(machine.memory / 1e9, color="#6f6f6f", linewidth=0.8, linestyle="--")
        memory.annotate(
            f"{machine.memory / 1e9:.0f} GB", (1, machine.memory / 1e9), fontsize=7, color="#6f6f6f", va="top"
        )
    for axes in (efficiency, exposed):
        axes.set_ylim(bottom=0)
    for axes in (efficiency, exposed, memory):
        _count_axis(axes, max(row.devices for rows in predictions.values() for row in rows))
    figure.legend(
        *efficiency.get_legend_handles_labels(), loc="outside lower center", ncols=3, fontsize=8, frameon=False
    )
    name = f"{timeline.name}, {timeline.step_seconds * 1e3:.4g} ms on one device; predicted for {machine.name}"
    figure.suptitle(name, fontsize=9)


def _count_axis(axes: Axes, largest: int) -> None:
    axes.set_xscale("log")
    ticks = [10**exponent for exponent in range(6) if 10**exponent <= max(largest, 10)]
    axes.set_xticks(ticks, [in_short(tick) for tick in ticks])
    axes.tick_params(axis="x", which="minor", labelbottom=False)
    axes.tick_params(labelsize=8)
    axes.set_xlabel("devices", fontsize=8)
    axes.grid(alpha=0.25)
