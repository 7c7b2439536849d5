"""In-place forms of functions that return new tensors, with docstrings and signatures of their own."""

from __future__ import annotations

import inspect
from collections.abc import Callable

from ..arguments.descriptions import Docstring
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

    _document(method, getattr(Tensor, name), name, raises="GradientError: This tensor requires grad.")
    return method


def _document(
    method: Callable[..., Tensor], function: Callable[..., Tensor], name: str, example: str = "", raises: str = ""
) -> None:
    """Give `method`, the in-place form of `function`, its name, signature and docstring."""
    method.__name__, method.__qualname__ = f"{name}_", f"Tensor.{name}_"
    vars(method)["__wrapped__"] = _InPlaceSignature(function)
    if function.__doc__ is None:  # python -OO
        return
    docstring = Docstring(function.__doc__)
    docstring.summary = f"Compute `{name}` in place."
    for parameter in ("input", "out"):
        docstring.remove_row("Args", parameter)
    docstring.sections["Returns"] = f"{docstring.indent}Returns:\n{docstring.indent}    This tensor."
    if raises:
        docstring.add_row("Raises", raises, first=True)
    if example:
        docstring.sections.pop("Example", None)
        for line in example.splitlines():
            docstring.add_row("Example", line)
    else:
        docstring.sections["Example"] = _example_in_place(docstring.sections["Example"], name)
    method.__doc__ = str(docstring)


class _InPlaceSignature:
    """Computes the signature of a function's in-place form when `inspect` asks for it, which few programs do."""

    def __init__(self, function: Callable[..., Tensor]):
        self._function = function

    @property
    def __signature__(self) -> inspect.Signature:
        signature = inspect.signature(self._function)
        first, *parameters = (p for p in signature.parameters.values() if p.name != "out")
        own = first.replace(name="self", annotation="Tensor")
        return signature.replace(parameters=[own, *parameters], return_annotation="Tensor")


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
