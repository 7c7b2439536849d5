"""The head of the HTML page: one table of all devices, and one picture with a bar for each row and device.

A row is an op with its dtype and shape. Rows of one group, such as reductions, stand together. Each device is compared
with torch if torch was measured beside it, else with the first other library.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from .plot_axes import round_ticks
from .roofline import Roof, roofs, share
from .rows import Entry, device_labels, number
from .step_tables import number_cell, text_cell
from .summary import is_op_row

if TYPE_CHECKING:
    from .report_types import Band, Bar, Cell, Column, Panel, Table

__all__ = ["panels", "table"]

_PREFERRED_PEER = "torch"
_PANEL_WIDTH, _LABEL_WIDTH, _RIGHT_MARGIN, _AXIS_HEIGHT = 440.0, 110.0, 18.0, 20.0  # in units of a panel's view box
_BAND_GAP = 6.0  # between the bands of two groups
_BAR_HEIGHTS = ((40, 6.0), (150, 4.0), (math.inf, 2.5))  # (highest number of bars, height of a bar)
_MIN_BAND_HEIGHT = 14.0  # room for the group's label
_MAX_RATIO = 32.0  # bars of ratios above it, and below its inverse, are cut off
_COLOURS = 6  # number of colours of devices in the style sheet


class _BarValue(NamedTuple):
    """The number that a bar shows, its text, and whether the number is uncertain."""

    number: float
    text: str
    is_uncertain: bool


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the merged table: the entries of one op, dtype and shape, by the device's label."""

    group: str
    name: str
    entries: dict[str, Entry]


def _merged_rows(entries: Iterable[Entry]) -> tuple[list[str], list[_Row]]:
    """Return the devices' labels and the rows that at least one device has measured, sorted by suite and group."""
    ops = [entry for entry in entries if is_op_row(entry)]
    labels = device_labels(ops)
    by_key: dict[tuple[str, str, str], dict[str, Entry]] = {}
    for entry in ops:
        key = entry.suite, entry.group, entry.name
        by_key.setdefault(key, {})[labels[entry.hardware, entry.device]] = entry
    order = {key: index for index, key in enumerate(dict.fromkeys((suite, group) for suite, group, _ in by_key))}
    rows = [_Row(group, name, row) for (suite, group, name), row in
            sorted(by_key.items(), key=lambda item: order[item[0][:2]]) if any(e.time for e in row.values())
            ]  # fmt: skip
    return list(dict.fromkeys(labels.values())), rows


def _peer_of(entry: Entry, ours: set[str]) -> str | None:
    """Return the library that an entry is compared with, or None if no other library was measured beside it."""
    peers = [name for name in entry.peers if name not in ours]
    return _PREFERRED_PEER if _PREFERRED_PEER in peers else next(iter(peers), None)


def table(entries: Sequence[Entry]) -> Table | None:
    """Return the merged table, with a time, a ratio and a share of the roofline for each device.

    Returns:
        The table; None if fewer than two devices have rows, because a device's own tables say the same.
    """
    devices, rows = _merged_rows(entries)
    if not rows or len(devices) < 2:
        return None
    roof_by_hardware, ours = roofs(entries), {entry.device for entry in entries}
    columns: list[Column] = [
        {"name": "row", "help": "what is computed", "number": False, "detail": False},
        {"name": "class", "help": "group of ops", "number": False, "detail": False},
    ]
    for device in devices:
        ratio_help = (
            f"minimum time of {_PREFERRED_PEER} (or another library) / ours, and the range of the rounds' ratios; the "
            "bar is full at 2"
        )
        for name, help in (
            ("min µs", "minimum time of a call"), ("ratio", ratio_help),
            ("of roofline", "share of the best measured rate"),
        ):  # fmt: skip
            columns.append({"name": f"{name}, {device}", "help": help, "number": True, "detail": False})
    cells = [[text_cell(row.name), text_cell(row.group),
              *(cell for device in devices for cell in _cells(row.entries.get(device), roof_by_hardware, ours))]
             for row in rows]  # fmt: skip
    filled = [i for i in range(len(columns)) if any(line[i]["text"] for line in cells)]
    return {
        "title": "All devices", "device": "", "columns": [columns[i] for i in filled],
        "rows": [{"group": row.group, "missed": any(e.missed or e.problem for e in row.entries.values()),
                  "cells": [line[i] for i in filled]} for row, line in zip(rows, cells, strict=True)],
    }  # fmt: skip


def _cells(entry: Entry | None, roof_by_hardware: Mapping[str, Roof], ours: set[str]) -> list[Cell]:
    """Return a device's cells of a row: minimum time, ratio to the other library, share of the roofline."""
    if entry is None or entry.time is None:
        return [number_cell(None, "" if entry is None else "failed"), number_cell(None), number_cell(None)]
    mark = "~" if entry.doubts else ""
    microseconds = entry.time["least"] * 1e6
    cells = [number_cell(microseconds, f"{mark}{number(microseconds)}", role="doubtful" if mark else "")]
    peer = _peer_of(entry, ours)
    ratio, limits = (entry.ratio(peer), entry.ratio_range(peer)) if peer else (None, None)
    if peer and ratio and limits:
        text = f"{'~' if mark or entry.peer_doubts(peer) else ''}{ratio[0]:.2f}"
        text += f" ({limits[0]:.2g} to {limits[1]:.2g})" + (f" {peer}" if peer != _PREFERRED_PEER else "")
        cells.append(number_cell(ratio[0], text, bar=ratio[0] / 2, role="doubtful" if text[0] == "~" else ""))
    else:
        cells.append(number_cell(None))
    roof_share = share(entry, roof_by_hardware.get(entry.hardware))
    cells.append(number_cell(None) if roof_share is None else
                 number_cell(roof_share.value, str(roof_share), bar=roof_share.value))  # fmt: skip
    return cells


