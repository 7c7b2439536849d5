"""Terminal output: colours, highlighted C, Python and YAML, tables. Streams that are no terminal get plain text."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from typing import TextIO

__all__ = ["Style", "table"]

_BOLD, _DIM, _RED, _GREEN, _YELLOW, _BLUE, _MAGENTA, _CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
_CODES = {
    "heading": _BOLD, "comment": _DIM, "keyword": _BLUE, "type": _CYAN, "number": _MAGENTA, "string": _GREEN,
    "macro": _YELLOW, "good": _GREEN, "bad": _RED, "warning": _YELLOW,
}  # fmt: skip
_C_TOKENS = (  # of Python, too
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|(?P<string>"(?:\\.|[^"\\\n])*")'
    r"|(?P<macro>^[ \t]*\#(?:\\\n|[^\n])*)"
    r"|(?P<number>\b(?:0x[0-9a-fA-F]+|\d+\.?\d*(?:[eE][+-]?\d+)?)[fFuUlLh]*\b)"
    r"|(?P<keyword>\b(?:if|else|for|while|do|return|typedef|struct|static|inline|const|restrict|switch|case|break|continue|"
    r"kernel|global|local|private|sizeof|def|import|from|as|in|not|and|or|lambda|with)\b)"
    r"|(?P<type>\b(?:void|(?:u?(?:char|short|int|long)|float|double|half)(?:2|4|8|16)?|size_t|bool|[VMCL]|S\d+)\b)"
)
_YAML_TOKENS = (
    r"(?P<comment>(?:^|(?<=\s))\#[^\n]*)"
    r"|(?P<keyword>^[ \t]*(?:-[ ]+)?[A-Za-z_][A-Za-z0-9_]*(?=:(?:\s|$)))"
    r'|(?P<string>"(?:\\.|[^"\\])*"|\'(?:\'\'|[^\'])*\')'
    r"|(?P<number>(?<![\w.])-?\d+\.?\d*(?:[eE][+-]?\d+)?(?![\w.]))"
)
_TOKEN_PATTERNS = {
    "c": re.compile(_C_TOKENS, re.MULTILINE | re.DOTALL),
    "yaml": re.compile(_YAML_TOKENS, re.MULTILINE),
}


class Style:
    """Colours for one stream, if it is a terminal and neither NO_COLOR nor TERM=dumb is set."""

    def __init__(self, stream: TextIO | None = None):
        stream = stream or sys.stdout
        self.enabled = stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"

    def __call__(self, kind: str, text: str) -> str:
        """Return `text` in the colour of `kind`, one of the words of `_CODES`."""
        return f"\x1b[{_CODES[kind]}m{text}\x1b[0m" if self.enabled and text else text

    def highlight(self, language: str, text: str) -> str:
        """Return source text with syntax highlighting. `language` is `c` (for Python, too) or `yaml`."""
        if not self.enabled:
            return text
        return _TOKEN_PATTERNS[language].sub(lambda match: self(match.lastgroup or "comment", match.group()), text)


def table(
    rows: Sequence[Sequence[str]], headings: Sequence[str], style: Style, marks: Sequence[Sequence[str]] = ()
) -> str:
    """Return a table whose columns are as wide as their longest cell.

    Args:
        rows: The cells of each row.
        headings: The headings, one per column.
        style: The colours of the output stream.
        marks: For each cell of each row, a kind of `Style.__call__`, or "" for no colour.
    """
    all_rows = [headings, *rows]
    widths = [max(len(row[i]) for row in all_rows) for i in range(len(headings))]
    lines = []
    for number, row in enumerate(all_rows):
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        if number == 0:
            cells = [style("heading", cell) for cell in cells]
        elif marks:
            cells = [style(mark, cell) if mark else cell for mark, cell in zip(marks[number - 1], cells, strict=True)]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)
