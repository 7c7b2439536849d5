"""Terminal colours, used only if the stream is a terminal and NO_COLOR is not set (no-color.org)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import IO

__all__ = ["Paint", "by_share", "painter", "plain", "printable"]

Paint = Callable[[str, str], str]
_CODES = {"good": "32", "fair": "33", "bad": "31", "head": "1", "faint": "2"}


def plain(text: str, role: str) -> str:
    """Return the text unchanged."""
    return text


def painter(stream: IO[str]) -> Paint:
    """Return a function that colours a text by its role (`good`, `fair`, `bad`, `head`, `faint`; empty: none)."""
    if not stream.isatty() or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return plain

    def paint(text: str, role: str) -> str:
        return f"\x1b[{_CODES[role]}m{text}\x1b[0m" if role and text.strip() else text

    return paint


def printable(value: object) -> str:
    """Replace control and other non-printable characters, which could move a terminal's cursor or hide text."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def by_share(share: float | None) -> str:
    """Return the colour role of a share of the measured roofline."""
    return "" if share is None else "good" if share >= 0.8 else "fair" if share >= 0.5 else "bad"
