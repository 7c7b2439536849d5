"""Lists and dicts of parameters: tensors put in become parameters, other objects are kept as they are."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView
from typing import Any, NoReturn, Self

from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ._errors import NoSuchPart
from .containers import pairs
from .module import Module
from .parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]


def _parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _line(key: Any, value: Any, kind: str) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    place = "" if value.meta.device.type == "cpu" else f" ({value.meta.device})"
    size = "x".join(str(n) for n in value.meta.shape)
    return f"  ({key}): {type(value).__name__} containing: [{kind} of size {size}{place}]"


class ParameterList(Module):
    """A list of parameters and other values."""

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
        setattr(self, self._key(index), _parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Any]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[Any]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: Any) -> Self:
        """Add a value at the end. Returns the list."""
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[Any]) -> Self:
        """Add values at the end. Raises `ArgumentError` for a tensor: its rows would become parameters."""
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise ArgumentError(f"ParameterList.extend: takes an iterable of values, not {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(i, v, str(v.dtype) if isinstance(v, Tensor) else "") for i, v in enumerate(self))

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _not_called(self)


class ParameterDict(Module):
    """Parameters and other values by name. A plain dict's entries are taken in the order of their names."""

    def __init__(self, parameters: Any = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Any:
        if key not in self._keys:
            raise NoSuchPart(f"ParameterDict: there is no {key!r}, only {', '.join(self._keys) or 'nothing'}")
        return getattr(self, key)

    def __setitem__(self, key: str, value: Any) -> None:
        if not isinstance(key, str):
            raise ArgumentError(f"ParameterDict: a name is a string, not {type(key).__name__}")
        setattr(self, key, _parameter(value))
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
        """Another dict of the same values."""
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: Any = None) -> Any:
        """The value of `key`, which is `default` from now on if there was none."""
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Take all out."""
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Any:
        """Take a value out, and return it."""
        found = self[key]
        del self[key]
        return found

    def popitem(self) -> tuple[str, Any]:
        """Take the last name and value out, and return both."""
        key = next(reversed(self._keys), None)
        if key is None:
            raise NoSuchPart("popitem: the ParameterDict is empty")
        return key, self.pop(key)

    def get(self, key: str, default: Any = None) -> Any:
        """The value of `key`, or `default`."""
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: Any = None) -> ParameterDict:
        """A new dict in which every one of `keys` has the same value."""
        return ParameterDict([(key, default) for key in keys])

    def keys(self) -> KeysView[str]:
        """The names."""
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and values."""
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Any]:
        """The values."""
        return [self[key] for key in self._keys]

    def update(self, parameters: Any) -> None:
        """Set the entries of a mapping, or of pairs of name and value."""
        found = pairs(parameters, "ParameterDict.update")
        if isinstance(parameters, dict) and not isinstance(parameters, OrderedDict):
            found = sorted(found, key=lambda pair: pair[0])
        for key, value in found:
            self[key] = value

    def __or__(self, other: Any) -> ParameterDict:
        made = self.copy()
        made.update(other)
        return made

    def __ror__(self, other: Any) -> ParameterDict:
        made = ParameterDict(other)
        made.update(self)
        return made

    def __ior__(self, other: Any) -> Self:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_line(k, v, "weftgrad.Tensor") for k, v in self.items())

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise _not_called(self)


def _not_called(module: Module) -> DomainError:
    return DomainError(f"a {type(module).__name__} computes nothing: use its parameters in the forward of its module")
