"""Lists and dicts of parameters. Tensors become parameters; other objects are stored unchanged."""

from __future__ import annotations

import operator
from collections import OrderedDict
from collections.abc import Iterable, Iterator, KeysView, Mapping
from typing import Any, NoReturn, Self, SupportsIndex, TypeAlias, overload

from ..runtime.errors import ArgumentError, DomainError
from ..runtime.tensor import Tensor
from ._errors import NoSuchMember
from ._named_entries import named_entries
from .module import Module
from .parameter import Parameter

__all__ = ["ParameterDict", "ParameterList"]

Value: TypeAlias = Any
"""A parameter, if the value that was put in is a tensor; otherwise that value itself."""

Entries: TypeAlias = "Mapping[str, object] | ParameterDict | Iterable[tuple[str, object]]"
"""Names and values: a mapping, or pairs."""


def _as_parameter(value: object) -> object:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


def _repr_line(key: int | str, value: object, type_name: str) -> str:
    if not isinstance(value, Tensor):
        return f"  ({key}): Object of type: {type(value).__name__}"
    device = "" if value.meta.device.type == "cpu" else f" ({value.meta.device})"
    size = "x".join(str(n) for n in value.meta.shape)
    return f"  ({key}): {type(value).__name__} containing: [{type_name} of size {size}{device}]"


class ParameterList(Module):
    """A list of parameters and other values.

    Args:
        values: Initial values.

    Example:
        >>> weights = wg.nn.ParameterList([wg.zeros(2), wg.zeros(3)])
        >>> [tuple(p.shape) for p in weights.parameters()]
        [(2,), (3,)]
    """

    def __init__(self, values: Iterable[object] | None = None):
        super().__init__()
        self._size = 0
        if values is not None:
            self.extend(values)

    def _key(self, index: SupportsIndex) -> str:
        position = operator.index(index)
        if not -self._size <= position < self._size:
            raise IndexError(f"index {position} is out of range of {self._size} values")
        return str(position % self._size)

    @overload
    def __getitem__(self, index: SupportsIndex) -> Value: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: SupportsIndex | slice) -> Value:
        if isinstance(index, slice):
            return self.__class__([self[i] for i in range(*index.indices(self._size))])
        return getattr(self, self._key(index))

    def __setitem__(self, index: int, value: object) -> None:
        setattr(self, self._key(index), _as_parameter(value))

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[Value]:
        return iter([self[i] for i in range(self._size)])

    def __iadd__(self, values: Iterable[object]) -> Self:
        return self.extend(values)

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def append(self, value: object) -> Self:
        """Append a value and return the list.

        Args:
            value: A tensor, which becomes a parameter, or another object.

        Returns:
            The list.

        Example:
            >>> len(wg.nn.ParameterList().append(wg.zeros(2)))
            1
        """
        self._size += 1
        self[self._size - 1] = value
        return self

    def extend(self, values: Iterable[object]) -> Self:
        """Append values and return the list.

        Args:
            values: Iterable of tensors and other objects.

        Returns:
            The list.

        Raises:
            ArgumentError: If `values` is not iterable, or is a tensor, whose rows would become parameters.

        Example:
            >>> len(wg.nn.ParameterList().extend([wg.zeros(2), wg.zeros(3)]))
            2
        """
        if not isinstance(values, Iterable) or isinstance(values, Tensor):
            raise ArgumentError(f"ParameterList.extend: takes an iterable of values, not {type(values).__name__}")
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_repr_line(i, v, str(v.dtype) if isinstance(v, Tensor) else "") for i, v in enumerate(self))

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise _not_callable_error(self)


