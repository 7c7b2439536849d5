"""Helpers of all kinds for Triton kernels: names that do not clash with Python or Triton, and line wrapping."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from .kinds import Source

if TYPE_CHECKING:
    from jinja2 import Environment

__all__ = ["number", "python_names", "source", "tidy"]

_RESERVED = frozenset(("C", "INDEX", "tl", "triton", "libdevice", "float", "int"))
_RESERVED_PATTERN = re.compile(r"t\d+|wg_\w*")
_MAX_LINE_LENGTH = 120


def python_names(names: Iterable[str]) -> dict[str, str]:
    """Return kernel names for the operands whose names clash with Python or Triton: the name with an underscore."""
    all_names = list(names)
    renamed: dict[str, str] = {}
    for name in all_names:
        if name in _RESERVED or keyword.iskeyword(name) or _RESERVED_PATTERN.fullmatch(name):
            candidate = f"{name}_"
            while candidate in all_names or candidate in renamed.values():
                candidate += "_"
            renamed[name] = candidate
    return renamed


def source(template: str, environment: Environment, functions: Iterable[str] = (), **values: object) -> Source:
    """Render `templates/triton/TEMPLATE`, tidy the text, and attach the math functions that it calls."""
    text = tidy(environment.get_template(f"triton/{template}").render(**values))
    return Source(text, tuple(sorted(set(functions))))


def number(value: object) -> str:
    """Print a constant of a spec as Python source."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def tidy(text: str) -> str:
    """Strip trailing and repeated blanks from `text`, and wrap long argument lists.

    Triton source is Python source, so only the layout changes.
    """
    lines = "\n".join(part for line in text.splitlines() for part in _wrap_arguments(_collapse_blanks(line)))
    return re.sub(r"\n{4,}", "\n\n\n", lines).strip("\n") + "\n"


def _collapse_blanks(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    body = line.strip()
    if body.startswith(("#", '"""')):
        return " " * indent + (
            body if len(body) + indent <= _MAX_LINE_LENGTH else f"{body[: _MAX_LINE_LENGTH - indent - 4]} ..."
        )
    return " " * indent + re.sub(r" {2,}", " ", body).replace("( ", "(").replace(" )", ")")


def _wrap_arguments(line: str) -> list[str]:
    """Wrap a line that is too long: the arguments in its first parentheses move to lines of their own."""
    opening = line.find("(")
    if len(line) <= _MAX_LINE_LENGTH or opening < 0 or line.lstrip().startswith(("#", '"""')):
        return [line]
    closing = _closing_parenthesis(line, opening)
    if closing is None:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    inner, lines = line[opening + 1 : closing], [line[: opening + 1]]
    current = ""
    for argument in _split_arguments(inner):
        piece = f"{argument}, "
        if current and len(indent) + 4 + len(current) + len(piece) - 1 > _MAX_LINE_LENGTH:
            lines.append(f"{indent}    {current.rstrip()}")
            current = ""
        current += piece
    lines.append(f"{indent}    {current.rstrip().removesuffix(',')}")
    return [*lines, f"{indent}{line[closing:]}"]


def _closing_parenthesis(line: str, opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(line)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(line[i], 0)
        if depth == 0:
            return i
    return None


def _split_arguments(text: str) -> list[str]:
    """Split `text` at the commas outside parentheses."""
    arguments, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            arguments.append(text[start:i].strip())
            start = i + 1
    arguments.append(text[start:].strip())
    return [f for f in arguments if f]
