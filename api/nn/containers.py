"""Modules that hold modules. Lists and dicts of parameters are in `parameter_containers`."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Self

from ..runtime.errors import ArgumentError, NotSupported
from ._errors import NameTaken
from .module import Module

__all__ = ["ModuleDict", "ModuleList", "Sequential"]


class _Parts(Module):
    """What Sequential and ModuleList share: parts called 0, 1, …."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if not name.isdigit()]

    def _key(self, index: int) -> str:
        position = operator.index(index)
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range of {len(self)} modules")
        return list(self._modules)[position]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._like(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def _like(self, items: list[tuple[str, Module]]) -> Any:
        return self.__class__([part for _, part in items])  # type: ignore[call-arg]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: Any) -> None:
        chosen = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for name in chosen:
            delattr(self, name)
        self._number(list(self._modules.values()))

    def _number(self, parts: list[Any]) -> None:
        """Make `parts` the only ones, called 0, 1, …."""
        self._modules.clear()
        for i, part in enumerate(parts):
            self.register_module(str(i), part)

    def append(self, module: Module) -> Self:
        """Add a part at the end. Returns the container."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Add parts at the end. Raises `ArgumentError` for what cannot be iterated over."""
        if not isinstance(modules, Iterable):
            raise ArgumentError(f"extend: takes an iterable of modules, not {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a part before another."""
        parts: list[Any] = list(self._modules.values())
        parts.insert(index, module)
        self._number(parts)
        return None

    def pop(self, key: Any = -1) -> Module:
        """Take a part out, and return it."""
        found: Module = self[key]
        del self[key]
        return found


class Sequential(_Parts):
    """Modules one after the other: `Sequential(a, b)`, or of an ordered mapping from names to modules."""

    def __init__(self, *args: Any):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, part in args[0].items():
                self.register_module(name, part)
        else:
            for i, part in enumerate(args):
                self.register_module(str(i), part)

    def _like(self, items: list[tuple[str, Module]]) -> Any:
        return self.__class__(dict(items))

    def insert(self, index: int, module: Module) -> Self:
        """Add a part before another; the parts are called 0, 1, … then. Raises `IndexError` past the end."""
        if not isinstance(module, Module):
            raise ArgumentError(f"insert: takes a Module, not {type(module).__name__}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range of {len(self)} modules")
        super().insert(index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Add the parts of another at the end."""
        return super().extend(sequential)

    def __add__(self, other: Any) -> Sequential:
        return self._joined(other, "add").extend(other)

    def __iadd__(self, other: Any) -> Self:
        self._joined(other, "add")
        return self.extend(other)

    def _joined(self, other: Any, what: str) -> Sequential:
        if not isinstance(other, Sequential):
            raise ArgumentError(f"{what}: only a Sequential can be added to one, not {type(other).__name__}")
        return Sequential(*self)

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*(list(self) * _times(other)))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        parts = list(self)
        for _ in range(_times(other) - 1):
            self.extend(parts)
        return self

    def forward(self, input: Any) -> Any:
        for part in self._modules.values():
            input = part(input)
        return input


def _times(count: Any) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"a Sequential can be repeated 1, 2, … times, not {count!r}")
    return count


class ModuleList(_Parts):
    """A list of modules, all of them parts of the module it is assigned to. It has no `forward`."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises `NotSupported`: a list does not say what to do with its modules."""
        raise _no_forward(self)

    def __repr__(self) -> str:
        lines = []
        start = 0
        for text, same in groupby(repr(part) for part in self):
            count = len(list(same))
            inner = text.replace("\n", "\n  ")
            lines.append(f"({start}): {inner}" if count == 1 else f"({start}-{start + count - 1}): {count} x {inner}")
            start += count
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


class ModuleDict(Module):
    """Modules by name, in order. It has no `forward`."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        if modules is not None:
            self.update(modules)

    def __getitem__(self, key: str) -> Module:
        return self._modules[key]

    def __setitem__(self, key: str, module: Module) -> None:
        self.register_module(key, module)

    def __delitem__(self, key: str) -> None:
        del self._modules[key]

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[str]:
        return iter(self._modules)

    def __contains__(self, key: object) -> bool:
        return key in self._modules

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        """The modules."""
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Names and modules."""
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules, replacing those of the same name. Raises `ArgumentError` for what is no mapping or pairs."""
        for name, module in pairs(modules, "ModuleDict.update"):
            self[name] = module

    def pop(self, key: str) -> Module:
        """Take a module out, and return it."""
        return self._modules.pop(key)  # type: ignore[no-any-return]

    def clear(self) -> None:
        """Take all out."""
        self._modules.clear()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Raises `NotSupported`: a dict does not say what to do with its modules."""
        raise _no_forward(self)


def _no_forward(module: Module) -> NotSupported:
    return NotSupported(
        f"{module.__class__.__name__} defines no forward(...): call its modules in the forward of the one that holds it"
    )


def pairs(given: Any, where: str) -> list[tuple[str, Any]]:
    """The entries of a mapping, or of an iterable of pairs. Raises `ArgumentError`, a `TypeError` and `ValueError`."""
    if isinstance(given, Mapping) or (hasattr(given, "keys") and hasattr(given, "items")):
        return list(given.items())
    if not isinstance(given, Iterable):
        raise ArgumentError(f"{where}: takes a mapping or pairs of name and value, not {type(given).__name__}")
    found = []
    for i, pair in enumerate(given):
        if not isinstance(pair, Iterable) or isinstance(pair, str) or len(entry := list(pair)) != 2:
            raise ArgumentError(f"{where}: element {i} is {pair!r}, not a pair of name and value")
        if not isinstance(entry[0], str):
            raise NameTaken(f"{where}: a name is a string, not {entry[0]!r}")
        found.append((entry[0], entry[1]))
    return found
