"""Offer the functions of another library under PyTorch's names, from a table that its peer module has."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from ..sites import NotOffered

__all__ = ["FunctionNamespace", "PeerFunction"]

PeerFunction = Callable[..., object]


class FunctionNamespace(ModuleType):
    """A module with the functions of a table as attributes, as in `library.nn.functional.gelu(x)`.

    Names that the table does not have raise `NotOffered`, so that a row which calls them is measured without this peer.

    Args:
        table: Functions by their names in `torch`, such as `exp` and `nn.functional.gelu`.
        library: The library's name, for error messages.
        prefix: The part of the names that leads to this module, with a dot at its end, such as `nn.functional.`.
    """

    def __init__(self, table: Mapping[str, PeerFunction], library: str, prefix: str = ""):
        super().__init__(f"{library}.{prefix}".rstrip("."))
        self._table, self._library, self._prefix = table, library, prefix

    def __getattr__(self, name: str) -> PeerFunction | FunctionNamespace:
        if name.startswith("__"):
            raise AttributeError(name)
        full_name = f"{self._prefix}{name}"
        if full_name in self._table:
            return self._table[full_name]
        if any(entry.startswith(f"{full_name}.") for entry in self._table):
            return FunctionNamespace(self._table, self._library, f"{full_name}.")
        raise NotOffered(f"{self._library}: no {full_name} in its table")
