"""Format a section's rows for a terminal's width: less important columns are dropped, long names truncated."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from .colours import Paint, by_share
from .roofline import Roof, rates, share
from .rows import Entry, Section, number, throughput_text

__all__ = ["display_width", "pad_to_width", "section_lines"]

_MIN_NAME_WIDTH, _MAX_NAME_WIDTH = 24, 48  # terminal cells
_GAP = 2


@dataclass(frozen=True, slots=True)
class _Column:
    """A column.

    Attributes:
        title: Its header.
        rank: Columns of higher rank are dropped first where the terminal is too narrow.
        cells: (text, colour role) of each row.
    """

    title: str
    rank: int
    cells: list[tuple[str, str]]

    @property
    def width(self) -> int:
        return max(len(self.title), *(len(text) for text, _ in self.cells)) if self.cells else len(self.title)


def section_lines(section: Section, roof: Roof | None, paint: Paint, width: int | None = None) -> list[str]:
    """Return a header and a line for each entry of a section.

    Args:
        section: The entries.
        roof: The device's limits, or None.
        paint: Colours a text by its role.
        width: The terminal's width in cells; None for no limit.
    """
    columns = _columns(section.entries, section.peers, roof)
    name_width = min(_MAX_NAME_WIDTH, max([len("row"), *(display_width(entry.name) for entry in section.entries)]))
    if width is not None:
        min_name_width = min(name_width, _MIN_NAME_WIDTH)
        while len(columns) > 1 and min_name_width + sum(_GAP + c.width for c in columns) > width:
            columns.remove(max(columns, key=lambda c: (c.rank, columns.index(c))))
        name_width = max(min_name_width, min(name_width, width - sum(_GAP + c.width for c in columns)))
    gap = " " * _GAP
    text_lines = [gap.join([pad_to_width("row", name_width), *(c.title.rjust(c.width) for c in columns)]).rstrip()]
    for i, entry in enumerate(section.entries):
        if entry.time is None:
            entry_name_width = name_width if width is None else min(name_width, width // 2)
            problem_width = len(str(entry.problem)) if width is None else width - entry_name_width - _GAP
            problem = paint(_truncate(str(entry.problem), problem_width), "bad")
            text_lines.append(f"{pad_to_width(entry.name, entry_name_width)}{gap}{problem}")
            continue
        cells = [paint(c.cells[i][0].rjust(c.width), c.cells[i][1]) for c in columns]
        text_lines.append(gap.join([pad_to_width(entry.name, name_width), *cells]).rstrip())
    return text_lines


def display_width(text: str) -> int:
    """Return the number of terminal cells of a text: East Asian wide characters take two, combining marks none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _columns(entries: Sequence[Entry], peers: Sequence[str], roof: Roof | None) -> list[_Column]:
    def add_column(title: str, rank: int, cells: list[tuple[str, str]]) -> None:
        if any(text for text, _ in cells):
            columns.append(_Column(title, rank, cells))

    columns: list[_Column] = []
    roof_shares = [share(entry, roof) for entry in entries]
    time_roles = ["" if e.limits is None else "bad" if e.missed else "good" for e in entries]
    statistics: tuple[tuple[str, Literal["least", "median"], int], ...]
    statistics = ("min us", "least", 0), ("median", "median", 3)
    for title, statistic, rank in statistics:
        marks = ["~" if e.doubts and statistic == "least" else "" for e in entries]
        add_column(title, rank, [(mark + number(e.time[statistic] * 1e6) if e.time else "", role)
                                 for e, role, mark in zip(entries, time_roles, marks, strict=True)])  # fmt: skip
    for rate_index, title in enumerate(("GB/s", "GFLOP/s")):
        add_column(title, 4, [(number(rate * 1e-9) if (rate := rates(e)[rate_index]) else "", "") for e in entries])
    add_column("of roof", 1, [("", "") if s is None else (str(s), by_share(s.value)) for s in roof_shares])
    for i, peer in enumerate(peers):
        roles = ["" if peer not in e.aims else "bad" if peer in e.missed else "good" for e in entries]
        ratios = [entry.ratio(peer) for entry in entries]
        marks = ["~" if entry.peer_doubts(peer) else "" for entry in entries]
        cells = [(f"{mark}{r[0]:.2f}" if r else "", role) for r, role, mark in zip(ratios, roles, marks, strict=True)]
        add_column(f"{peer} / ours", 2 + i, cells)
        add_column("(median)", 6 + i, [(f"({r[1]:.2f})" if r else "", "") for r in ratios])
    for i, name in enumerate(("", *peers)):
        cells = [(throughput_text(entry.throughput(name), entry.unit), "") for entry in entries]
        add_column(f"{name} throughput".strip(), 3 + i, cells)
    for title, values in (("ulp", [e.accuracy("ulp") for e in entries]),
                          ("host us", [e.number("host_us") for e in entries])):  # fmt: skip
        add_column(title, 5, [("" if value is None else number(value), "") for value in values])
    return columns


def pad_to_width(text: str, width: int) -> str:
    """Pad or truncate text to exactly `width` cells."""
    truncated = _truncate(text, width)
    return truncated + " " * (width - display_width(truncated))


def _truncate(text: str, width: int) -> str:
    """Truncate text to `width` cells with an ellipsis in the middle, because names often differ at their ends."""
    if display_width(text) <= width:
        return text
    if width < 3:
        return "…"[:width]
    tail = text
    while tail and display_width(tail) > width // 2:
        tail = tail[1:]
    head = text
    while head and display_width(head) + 1 + display_width(tail) > width:
        head = head[:-1]
    return f"{head}…{tail}"
