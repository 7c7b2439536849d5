"""What modules refuse, as types that PyTorch's callers catch as well."""

from __future__ import annotations

from ..runtime.errors import ArgumentError

__all__ = ["NameTaken", "NoSuchPart", "StateDictError"]


class NameTaken(ArgumentError, KeyError):
    """A name that a module cannot give to a parameter, a buffer or a part."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would show it quoted


class NoSuchPart(ArgumentError, AttributeError, KeyError):
    """A path or a name under which there is no such module, parameter or buffer."""

    def __str__(self) -> str:
        return str(self.args[0])


class StateDictError(ArgumentError, RuntimeError):
    """A state that does not fit the module; the message lists every entry that is missing, unexpected or misshaped."""
