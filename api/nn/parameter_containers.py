"""Lists and dicts of parameters. Tensors become parameters; other objects are stored unchanged."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView
from typing import Any, NoReturn, Self

from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ._errors import NoSuchMember
from .containers import named_entries
from .module import Module
from .parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]


def _as_parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _repr_line(key: int | str, value: Any, type_name: str) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    device = "" if value.meta.device.type == "cpu" else f" ({value.meta.device})"
    size = "x".join(str(n) for n in value.meta.shape)
    return f"  ({key}): {type(value).__name__} containing: [{type_name} of size {size}{device}]"


class ParameterList(Module):
    """A list of parameters and other values.

    Args:
        values: Initial values.
    """

    def __init__(self, values: Iterable[Any] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, index: Any) -> str:
        position = operator.index(index)
        if not -self._size <= position < self._size:
            raise IndexError(f"index {position} is out of range of {self._size} values")
        return str(position % self._size)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self.__class__([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: Any) -> None:
        setattr(self, self._key(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Self:
        """Append a value and return the list."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Append values and return the list. Raise `ArgumentError` for a tensor, whose rows would become parameters."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise ArgumentError(f"ParameterList.extend: takes an iterable of values, not {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_repr_line(i, v, str(v.dtype) if isinstance(v, Tensor) else "") for i, v in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _not_callable_error(self)


class ParameterDict(Module):
    """A dict of parameters and other values.

    Args:
        parameters: Mapping, or pairs of name and value. A plain dict's entries are added in sorted order.
    """

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise NoSuchMember(f"ParameterDict: there is no {key!r}, only {', '.join(self._keys) or 'nothing'}")
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise ArgumentError(f"ParameterDict: a name is a string, not {type(key).__name__}")
        setattr(self, key, _as_parameter(value))
        self._keys[key] = None

    def __delitem__(self, key: str) -> None:
        del self._keys[key]
        delattr(self, key)

    def __len__(self) -> int:
        return len(self._keys)

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __reversed__(self) -> Iterator[str]:
        return reversed(self._keys)

    def __contains__(self, key: object) -> bool:
        return key in self._keys

    def copy(self) -> ParameterDict:
        """Return a new dict with the same values."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`; add `default` if the key is missing."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all entries."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Remove and return the value of `key`."""
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Any]:
        """Remove and return the last (name, value)."""
        key = next(reversed(self._keys), None)
        if key is None:
            raise NoSuchMember("popitem: the ParameterDict is empty")
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """Return the value of `key`, or `default`."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """Return a new dict with the same value for each of `keys`."""
        return ParameterDict([(key, default) for key in keys])

    def keys(self) -> KeysView[str]:
        """Return the names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Return (name, value) pairs."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Any]:
        """Return the values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Set the entries of a mapping or of (name, value) pairs."""
        entries = named_entries(parameters, "ParameterDict.update")
        if isinstance(parameters, dict) and not isinstance(parameters, OrderedDict):
            entries = sorted(entries, key=lambda pair: pair[0])
        for key, value in entries:
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: Any) -> ParameterDict:
        merged = ParameterDict(other)
        merged.update(self)
        return merged

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_repr_line(k, v, "weftgrad.Tensor") for k, v in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _not_callable_error(self)


def _not_callable_error(module: Module) -> DomainError:
    return DomainError(f"a {type(module).__name__} computes nothing: use its parameters in the forward of its module")
