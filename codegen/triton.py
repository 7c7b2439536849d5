"""What all kinds need to render Triton kernels: names that mean nothing to Python or Triton, and lines that fit."""

from __future__ import annotations

import keyword
import math
import re
from collections.abc import Iterable
from typing import Any

from .kinds import Source

__all__ = ["number", "python_names", "source", "tidy"]

_TAKEN = frozenset(("C", "INDEX", "tl", "triton", "libdevice", "float", "int"))
_SHAPE = re.compile(r"t\d+|wg_\w*")
_WIDTH = 120


def python_names(names: Iterable[str]) -> dict[str, str]:
    """How kernels spell operands whose names mean something there: with an underscore behind."""
    listed = list(names)
    spelled: dict[str, str] = {}
    for name in listed:
        if name in _TAKEN or keyword.iskeyword(name) or _SHAPE.fullmatch(name):
            other = f"{name}_"
            while other in listed or other in spelled.values():
                other += "_"
            spelled[name] = other
    return spelled


def source(template: str, environment: Any, functions: Iterable[str] = (), **values: Any) -> Source:
    """The text of `templates/triton/TEMPLATE`, tidied, and the math functions that it calls."""
    text = tidy(environment.get_template(f"triton/{template}").render(**values))
    return Source(text, tuple(sorted(set(functions))))


def number(value: Any) -> str:
    """A constant of a spec as Python writes it."""
    return f'float("{value}")' if isinstance(value, float) and not math.isfinite(value) else repr(value)


def tidy(text: str) -> str:
    """`text` without trailing blanks and runs of blanks inside lines, its long lists of arguments wrapped.

    Triton parses what Python parses, so nothing but the look changes.
    """
    lines = "\n".join(part for line in text.splitlines() for part in _wrapped(_squeezed(line)))
    return re.sub(r"\n{4,}", "\n\n\n", lines).strip("\n") + "\n"


def _squeezed(line: str) -> str:
    indent = len(line) - len(line.lstrip())
    body = line.strip()
    if body.startswith(("#", '"""')):
        return " " * indent + (body if len(body) + indent <= _WIDTH else f"{body[: _WIDTH - indent - 4]} ...")
    return " " * indent + re.sub(r" {2,}", " ", body).replace("( ", "(").replace(" )", ")")


def _wrapped(line: str) -> list[str]:
    """`line`, or where it is too long, the line with the arguments of its first parenthesis on lines of their own."""
    opened = line.find("(")
    if len(line) <= _WIDTH or opened < 0 or line.lstrip().startswith(("#", '"""')):
        return [line]
    closed = _closing(line, opened)
    if closed is None:
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    inner, found = line[opened + 1 : closed], [line[: opened + 1]]
    current = ""
    for argument in _arguments(inner):
        piece = f"{argument}, "
        if current and len(indent) + 4 + len(current) + len(piece) - 1 > _WIDTH:
            found.append(f"{indent}    {current.rstrip()}")
            current = ""
        current += piece
    found.append(f"{indent}    {current.rstrip().removesuffix(',')}")
    return [*found, f"{indent}{line[closed:]}"]


def _closing(line: str, opened: int) -> int | None:
    depth = 0
    for i in range(opened, len(line)):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(line[i], 0)
        if depth == 0:
            return i
    return None


def _arguments(text: str) -> list[str]:
    """`text` cut at the commas that stand in no parenthesis."""
    found, depth, start = [], 0, 0
    for i, letter in enumerate(text):
        depth += {"(": 1, "[": 1, ")": -1, "]": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            found.append(text[start:i].strip())
            start = i + 1
    found.append(text[start:].strip())
    return [f for f in found if f]
