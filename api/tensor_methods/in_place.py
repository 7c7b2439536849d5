"""In-place forms of functions that return new tensors, with docstrings and signatures of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ..arguments.descriptions import parse_rows, parse_sections, write_sections
from ..runtime.dispatch import is_recorded
from ..runtime.errors import GradientError
from ..runtime.tensor import Tensor

__all__ = ["in_place_method", "in_place_view"]


def in_place_method(function: Callable[..., Tensor], example: str = "") -> Callable[..., Tensor]:
    """Return the in-place form of `function`: it copies the result to the first operand, and returns that.

    Args:
        function: A function of the package or a method, whose first parameter is a tensor.
        example: The docstring's example; by default that of `function`, rewritten.
    """

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        source = self.clone() if is_recorded(self) else self  # backward may read the old values
        return self.copy_(function(source, *args, **kwargs))

    _document(method, function, function.__name__, example)
    return method


def in_place_view(name: str) -> Callable[..., Tensor]:
    """Return the in-place form of the method `name`, which returns a view: the tensor gets the view's layout."""

    def method(self: Tensor, *args: object, **kwargs: object) -> Tensor:
        if self.requires_grad:
            raise GradientError(f"{name}_: changes a tensor's shape in place, which is not recorded; use {name}")
        view = getattr(self, name)(*args, **kwargs)
        self.meta, self.start = view.meta, view.start
        return self

    _document(method, getattr(Tensor, name), name, raises="    GradientError: This tensor requires grad.\n")
    return method


def _document(
    method: Callable[..., Tensor], function: Callable[..., Tensor], name: str, example: str = "", raises: str = ""
) -> None:
    """Give `method`, the in-place form of `function`, its name, signature and docstring."""
    method.__name__, method.__qualname__ = f"{name}_", f"Tensor.{name}_"
    signature = inspect.signature(function)
    first, *parameters = (p for p in signature.parameters.values() if p.name != "out")
    vars(method)["__signature__"] = signature.replace(
        parameters=[first.replace(name="self", annotation="Tensor"), *parameters], return_annotation="Tensor"
    )
    if function.__doc__ is None:  # python -OO
        return
    _, sections = parse_sections(function.__doc__)
    rows = parse_rows(sections.pop("Args", ""))
    if described := [rows[p.name] for p in parameters if p.name in rows]:
        sections["Args"] = "".join(described)
    sections["Returns"] = "    This tensor.\n"
    if raises:
        sections["Raises"] = raises + sections.get("Raises", "")
    sections["Example"] = example or _example_in_place(sections["Example"], name)
    method.__doc__ = write_sections(f"Compute `{name}` in place.", sections)


def _example_in_place(example: str, name: str) -> str:
    """Return the example `>>> wg.exp(x, 2)` as `>>> x.exp_(2)`, and `>>> x.exp(2)` likewise."""
    if f").{name}(" in example:
        return example.replace(f").{name}(", f").{name}_(")
    before, _, call = example.partition(">>> wg.")
    call = call.partition("(")[2]
    depth = 0
    for position, character in enumerate(call):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (not depth and character == ","):
            rest = call[position:].removeprefix(",").lstrip(" ")
            return f"{before}>>> {call[:position]}.{name}_({rest}"
    return example
