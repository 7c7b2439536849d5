"""Cells of the HTML page's tables, and its tables of training steps: memory by step, kernels of a timeline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from .rows import number
from .steps import HOST, Timeline, curves, timelines

if TYPE_CHECKING:
    from .report_types import Cell, Column, Report, Table

__all__ = ["in_bytes", "number_cell", "step_tables", "text_cell"]


def text_cell(text: str, role: str = "") -> Cell:
    """Return a text cell."""
    return {"text": text, "value": None, "role": role, "bar": None}


def number_cell(value: float | None, text: str | None = None, *, role: str = "", bar: float | None = None) -> Cell:
    """Return a cell that sorts by its value (empty ones last). bar: a share to show as a bar."""
    shown = ("" if value is None else number(value)) if text is None else text
    return {"text": shown, "value": value, "role": f"number {role}".strip(),
            "bar": None if bar is None else round(60 * min(bar, 1.0), 1)}  # fmt: skip


def step_tables(reports: Sequence[Report]) -> Iterator[Table]:
    """Yield the tables of the reports' memory curves and timelines."""
    for report in reports:
        for curve in curves(report):
            heads = [("step", "", True), ("in use", "behind the step", True), ("peak", "most in use within it", True),
                     ("held", "from the driver, behind the step", True), ("taken", "segments, from the driver", True),
                     ("given back", "segments, to the driver", True)]  # fmt: skip
            rows = [[number_cell(i + 1, str(i + 1)), *(number_cell(step[n], in_bytes(step[n])) for n in
                     ("allocated", "peak", "reserved")), *(number_cell(step[n], str(step[n])) for n in
                     ("driver_allocations", "driver_frees"))] for i, step in enumerate(curve.steps)]  # fmt: skip
            yield _table(f"Memory: {curve.name} ({curve.device})", curve.device, heads, rows)
        for line in timelines(report):
            heads = [("kernel", "", False), ("device", "", False), ("times", "in the step", True),
                     ("µs", "all of them together", True), ("of the step", "", True)]  # fmt: skip
            title = f"Timeline: {line.name} ({line.device}), {line.summary}"
            yield _table(title, line.device, heads, list(_kernels(line)))


def _kernels(line: Timeline) -> Iterator[list[Cell]]:
    """Yield a row of cells for each kernel of the timeline, longest total time first."""
    kernel_times: dict[tuple[str, str], list[float]] = {}
    for lane, bars in line.bars.items():
        if lane not in HOST:
            for _, length, name in bars:
                kernel_times.setdefault((name, lane), []).append(length)
    for (name, lane), times in sorted(kernel_times.items(), key=lambda item: -sum(item[1])):
        share = sum(times) / line.span if line.span else 0.0
        yield [text_cell(name), text_cell(lane), number_cell(len(times), str(len(times))), number_cell(sum(times)),
               number_cell(share, f"{share:.1%}", bar=share)]  # fmt: skip


def _table(title: str, device: str, heads: Sequence[tuple[str, str, bool]], rows: Sequence[list[Cell]]) -> Table:
    columns: list[Column] = [
        {"name": name, "help": help, "number": numeric, "detail": False} for name, help, numeric in heads
    ]
    return {"title": title, "device": device, "columns": columns,
            "rows": [{"group": "steps", "missed": False, "cells": cells} for cells in rows]}  # fmt: skip


def in_bytes(count: float) -> str:
    """Format a byte count as `1.50 MiB`."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count:.0f} bytes"
