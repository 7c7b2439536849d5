"""The demo's picture: the loss curve and some predictions, by matplotlib, or on a canvas of our own."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..runtime.dtypes import Array
from ..runtime.errors import ArgumentError
from . import digits
from .picture import Canvas, draw_gallery, draw_loss

if TYPE_CHECKING:
    from .train import Report

__all__ = ["check_output", "draw", "draw_on_canvas", "draw_with_matplotlib", "suffixes"]

_COLUMNS = 6
_BLUE, _SKY, _GREEN, _RED, _GREY = "#1c64c8", "#a5c8f0", "#2b8a3e", "#c92a2a", "#868e96"


def suffixes() -> tuple[str, ...]:
    """Return the endings of file names that `draw` can write: only `.png` without matplotlib."""
    return (".png", ".svg", ".pdf") if importlib.util.find_spec("matplotlib") else (".png",)


def check_output(path: Path) -> None:
    """Raise an error if a picture cannot be written to `path`. Call it before training.

    Args:
        path: The file; one that exists is overwritten.

    Raises:
        ArgumentError: If the ending is unknown, the folder does not exist, or the folder or the file is not writable.
    """
    if path.suffix.lower() not in suffixes():
        message = f"--output {path}: the name must end with {' or '.join(suffixes())}"
        raise ArgumentError(message + ("" if len(suffixes()) > 1 else " (.svg and .pdf need matplotlib)"))
    if not path.parent.is_dir():
        raise ArgumentError(f"--output {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise ArgumentError(f"--output {path}: it is a folder")
    if not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ArgumentError(f"--output {path}: no permission to write there")


def draw(report: Report, path: Path) -> None:
    """Draw a report into a file, by matplotlib where it is installed."""
    (draw_with_matplotlib if importlib.util.find_spec("matplotlib") else draw_on_canvas)(report, path)


def _predictions(report: Report) -> tuple[Array, list[int], list[int]]:
    """Return 24 test images `(24, 8, 8)` with guesses and labels: up to six mistakes, then images from the middle."""
    _, _, images, labels = digits.load()
    guesses = np.array(report.guesses)
    order = np.argsort(guesses == labels, kind="stable")
    order = np.concatenate([order[:_COLUMNS], order[len(order) // 2 :][: 3 * _COLUMNS]])
    return images[order, 0], guesses[order].tolist(), labels[order].tolist()


def _title(report: Report) -> str:
    return f"Handwritten digits: {100 * report.accuracy:.1f} % of {len(report.guesses)} test images right"


def _footer(report: Report) -> str:
    return f"{report.device}, {report.samples_per_second:,.0f} samples/s"


def draw_with_matplotlib(report: Report, path: Path) -> None:
    """Draw a report by matplotlib, without a display; the ending of `path` says the format."""
    from matplotlib.figure import Figure  # lazy: optional

    figure = Figure(figsize=(11, 5), layout="constrained")
    figure.suptitle(_title(report))
    figure.supxlabel(_footer(report), fontsize=9, color=_GREY)
    left, right = figure.subfigures(1, 2, squeeze=False)[0]

    epochs = len(report.driver_allocations)
    losses = np.asarray(report.losses)
    means = [float(part.mean()) for part in np.array_split(losses, epochs)]
    axes = left.subplots()
    axes.plot((np.arange(len(losses)) + 0.5) * epochs / len(losses), losses, color=_SKY, linewidth=1, label="batch")
    axes.plot(np.arange(epochs) + 0.5, means, color=_BLUE, linewidth=2, label="epoch", marker="." if epochs < 3 else "")
    axes.set(title="Training loss", xlabel="epoch", ylabel="cross-entropy", xlim=(0, epochs), ylim=(0, None))
    axes.grid(axis="y", color="#e9ecef")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False)

    right.suptitle("Predictions, mistakes first")
    images, guesses, labels = _predictions(report)
    grid = right.subplots(len(images) // _COLUMNS, _COLUMNS).flat
    for cell, image, guess, label in zip(grid, images, guesses, labels, strict=True):
        is_right = guess == label
        cell.imshow(image, cmap="gray_r", vmin=0, vmax=1)
        cell.set(xticks=[], yticks=[])
        cell.set_xlabel(f"{guess}" if is_right else f"{guess} ({label})", color=_GREEN if is_right else _RED)
        cell.spines[:].set_color("#e9ecef" if is_right else _RED)
    figure.savefig(path, dpi=110)


def draw_on_canvas(report: Report, path: Path) -> None:
    """Draw a report into a PNG file without a plotting library."""
    canvas = Canvas(1010, 470)
    canvas.text(505, 22, _title(report), anchor="middle")
    draw_loss(canvas, (90, 80, 430, 300), report.losses, len(report.driver_allocations), "Training loss")
    draw_gallery(canvas, 575, 80, *_predictions(report), _COLUMNS, "Predictions, mistakes first")
    canvas.text(505, 452, _footer(report), (134, 142, 150), anchor="middle")
    canvas.save(path)
