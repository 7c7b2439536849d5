"""Modules that contain modules: `Sequential`, `ModuleList`, `ModuleDict`.

Parameter lists are in `parameter_containers`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Self, overload

from ..runtime.errors import ArgumentError, NotSupported
from ..runtime.tensor import Tensor
from ._named_entries import named_entries
from .module import Module

if TYPE_CHECKING:
    from ._types import Argument, Output


__all__ = ["ModuleDict", "ModuleList", "Sequential"]


class _ModuleSequence(Module):
    """Base of `Sequential` and `ModuleList`, whose submodules are named 0, 1, ..."""

    _modules: dict[str, Module]  # type: ignore[assignment]  # a name reserved by None has no place in a container

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

    @overload
    def __getitem__(self, index: int) -> Module: ...
    @overload
    def __getitem__(self, index: slice) -> Self: ...
    def __getitem__(self, index: int | slice) -> Module | Self:
        if isinstance(index, slice):
            return self._from_items(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def _from_items(self, items: list[tuple[str, Module]]) -> Self:
        raise NotImplementedError

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: int | slice) -> None:
        names = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        for name in names:
            delattr(self, name)
        self._renumber(list(self._modules.values()))

    def _renumber(self, children: list[Module]) -> None:
        """Replace the submodules by `children`, named 0, 1, ..."""
        self._modules.clear()
        for i, child in enumerate(children):
            self.register_module(str(i), child)

    def append(self, module: Module) -> Self:
        """Append a module and return the container.

        Args:
            module: The module; its name is the number of modules before it.

        Returns:
            The container.

        Raises:
            ArgumentError: If `module` is not a `Module`.

        Example:
            >>> wg.nn.Sequential(wg.nn.ReLU()).append(wg.nn.Tanh())[1]
            Tanh()
        """
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Self:
        """Append modules and return the container.

        Args:
            modules: Iterable of modules.

        Returns:
            The container.

        Raises:
            ArgumentError: If `modules` is not iterable, or an element is not a `Module`.

        Example:
            >>> len(wg.nn.ModuleList([wg.nn.ReLU()]).extend([wg.nn.Tanh(), wg.nn.ReLU()]))
            3
        """
        if not isinstance(modules, Iterable):
            raise ArgumentError(f"extend: takes an iterable of modules, not {type(modules).__name__}")
        for module in list(modules):
            self.append(module)
        return self

    def _insert(self, index: int, module: Module) -> None:
        children = list(self._modules.values())
        children.insert(index, module)
        self._renumber(children)

    def pop(self, key: int = -1) -> Module:
        """Remove and return a module.

        Args:
            key: Position, by default of the last module.

        Returns:
            The module.

        Raises:
            IndexError: If there is no module at that position.

        Example:
            >>> wg.nn.Sequential(wg.nn.ReLU(), wg.nn.Tanh()).pop()
            Tanh()
        """
        module = self[key]
        del self[key]
        return module


class Sequential(_ModuleSequence):
    """Apply modules one after the other.

    Args:
        *args: The modules, or one mapping from names to modules.

    Example:
        >>> wg.nn.Sequential(wg.nn.Linear(4, 8), wg.nn.ReLU(), wg.nn.Linear(8, 2))(wg.ones(5, 4)).shape
        weftgrad.Size([5, 2])
    """

    def __init__(self, *args: Module | Mapping[str, Module] | None):
        super().__init__()
        if len(args) == 1 and isinstance(args[0], Mapping):
            for name, child in args[0].items():
                self.register_module(name, child)
        else:
            for i, module in enumerate(args):
                if isinstance(module, Mapping):
                    raise ArgumentError("Sequential: takes modules, or one mapping and nothing else")
                self.register_module(str(i), module)

    def _from_items(self, items: list[tuple[str, Module]]) -> Self:
        return self.__class__(dict(items))

    def insert(self, index: int, module: Module) -> Self:
        """Insert a module before position `index` and rename the submodules 0, 1, ...

        Args:
            index: Position; negative values count from the end.
            module: The module.

        Returns:
            The container.

        Raises:
            ArgumentError: If `module` is not a `Module`.
            IndexError: If `index` is out of range.

        Example:
            >>> wg.nn.Sequential(wg.nn.ReLU()).insert(0, wg.nn.Tanh())[0]
            Tanh()
        """
        if not isinstance(module, Module):
            raise ArgumentError(f"insert: takes a Module, not {type(module).__name__}")
        if not -len(self) <= index <= len(self):
            raise IndexError(f"index {index} is out of range of {len(self)} modules")
        self._insert(index, module)
        return self

    def extend(self, sequential: Iterable[Module]) -> Self:
        """Append the modules of another container.

        Args:
            sequential: Iterable of modules.

        Returns:
            The container.

        Raises:
            ArgumentError: If `sequential` is not iterable, or an element is not a `Module`.

        Example:
            >>> len(wg.nn.Sequential(wg.nn.ReLU()).extend(wg.nn.Sequential(wg.nn.Tanh())))
            2
        """
        return super().extend(sequential)

    def __add__(self, other: Sequential) -> Sequential:
        return self._copy_for_add(other, "add").extend(other)

    def __iadd__(self, other: Sequential) -> Self:
        self._copy_for_add(other, "add")
        return self.extend(other)

    def _copy_for_add(self, other: Sequential, operation: str) -> Sequential:
        if not isinstance(other, Sequential):
            raise ArgumentError(f"{operation}: only a Sequential can be added to one, not {type(other).__name__}")
        return Sequential(*self)

    def __mul__(self, other: int) -> Sequential:
        return Sequential(*(list(self) * _check_repeats(other)))

    __rmul__ = __mul__

    def __imul__(self, other: int) -> Self:
        children = list(self)
        for _ in range(_check_repeats(other) - 1):
            self.extend(children)
        return self

    def forward(self, input: Argument) -> Tensor:
        for child in self._modules.values():
            input = child(input)
        return input


def _check_repeats(count: object) -> int:
    if isinstance(count, bool) or not isinstance(count, int) or count < 1:
        raise ArgumentError(f"a Sequential can be repeated 1, 2, … times, not {count!r}")
    return count


class ModuleList(_ModuleSequence):
    """A list of modules, which become submodules of the module that holds the list. It has no `forward`.

    Args:
        modules: The modules.

    Example:
        >>> layers = wg.nn.ModuleList(wg.nn.Linear(4, 4) for _ in range(3))
        >>> len(list(layers.parameters()))
        6
    """

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        if modules is not None:
            self.extend(modules)

    def insert(self, index: int, module: Module) -> None:
        """Insert a module before position `index`.

        Args:
            index: Position, which `list.insert` interprets.
            module: The module.

        Example:
            >>> layers = wg.nn.ModuleList([wg.nn.ReLU()])
            >>> layers.insert(0, wg.nn.Tanh())
            >>> layers[0]
            Tanh()
        """
        self._insert(index, module)

    def _from_items(self, items: list[tuple[str, Module]]) -> Self:
        return self.__class__([child for _, child in items])

    def __iadd__(self, modules: Iterable[Module]) -> Self:
        return self.extend(modules)

    def __add__(self, other: Iterable[Module]) -> ModuleList:
        return ModuleList([*self, *other])

    def forward(self, *args: Argument, **kwargs: Argument) -> Output:
        """Raise `NotSupported`: a list does not define how its modules are applied."""
        raise _no_forward_error(self)

    def __repr__(self) -> str:
        lines = []
        start = 0
        for text, run in groupby(repr(child) for child in self):
            count = len(list(run))
            inner = text.replace("\n", "\n  ")
            lines.append(f"({start}): {inner}" if count == 1 else f"({start}-{start + count - 1}): {count} x {inner}")
            start += count
        return f"{self._get_name()}(" + ("\n  " + "\n  ".join(lines) + "\n)" if lines else ")")


class ModuleDict(Module):
    """A dict of modules in insertion order. It has no `forward`.

    Args:
        modules: The modules by name: a mapping, or pairs.

    Example:
        >>> heads = wg.nn.ModuleDict({'class': wg.nn.Linear(4, 2), 'box': wg.nn.Linear(4, 4)})
        >>> heads['box'](wg.ones(1, 4)).shape
        weftgrad.Size([1, 4])
    """

    _modules: dict[str, Module]  # type: ignore[assignment]  # see `_ModuleSequence`

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
        """Return the names.

        Returns:
            View of the names.

        Example:
            >>> list(wg.nn.ModuleDict({'act': wg.nn.ReLU()}).keys())
            ['act']
        """
        return self._modules.keys()

    def values(self) -> Iterable[Module]:
        """Return the modules.

        Returns:
            View of the modules.

        Example:
            >>> list(wg.nn.ModuleDict({'act': wg.nn.ReLU()}).values())
            [ReLU()]
        """
        return self._modules.values()

    def items(self) -> Iterable[tuple[str, Module]]:
        """Return (name, module) pairs.

        Returns:
            View of the pairs.

        Example:
            >>> list(wg.nn.ModuleDict({'act': wg.nn.ReLU()}).items())
            [('act', ReLU())]
        """
        return self._modules.items()

    def update(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]]) -> None:
        """Add modules, replacing those with the same name.

        Args:
            modules: The modules by name: a mapping, or pairs.

        Raises:
            ArgumentError: If `modules` is neither a mapping nor pairs, or a value is not a `Module`.
            NameConflict: If a name is not a string.

        Example:
            >>> layers = wg.nn.ModuleDict({'act': wg.nn.ReLU()})
            >>> layers.update({'act': wg.nn.Tanh()})
            >>> layers['act']
            Tanh()
        """
        for name, module in named_entries(modules, "ModuleDict.update"):
            self[name] = module

    def pop(self, key: str) -> Module:
        """Remove and return a module.

        Args:
            key: Name of the module.

        Returns:
            The module.

        Raises:
            KeyError: If there is no such module.

        Example:
            >>> wg.nn.ModuleDict({'act': wg.nn.ReLU()}).pop('act')
            ReLU()
        """
        return self._modules.pop(key)

    def clear(self) -> None:
        """Remove all modules.

        Example:
            >>> layers = wg.nn.ModuleDict({'act': wg.nn.ReLU()})
            >>> layers.clear()
            >>> len(layers)
            0
        """
        self._modules.clear()

    def forward(self, *args: Argument, **kwargs: Argument) -> Output:
        """Raise `NotSupported`: a dict does not define how its modules are applied."""
        raise _no_forward_error(self)


def _no_forward_error(module: Module) -> NotSupported:
    return NotSupported(
        f"{module.__class__.__name__} defines no forward(...): call its modules in the forward of its parent module"
    )
