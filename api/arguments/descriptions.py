"""Describe parameters that many functions share once, and add the text to the docstrings of these functions.

A docstring leaves out the parameters in a table such as `OPTIONS`; the decorator `describe` adds their rows to its
section `Args`, so that `help(wg.zeros)` shows every parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["LIKE_OPTIONS", "OPTIONS", "Docstring", "describe"]

_Function = TypeVar("_Function", bound=Callable[..., object])
_ORDER = ("Args", "Attributes", "Returns", "Yields", "Raises", "Example")

OPTIONS = {
    "*size": "The shape, as ints or as one sequence.",
    "generator": "Source of random numbers; None: the default generator.",
    "out": "Tensor to write the result to.",
    "dtype": "Dtype of the result; None: the default dtype.",
    "layout": "Accepted for compatibility with PyTorch.",
    "device": "Device of the result; None: the default device.",
    "requires_grad": "Whether to record operations on the result.",
    "pin_memory": "Whether to use page-locked host memory.",
    "memory_format": "Accepted for compatibility with PyTorch.",
    "**named": "`size=`: the shape, as a sequence.",
}
"""The options of functions that create tensors."""

LIKE_OPTIONS = {
    "input": "Tensor whose shape the result has.",
    **OPTIONS,
    "dtype": "Dtype of the result; None: that of `input`.",
    "device": "Device of the result; None: that of `input`.",
}
"""The options of functions such as `zeros_like`."""


def describe(parameters: Mapping[str, str], *, returns: str = "", raises: str = "") -> Callable[[_Function], _Function]:
    """Return a decorator that adds rows to a function's docstring.

    Args:
        parameters: Name (with its stars) -> description. Those that the function has and its docstring does not
            describe are added at the end of `Args`, in the table's order.
        returns: The section `Returns`, if the docstring has none.
        raises: A row for the section `Raises`, before those that are there.
    """

    def add(function: _Function) -> _Function:
        if function.__doc__ is None:  # python -OO
            return function
        docstring = Docstring(function.__doc__)
        names = _parameters(function)
        described = docstring.sections.get("Args", "")
        for name, text in parameters.items():
            bare_name = name.lstrip("*")
            is_described = any(f"\n{docstring.indent}    {s}{bare_name}: " in described for s in ("", "*", "**"))
            if bare_name in names and not is_described:
                docstring.add_row("Args", f"{name}: {text}")
        if returns and "Returns" not in docstring.sections:
            docstring.add_row("Returns", returns)
        if raises:
            docstring.add_row("Raises", raises, first=True)
        function.__doc__ = str(docstring)
        return function

    return add


def _parameters(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of a function's parameters. `inspect.signature` would slow down the import."""
    code = inspect.unwrap(function).__code__
    starred = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred]


class Docstring:
    """A docstring in Google's style, in parts that can be changed.

    It is only split at blank lines, because the package's import waits for it.

    Args:
        text: The docstring. Its sections have no blank lines, except for the last one, `Example`.

    Attributes:
        summary: The text before the first section.
        sections: Title -> section, which begins with the title's line.
        indent: The spaces before a title. Python 3.13 removes them from docstrings.
    """

    def __init__(self, text: str):
        parts = text.split("\n\n")
        count = next((i for i, part in enumerate(parts) if _title(part)), len(parts))
        self.summary = "\n\n".join(parts[:count])
        self.sections: dict[str, str] = {}
        title = ""
        for part in parts[count:]:
            title = _title(part) or title
            self.sections[title] = f"{self.sections[title]}\n\n{part}" if title in self.sections else part
        first = next(iter(self.sections.values()), "")
        self.indent = first[: len(first) - len(first.lstrip(" "))]

    def add_row(self, title: str, row: str, *, first: bool = False) -> None:
        """Add a row to a section, at its beginning or its end; create the section if it is missing."""
        head, _, rows = self.sections.get(title, f"{self.indent}{title}:").partition("\n")
        new_row = f"{self.indent}    {row}".replace("\n", f"\n{self.indent}        ")
        ordered = [new_row, rows.rstrip()] if first else [rows.rstrip(), new_row]
        self.sections[title] = "\n".join([head, *filter(None, ordered)])

    def remove_row(self, title: str, name: str) -> None:
        """Remove the row of a parameter; and the section, if it has no other row."""
        head, *lines = self.sections.get(title, "").split("\n")
        rows: list[str] = []
        is_removed = False
        for line in lines:
            if line[len(self.indent) + 4 : len(self.indent) + 5] != " ":  # not the second line of a row
                is_removed = line.startswith(f"{self.indent}    {name}: ")
            if not is_removed and line.strip():
                rows.append(line)
        if rows:
            self.sections[title] = "\n".join([head, *rows])
        else:
            self.sections.pop(title, None)

    def __str__(self) -> str:
        parts = [self.summary.rstrip(), *(self.sections[t].rstrip() for t in _ORDER if t in self.sections)]
        return "\n\n".join(parts) + f"\n{self.indent}"


def _title(part: str) -> str:
    """Return the title of a section, or "" for other text."""
    title = part[: part.find("\n")].strip()
    return title[:-1] if title[-1:] == ":" and title[:-1] in _ORDER else ""
