"""Describe parameters that many functions share once, and add the text to the docstrings of these functions.

A docstring leaves out the parameters in a table such as `OPTIONS`; the decorator `describe` adds their rows to its
section `Args`, so that `help(wg.zeros)` shows every parameter.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

__all__ = ["LIKE_OPTIONS", "OPTIONS", "describe", "parse_rows", "parse_sections", "write_sections"]

_Function = TypeVar("_Function", bound=Callable[..., object])
_TITLE = re.compile(r"^(Args|Returns|Yields|Raises|Example):\n", re.MULTILINE)
_ROW = re.compile(r"^    \S.*\n(?:     .*\n)*", re.MULTILINE)
_ORDER = ("Args", "Returns", "Yields", "Raises", "Example")

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

LIKE_OPTIONS = OPTIONS | {
    "input": "Tensor whose shape the result has.",
    "dtype": "Dtype of the result; None: that of `input`.",
    "device": "Device of the result; None: that of `input`.",
}
"""The options of functions such as `zeros_like`."""


def describe(parameters: Mapping[str, str], *, returns: str = "", raises: str = "") -> Callable[[_Function], _Function]:
    """Return a decorator that adds rows to a function's docstring.

    Args:
        parameters: Name (with its stars) -> description. Those that the function has and its docstring does not
            describe are added to `Args`.
        returns: The section `Returns`, if the docstring has none.
        raises: Rows for the section `Raises`, before those that are there.
    """

    def add(function: _Function) -> _Function:
        if function.__doc__ is None:  # python -OO
            return function
        summary, sections = parse_sections(function.__doc__)
        rows = parse_rows(sections.get("Args", ""))
        for name, text in parameters.items():
            rows.setdefault(name.lstrip("*"), f"    {name}: {text}\n")
        if described := [rows[name] for name in _parameters(function) if name in rows]:
            sections["Args"] = "".join(described)
        if returns:
            sections.setdefault("Returns", f"    {returns}\n")
        if raises:
            sections["Raises"] = f"    {raises}\n" + sections.get("Raises", "")
        function.__doc__ = write_sections(summary, sections)
        return function

    return add


def _parameters(function: Callable[..., object]) -> list[str]:
    """Return the names of a function's parameters in order. `inspect.signature` would slow down the import."""
    code = inspect.unwrap(function).__code__
    variables = list(code.co_varnames)
    positional, variables = variables[: code.co_argcount], variables[code.co_argcount :]
    keyword, variables = variables[: code.co_kwonlyargcount], variables[code.co_kwonlyargcount :]
    starred = [variables.pop(0)] if code.co_flags & inspect.CO_VARARGS else []
    keywords = [variables.pop(0)] if code.co_flags & inspect.CO_VARKEYWORDS else []
    return [*positional, *starred, *keyword, *keywords]


def parse_sections(docstring: str) -> tuple[str, dict[str, str]]:
    """Return the text before the first section, and the sections' rows by title. The docstring is in Google's style."""
    summary, *parts = _TITLE.split(inspect.cleandoc(docstring) + "\n")
    return summary.strip(), {title: rows.rstrip() + "\n" for title, rows in zip(parts[::2], parts[1::2], strict=True)}


def parse_rows(section: str) -> dict[str, str]:
    """Return the rows of a section `Args` by the names of their parameters, without stars."""
    return {row.strip().partition(":")[0].lstrip("*"): row for row in _ROW.findall(section)}


def write_sections(summary: str, sections: Mapping[str, str]) -> str:
    """Return the docstring of a summary and sections, in the usual order."""
    parts = [f"{title}:\n{sections[title]}" for title in _ORDER if title in sections]
    return "\n".join([summary + "\n", *parts])
