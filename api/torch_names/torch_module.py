"""The module `torch`: weftgrad's names, PyTorch's version, and names that exist only under torch."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from .additions import root
from .tables import ALIASES, NAMES_ONLY, STAND_INS

__all__ = ["TORCH_VERSION", "TorchModule"]

TORCH_VERSION = "2.13.0+weftgrad"
"""The version of PyTorch whose names weftgrad follows. Libraries compare it with the least version that they need."""


_MISSING = object()


class TorchVersion(str):
    """A version that compares with strings and tuples by number, as that of PyTorch does."""

    def _numbers(self, other: object) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        if isinstance(other, str):
            parts: list[object] = list(other.partition("+")[0].split("."))
        elif isinstance(other, (tuple, list)):
            parts = list(other)
        else:
            return None
        own = [int(part) for part in self.partition("+")[0].split(".")]
        numbers = [int(digits) for part in parts if (digits := _leading_digits(str(part)))]
        length = max(len(own), len(numbers))
        return tuple(own + [0] * (length - len(own))), tuple(numbers + [0] * (length - len(numbers)))

    def __lt__(self, other: object) -> bool:
        numbers = self._numbers(other)
        return NotImplemented if numbers is None else numbers[0] < numbers[1]

    def __le__(self, other: object) -> bool:
        numbers = self._numbers(other)
        return NotImplemented if numbers is None else numbers[0] <= numbers[1]

    def __gt__(self, other: object) -> bool:
        numbers = self._numbers(other)
        return NotImplemented if numbers is None else numbers[0] > numbers[1]

    def __ge__(self, other: object) -> bool:
        numbers = self._numbers(other)
        return NotImplemented if numbers is None else numbers[0] >= numbers[1]


def _leading_digits(text: str) -> str:
    """Return the digits with which `text` begins: `0` of `0rc1`."""
    return text[: len(text) - len(text.lstrip("0123456789"))]


class TorchModule(ModuleType):
    """The module `torch`. It reads from weftgrad every name that it does not have itself.

    Args:
        package: The package weftgrad.
    """

    def __init__(self, package: ModuleType):
        super().__init__("torch", f"weftgrad {package.__version__} under PyTorch's name, for programs written for it.")
        self.__path__: list[str] = []
        self.__file__ = package.__file__
        self.__version__ = TorchVersion(TORCH_VERSION)
        self._package = package
        for name in root.__all__:
            setattr(self, name, getattr(root, name))

    def __getattr__(self, name: str) -> object:
        full_name = f"torch.{name}"
        if name in ALIASES or full_name in STAND_INS or full_name in NAMES_ONLY:
            return import_module(full_name)
        value = getattr(self._package, name, _MISSING)
        if value is _MISSING or isinstance(value, ModuleType):  # a module that torch does not have
            raise AttributeError(
                f"module 'torch' has no attribute {name!r} (weftgrad stands in for torch, and has no such name)",
                name=name, obj=self,
            )  # fmt: skip
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        values = vars(self._package)
        names = set(dir(self._package))
        modules = {*self._package._LAZY, *(name for name in names if isinstance(values.get(name), ModuleType))}
        return sorted((names - modules) | {*vars(self), *ALIASES})