class ParameterDict(Module):
    """A dict of parameters and other values.

    Args:
        parameters: Mapping, or pairs of name and value. A plain dict's entries are added in sorted order.

    Example:
        >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2), 'right': wg.ones(2)})
        >>> weights['right'].tolist()
        [1.0, 1.0]
    """

    def __init__(self, parameters: Entries | None = None):
        super().__init__()
        self._keys: dict[str, None] = {}
        if parameters is not None:
            self.update(parameters)

    def __getitem__(self, key: str) -> Value:
        if key not in self._keys:
            raise NoSuchMember(f"ParameterDict: there is no {key!r}, only {', '.join(self._keys) or 'nothing'}")
        return getattr(self, key)

    def __setitem__(self, key: str, value: object) -> None:
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
        """Return a new dict with the same values.

        Returns:
            `ParameterDict` with the same parameter objects.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> list(weights.copy().keys())
            ['left']
        """
        return ParameterDict(OrderedDict(self.items()))

    def setdefault(self, key: str, default: object = None) -> Value:
        """Return the value of `key`; add `default` if the key is missing.

        Args:
            key: Name.
            default: Value to add; a tensor becomes a parameter.

        Returns:
            The value.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> weights.setdefault('right', wg.ones(2)).tolist()
            [1.0, 1.0]
        """
        if key not in self._keys:
            self[key] = default
        return self[key]

    def clear(self) -> None:
        """Remove all entries.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> weights.clear()
            >>> len(weights)
            0
        """
        for key in list(self._keys):
            del self[key]

    def pop(self, key: str) -> Value:
        """Remove and return the value of `key`.

        Args:
            key: Name.

        Returns:
            The value.

        Raises:
            NoSuchMember: If there is no such name. It is also a `KeyError`.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> weights.pop('left').tolist(), len(weights)
            ([0.0, 0.0], 0)
        """
        value = self[key]
        del self[key]
        return value

    def popitem(self) -> tuple[str, Value]:
        """Remove and return the last (name, value).

        Returns:
            Pair of name and value.

        Raises:
            NoSuchMember: If the dict is empty.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> weights.popitem()[0]
            'left'
        """
        key = next(reversed(self._keys), None)
        if key is None:
            raise NoSuchMember("popitem: the ParameterDict is empty")
        return key, self.pop(key)

    def get(self, key: str, default: object = None) -> Value:
        """Return the value of `key`, or `default`.

        Args:
            key: Name.
            default: Result if there is no such name.

        Returns:
            The value.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> weights.get('right', 'nothing')
            'nothing'
        """
        return self[key] if key in self._keys else default

    def fromkeys(self, keys: Iterable[str], default: object = None) -> ParameterDict:
        """Return a new dict with the same value for each of `keys`.

        Args:
            keys: Names.
            default: The value of all names.

        Returns:
            `ParameterDict`.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> list(weights.fromkeys(['a', 'b'], wg.ones(1)))
            ['a', 'b']
        """
        return ParameterDict([(key, default) for key in keys])

    def keys(self) -> KeysView[str]:
        """Return the names.

        Returns:
            View of the names.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> list(weights.keys())
            ['left']
        """
        return self._keys.keys()

    def items(self) -> Iterable[tuple[str, Value]]:
        """Return (name, value) pairs.

        Returns:
            List of pairs.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> [(name, value.tolist()) for name, value in weights.items()]
            [('left', [0.0, 0.0])]
        """
        return [(key, self[key]) for key in self._keys]

    def values(self) -> Iterable[Value]:
        """Return the values.

        Returns:
            List of values.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> [value.tolist() for value in weights.values()]
            [[0.0, 0.0]]
        """
        return [self[key] for key in self._keys]

    def update(self, parameters: Entries) -> None:
        """Set the entries of a mapping or of (name, value) pairs.

        Args:
            parameters: Mapping, or pairs of name and value. A plain dict's entries are set in sorted order.

        Raises:
            ArgumentError: If `parameters` is neither a mapping nor pairs.
            NameConflict: If a name in a list of pairs is not a string.

        Example:
            >>> weights = wg.nn.ParameterDict({'left': wg.zeros(2)})
            >>> weights.update({'right': wg.ones(2)})
            >>> list(weights)
            ['left', 'right']
        """
        entries = named_entries(parameters, "ParameterDict.update")
        if isinstance(parameters, dict) and not isinstance(parameters, OrderedDict):
            entries = sorted(entries, key=lambda pair: pair[0])
        for key, value in entries:
            self[key] = value

    def __or__(self, other: Entries) -> ParameterDict:
        merged = self.copy()
        merged.update(other)
        return merged

    def __ror__(self, other: Entries) -> ParameterDict:
        merged = ParameterDict(other)
        merged.update(self)
        return merged

    def __ior__(self, other: Entries) -> Self:
        self.update(other)
        return self

    def extra_repr(self) -> str:
        return "\n".join(_repr_line(k, v, "weftgrad.Tensor") for k, v in self.items())

    def __call__(self, *args: object, **kwargs: object) -> NoReturn:
        raise _not_callable_error(self)


def _not_callable_error(module: Module) -> DomainError:
    return DomainError(f"a {type(module).__name__} computes nothing: use its parameters in the forward of its module")
