"""A section's rows as lines for a terminal, as wide as it is: columns that matter less are left out, names are cut."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from .colours import Paint, by_share
from .roofline import Roof, rates, share
from .rows import Entry, Section, number

__all__ = ["fitted", "lines", "wide"]

_LEAST, _MOST = 24, 48  # cells that a name has
_GAP = 2


@dataclass(frozen=True, slots=True)
class _Column:
    """title: of the column. rank: the higher, the sooner it is left out. cells: (text, role) of each row."""

    title: str
    rank: int
    cells: list[tuple[str, str]]

    @property
    def width(self) -> int:
        return max(len(self.title), *(len(text) for text, _ in self.cells)) if self.cells else len(self.title)


def lines(section: Section, roof: Roof | None, paint: Paint, width: int | None = None) -> list[str]:
    """A head and a line for each entry. width: cells that there are; None: as many as it takes."""
    columns = _columns(section.entries, section.peers, roof)
    names = min(_MOST, max([len("row"), *(wide(entry.name) for entry in section.entries)]))
    if width is not None:
        least = min(names, _LEAST)
        while len(columns) > 1 and least + sum(_GAP + c.width for c in columns) > width:
            columns.remove(max(columns, key=lambda c: (c.rank, columns.index(c))))
        names = max(least, min(names, width - sum(_GAP + c.width for c in columns)))
    gap = " " * _GAP
    found = [gap.join([fitted("row", names), *(c.title.rjust(c.width) for c in columns)]).rstrip()]
    for i, entry in enumerate(section.entries):
        if entry.time is None:
            short = names if width is None else min(names, width // 2)
            room = len(str(entry.problem)) if width is None else width - short - _GAP
            found.append(f"{fitted(entry.name, short)}{gap}{paint(_cut(str(entry.problem), room), 'bad')}")
            continue
        cells = [paint(c.cells[i][0].rjust(c.width), c.cells[i][1]) for c in columns]
        found.append(gap.join([fitted(entry.name, names), *cells]).rstrip())
    return found


def wide(text: str) -> int:
    """Cells that a text takes: wide characters take two, marks on others none."""
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)


def _columns(entries: Sequence[Entry], peers: Sequence[str], roof: Roof | None) -> list[_Column]:
    def column(title: str, rank: int, cells: list[tuple[str, str]]) -> None:
        if any(text for text, _ in cells):
            found.append(_Column(title, rank, cells))

    found: list[_Column] = []
    shares = [share(entry, roof) for entry in entries]
    limits = ["" if e.limits is None else "bad" if e.missed else "good" for e in entries]
    for title, which, rank in (("min us", "least", 0), ("median", "median", 3)):
        column(title, rank, [(number(e.time[which] * 1e6) if e.time else "", role)
                             for e, role in zip(entries, limits, strict=True)])  # fmt: skip
    for at, title in enumerate(("GB/s", "GFLOP/s")):
        column(title, 4, [(number(rate * 1e-9) if (rate := rates(e)[at]) else "", "") for e in entries])
    column("of roof", 1, [(f"{part:.0%}" if part is not None else "", by_share(part)) for part in shares])
    for i, peer in enumerate(peers):
        roles = ["" if peer not in e.aims else "bad" if peer in e.missed else "good" for e in entries]
        both = [entry.ratio(peer) for entry in entries]
        cells = [(f"{r[0]:.2f}" if r else "", role) for r, role in zip(both, roles, strict=True)]
        column(f"{peer} / ours", 2 + i, cells)
        column("(median)", 6 + i, [(f"({r[1]:.2f})" if r else "", "") for r in both])
    for title, values in (("ulp", [(e.facts.get("accuracy") or {}).get("ulp") for e in entries]),
                          ("host us", [e.facts.get("host_us") for e in entries])):  # fmt: skip
        column(title, 5, [("" if value is None else number(value), "") for value in values])
    return found


def fitted(text: str, room: int) -> str:
    """The text in exactly `room` cells."""
    short = _cut(text, room)
    return short + " " * (room - wide(short))


def _cut(text: str, room: int) -> str:
    """The text in `room` cells or fewer: an ellipsis in its middle, as names differ at their ends."""
    if wide(text) <= room:
        return text
    if room < 3:
        return "…"[:room]
    tail = text
    while tail and wide(tail) > room // 2:
        tail = tail[1:]
    head = text
    while head and wide(head) + 1 + wide(tail) > room:
        head = head[:-1]
    return f"{head}…{tail}"
