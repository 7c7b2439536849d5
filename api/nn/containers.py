"""Modules that hold modules, and lists of parameters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from ..runtime.tensor import Tensor
from .module import Module
from .parameter import Parameter

__all__ = ["ModuleDict", "ModuleList", "ParameterDict", "ParameterList", "Sequential"]


class _Parts(Module):
    """What Sequential and ModuleList share: parts called 0, 1, …."""

    def __len__(self) -> int:
        return len(self._modules)

    def __iter__(self) -> Iterator[Module]:
        return iter(self._modules.values())

    def _key(self, index: int) -> str:
        position = index.__index__()
        if not -len(self) <= position < len(self):
            raise IndexError(f"index {position} is out of range of {len(self)} modules")
        return list(self._modules)[position]

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return self._like(list(self._modules.items())[index])
        return self._modules[self._key(index)]

    def _like(self, items: list[tuple[str, Module]]) -> Any:
        return type(self)([part for _, part in items])  # type: ignore[call-arg]

    def __setitem__(self, index: int, module: Module) -> None:
        setattr(self, self._key(index), module)

    def __delitem__(self, index: Any) -> None:
        chosen = list(self._modules)[index] if isinstance(index, slice) else [self._key(index)]
        left = [part for name, part in self._modules.items() if name not in chosen]
        self._modules.clear()
        self._modules.update({str(i): part for i, part in enumerate(left)})

    def append(self, module: Module) -> Any:
        """Add a part at the end. Returns the container."""
        self.register_module(str(len(self)), module)
        return self

    def extend(self, modules: Iterable[Module]) -> Any:
        """Add parts at the end."""
        for module in list(modules):
            self.append(module)
        return self

    def insert(self, index: int, module: Module) -> Any:
        """Add a part before another."""
        parts = list(self._modules.values())
        parts.insert(index, module)
        self._modules.clear()
        return self.extend(parts)

    def pop(self, index: int = -1) -> Module:
        """Take a part out."""
        found: Module = self[index]
        del self[index]
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

    def _like(self, items: list[tuple[str, Module]]) -> Sequential:
        return Sequential(dict(items))

    def forward(self, input: Any) -> Any:
        for part in self._modules.values():
            input = part(input)
        return input


class ModuleList(_Parts):
    """A list of modules, all of them parts of the module it is assigned to."""

    def __init__(self, modules: Iterable[Module] | None = None):
        super().__init__()
        self.extend(modules or ())


class ModuleDict(Module):
    """Modules by name, in order."""

    def __init__(self, modules: Mapping[str, Module] | Iterable[tuple[str, Module]] | None = None):
        super().__init__()
        self.update(modules or {})

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
        """Add modules, replacing those of the same name."""
        for name, module in modules.items() if isinstance(modules, Mapping) else modules:
            self[name] = module

    def pop(self, key: str) -> Module:
        """Take a module out."""
        return self._modules.pop(key)

    def clear(self) -> None:
        """Take all out."""
        self._modules.clear()


def _parameter(value: Any) -> Any:
    return Parameter(value) if isinstance(value, Tensor) and not isinstance(value, Parameter) else value


class ParameterList(Module):
    """A list of parameters; tensors put in become parameters."""

    def __init__(self, values: Iterable[Any] = ()):
        super().__init__()
        self.extend(values)

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._parameters.values())

    def __getitem__(self, index: Any) -> Any:
        found = list(self._parameters.values())[index]
        return ParameterList(found) if isinstance(index, slice) else found

    def __setitem__(self, index: int, value: Any) -> None:
        self.register_parameter(str(range(len(self))[index]), _parameter(value))

    def append(self, value: Any) -> ParameterList:
        """Add a parameter at the end."""
        self.register_parameter(str(len(self)), _parameter(value))
        return self

    def extend(self, values: Iterable[Any]) -> ParameterList:
        """Add parameters at the end."""
        for value in list(values):
            self.append(value)
        return self

    def extra_repr(self) -> str:
        return "\n".join(f"({k}): Parameter of shape {list(p.meta.shape)}" for k, p in self._parameters.items())


class ParameterDict(Module):
    """Parameters by name; tensors put in become parameters."""

    def __init__(self, parameters: Mapping[str, Any] | None = None):
        super().__init__()
        for name, value in (parameters or {}).items():
            self[name] = value

    def __getitem__(self, key: str) -> Any:
        return self._parameters[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.register_parameter(key, _parameter(value))

    def __delitem__(self, key: str) -> None:
        del self._parameters[key]

    def __len__(self) -> int:
        return len(self._parameters)

    def __iter__(self) -> Iterator[str]:
        return iter(self._parameters)

    def __contains__(self, key: object) -> bool:
        return key in self._parameters

    def keys(self) -> Iterable[str]:
        """The names."""
        return self._parameters.keys()

    def items(self) -> Iterable[tuple[str, Any]]:
        """Names and parameters."""
        return self._parameters.items()

    def values(self) -> Iterable[Any]:
        """The parameters."""
        return self._parameters.values()
