"""Errors that modules raise. Each also has the types that PyTorch's callers catch."""

from __future__ import annotations

from ..runtime.errors import ArgumentError

__all__ = ["NameConflict", "NoSuchMember", "StateDictError"]


class NameConflict(ArgumentError, KeyError):
    """A name that a module cannot give to a parameter, buffer or submodule."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote the message


class NoSuchMember(ArgumentError, AttributeError, KeyError):
    """A path or name without a module, parameter or buffer."""

    def __str__(self) -> str:
        return str(self.args[0])


class StateDictError(ArgumentError, RuntimeError):
    """A state that does not fit the module. The message lists every missing, unexpected and wrongly shaped entry."""
