"""Plots of `weftgrad bench --curves`: a figure for each model, the loss beside the score on unseen data."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from .plot_axes import Plan, colours

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from .report_types import LearningRow, Report

__all__ = ["plans"]

_SIZE = (7.0, 2.8)  # inches
_SMOOTHED_STEPS = 10  # steps that each point of the heavy line averages


def plans(reports: Sequence[Report]) -> Iterator[Plan]:
    """Yield the plan of a figure for each model."""
    rows: dict[str, list[LearningRow]] = defaultdict(list)
    for report in reports:
        for row in report.get("learning", []):
            rows[row["name"]].append(row)
    for name, of_model in rows.items():
        yield f"{name} learns", _SIZE, partial(_draw, rows=of_model)


def _draw(figure: Figure, rows: Sequence[LearningRow]) -> None:
    """Draw losses, thin as they were and heavy as means of ten steps, and scores."""
    left, right = figure.subplots(1, 2)
    colour_of = colours(list(dict.fromkeys(row["device"] for row in rows)))
    for row in rows:
        colour, losses = colour_of[row["device"]], np.array(row["losses"])
        left.plot(losses, color=colour, linewidth=0.6, alpha=0.35)
        means = np.convolve(losses, np.full(_SMOOTHED_STEPS, 1 / _SMOOTHED_STEPS), "valid")
        left.plot(np.arange(len(means)) + _SMOOTHED_STEPS - 1, means, color=colour, label=row["device"])
        steps = np.linspace(0, len(losses), len(row["scores"]))
        right.plot(steps, 100 * np.array(row["scores"]), color=colour, marker="o", markersize=3, label=row["device"])
    left.set_ylabel("loss")
    left.set_ylim(bottom=0)
    right.set_ylabel("%")
    right.set_ylim(0, 100)
    right.set_title(rows[0]["measure"], fontsize=8)
    for axes in (left, right):
        axes.set_xlabel("step")
        axes.grid(alpha=0.25)
    left.legend(fontsize=8, frameon=False)