def panels(entries: Sequence[Entry]) -> list[Panel]:
    """Return up to two panels of the picture: ratios, and shares of the roofline. A panel without bars is left out."""
    devices, rows = _merged_rows(entries)
    roof_by_hardware, ours = roofs(entries), {entry.device for entry in entries}
    ratios: list[list[_BarValue | None]] = []
    shares: list[list[_BarValue | None]] = []
    for row in rows:
        row_entries = [row.entries.get(device) for device in devices]
        ratios.append([_ratio_value(entry, ours) for entry in row_entries])
        shares.append([_share_value(entry, roof_by_hardware) for entry in row_entries])
    pictures = []
    values = [value.number for line in ratios for value in line if value]
    if values:  # a logarithmic axis that has at least the ratios from 0.5 to 2
        low = max(min(0.5, *values), 1 / _MAX_RATIO) / 1.1
        high = min(max(2.0, *values), _MAX_RATIO) * 1.1
        axis = _Axis(lambda ratio: math.log(min(max(ratio, low), high) / low) / math.log(high / low), 1.0,
                     [(tick, f"{tick:g}") for tick in round_ticks(low, high)])  # fmt: skip
        pictures.append(_panel("the other library's time / ours: right of 1 ours is faster", devices, rows, ratios,
                               axis))  # fmt: skip
    if any(value for line in shares for value in line):
        axis = _Axis(lambda part: min(part, 1.0), 0.0, [(part / 4, f"{part * 25}%") for part in range(5)])
        pictures.append(_panel("share of the measured roofline", devices, rows, shares, axis))
    return pictures


@dataclass(frozen=True, slots=True)
class _Axis:
    """A horizontal axis.

    Attributes:
        position: Function from a value to its position on the axis, from 0 to 1.
        origin: Value at which bars begin.
        ticks: Values and labels of the ticks.
    """

    position: Callable[[float], float]
    origin: float
    ticks: list[tuple[float, str]]


def _ratio_value(entry: Entry | None, ours: set[str]) -> _BarValue | None:
    """Return the other library's time / ours; None if a time is missing."""
    peer = _peer_of(entry, ours) if entry is not None else None
    ratio = entry.ratio(peer) if entry is not None and peer else None
    if entry is None or peer is None or ratio is None:
        return None
    return _BarValue(ratio[0], f"{peer} / ours {ratio[0]:.2f}", bool(entry.doubts or entry.peer_doubts(peer)))


def _share_value(entry: Entry | None, roof_by_hardware: Mapping[str, Roof]) -> _BarValue | None:
    """Return the share of the device's roofline; None if it is unknown."""
    roof_share = share(entry, roof_by_hardware.get(entry.hardware)) if entry is not None else None
    if entry is None or roof_share is None:
        return None
    return _BarValue(roof_share.value, str(roof_share), bool(entry.doubts))


def _panel(
    title: str, devices: Sequence[str], rows: Sequence[_Row], values: Sequence[Sequence[_BarValue | None]], axis: _Axis
) -> Panel:
    """Lay out a panel: a band for each group, and in it a bar for each row and device that has a value.

    A row and device with a time but without a value gets an empty place, so that the bars of both panels align.
    """
    bar_count = sum(_is_timed(row, device) for row in rows for device in devices)
    bar_height = next(height for limit, height in _BAR_HEIGHTS if bar_count <= limit)
    plot_width = _PANEL_WIDTH - _LABEL_WIDTH - _RIGHT_MARGIN

    def x_of(value: float) -> float:
        return round(_LABEL_WIDTH + plot_width * axis.position(value), 1)

    bars: list[Bar] = []
    bands: list[Band] = []
    y = _AXIS_HEIGHT
    for group in dict.fromkeys(row.group for row in rows):
        top = y
        for row, line in zip(rows, values, strict=True):
            if row.group != group:
                continue
            for colour, (device, value) in enumerate(zip(devices, line, strict=True)):
                if not _is_timed(row, device):
                    continue
                if value is not None:
                    ends = sorted((x_of(axis.origin), x_of(value.number)))
                    bars.append({"x": ends[0], "y": round(y, 1), "width": round(max(1.0, ends[1] - ends[0]), 1),
                                 "height": bar_height - 0.5, "colour": colour % _COLOURS,
                                 "doubtful": value.is_uncertain,
                                 "text": f"{row.name}, {device}: {value.text}{'~' * value.is_uncertain}"})  # fmt: skip
                y += bar_height
            y += bar_height / 2
        y = max(y, top + _MIN_BAND_HEIGHT) + _BAND_GAP
        bands.append({"label": group, "y": round(top, 1), "height": round(y - top - _BAND_GAP / 2, 1)})
    return {
        "title": title, "width": _PANEL_WIDTH, "height": round(y, 1), "top": _AXIS_HEIGHT - 4,
        "left": _LABEL_WIDTH, "origin": x_of(axis.origin), "bands": bands, "bars": bars,
        "ticks": [{"x": x_of(value), "label": label} for value, label in axis.ticks],
        "legend": [{"colour": index % _COLOURS, "label": device} for index, device in enumerate(devices)],
        "has_doubts": any(bar["doubtful"] for bar in bars),
    }  # fmt: skip


def _is_timed(row: _Row, device: str) -> bool:
    """Return True if a device has a time for a row. Then both panels leave room for its bar."""
    return device in row.entries and row.entries[device].time is not None
