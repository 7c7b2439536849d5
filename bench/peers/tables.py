"""PyTorch's names for another library's functions, by a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import ModuleType

from ..sites import NotOffered

__all__ = ["Names", "PeerFunction"]

PeerFunction = Callable[..., object]


class Names(ModuleType):
    """A library whose `exp` and `nn.functional.gelu` are entries of a table; any other name raises `NotOffered`."""

    def __init__(self, table: Mapping[str, PeerFunction], library: str, prefix: str = ""):
        super().__init__(f"{library}.{prefix}".rstrip("."))
        self._table, self._library, self._prefix = table, library, prefix

    def __getattr__(self, name: str) -> PeerFunction | Names:
        if name.startswith("__"):
            raise AttributeError(name)
        full = f"{self._prefix}{name}"
        if full in self._table:
            return self._table[full]
        if any(entry.startswith(f"{full}.") for entry in self._table):
            return Names(self._table, self._library, f"{full}.")
        raise NotOffered(f"{self._library}: no {full} in its table")
