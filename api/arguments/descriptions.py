"""Tables of descriptions for parameters that many functions share, and a decorator that adds them to docstrings.

The docstring of `zeros` does not describe `dtype` or `device`: the table `OPTIONS` does. The decorator `describe` adds
the rows of a table to the section `Args`, so that `help(wg.zeros)` shows every parameter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["LIKE_OPTIONS", "OPTIONS", "Docstring", "describe"]

_Function = TypeVar("_Function", bound=Callable[..., object])
# The sections that a docstring may have, in the order in which `str` of a `Docstring` writes them.
_TITLES = ("Args", "Shape", "Attributes", "Returns", "Yields", "Raises", "Example")

OPTIONS = {
    "*size": "The shape, as ints or as one sequence.",
    "generator": "Source of random numbers; None: the default generator.",
    "out": "Tensor of the result's shape to write it to; one without elements is resized.",
    "dtype": "Dtype of the result; None: the default dtype.",
    "layout": "`strided` or None: every tensor is dense.",
    "device": "Device of the result; None: the default device.",
    "requires_grad": "Whether to record operations on the result.",
    "pin_memory": "Whether to use page-locked host memory, for fast copies to a CUDA device.",
    "memory_format": "Order of dimensions in memory, such as `channels_last`; None: row-major.",
    "**named": "`size=`: the shape, as a sequence.",
}
"""The options of functions that create tensors."""

LIKE_OPTIONS = {
    "input": "Tensor whose shape the result has.",
    **OPTIONS,
    "dtype": "Dtype of the result; None: that of `input`.",
    "device": "Device of the result; None: that of `input`.",
    "memory_format": "Order of dimensions in memory; None: that of `input`, without gaps.",
}
"""The options of functions such as `zeros_like`."""


def describe(parameters: Mapping[str, str], *, returns: str = "", raises: str = "") -> Callable[[_Function], _Function]:
    """Return a decorator that adds rows to a function's docstring.

    Args:
        parameters: Description of each parameter, by its name with stars. A row is added if the function has the
            parameter and its docstring does not describe it. Rows stand at the end of `Args`, in the table's order.
        returns: Text of the section `Returns`, for a docstring without that section.
        raises: A row to add at the beginning of the section `Raises`.
    """

    def add(function: _Function) -> _Function:
        if function.__doc__ is None:  # python -OO
            return function
        docstring = Docstring(function.__doc__)
        names = _parameter_names(function)
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


def _parameter_names(function: Callable[..., object]) -> tuple[str, ...]:
    """Return the names of a function's parameters. `inspect.signature` would slow down the import."""
    code = inspect.unwrap(function).__code__
    starred_count = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + starred_count]


class Docstring:
    """A docstring in Google's style, split into sections that can be changed.

    The text is split at blank lines and no further: this runs for hundreds of functions while the package is imported.

    Args:
        text: The docstring. Its sections have no blank lines, except for the last one, `Example`.

    Attributes:
        summary: The text before the first section.
        sections: The text of each section, whose first line is the title, by title.
        indent: The spaces before a title. Python 3.13 removes them from docstrings.
    """

    def __init__(self, text: str):
        parts = text.split("\n\n")
        summary_length = next((i for i, part in enumerate(parts) if _title(part)), len(parts))  # in parts
        self.summary = "\n\n".join(parts[:summary_length])
        self.sections: dict[str, str] = {}
        title = ""
        for part in parts[summary_length:]:
            title = _title(part) or title  # text without a title continues the last section
            self.sections[title] = f"{self.sections[title]}\n\n{part}" if title in self.sections else part
        first_section = next(iter(self.sections.values()), "")
        self.indent = first_section[: len(first_section) - len(first_section.lstrip(" "))]

    def add_row(self, title: str, row: str, *, first: bool = False) -> None:
        """Add a row to a section, at its beginning or its end; create the section if it is missing."""
        title_line, _, rows = self.sections.get(title, f"{self.indent}{title}:").partition("\n")
        new_row = f"{self.indent}    {row}".replace("\n", f"\n{self.indent}        ")
        new_rows = [new_row, rows.rstrip()] if first else [rows.rstrip(), new_row]
        self.sections[title] = "\n".join([title_line, *filter(None, new_rows)])

    def remove_row(self, title: str, name: str) -> None:
        """Remove the row `name: …` from a section if it is there, and the section if no row is left."""
        title_line, *lines = self.sections.get(title, "").split("\n")
        remaining_lines: list[str] = []
        is_removed = False
        for line in lines:
            if line[len(self.indent) + 4 : len(self.indent) + 5] != " ":  # the first line of a row
                is_removed = line.startswith(f"{self.indent}    {name}: ")
            if not is_removed and line.strip():
                remaining_lines.append(line)
        if remaining_lines:
            self.sections[title] = "\n".join([title_line, *remaining_lines])
        else:
            self.sections.pop(title, None)

    def __str__(self) -> str:
        parts = [self.summary.rstrip(), *(self.sections[t].rstrip() for t in _TITLES if t in self.sections)]
        return "\n\n".join(parts) + f"\n{self.indent}"


def _title(part: str) -> str:
    """Return the title of a section, or "" for other text."""
    title = part[: part.find("\n")].strip()
    return title[:-1] if title[-1:] == ":" and title[:-1] in _TITLES else ""
