"""The importer of `torch` and its submodules: each name gives a module of weftgrad, not a second copy of it."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

from ..runtime.errors import ArgumentError
from . import child_processes
from .placeholders import PlaceholderModule
from .tables import ADDITIONS, ALIASES, MOVED, STAND_INS, remedy_of
from .torch_module import TORCH_VERSION, TorchModule

__all__ = ["ExistingModuleLoader", "Finder", "install"]

_PACKAGE = __package__.rpartition(".")[0]  # weftgrad


class ExistingModuleLoader(Loader):
    """A loader that returns a module of weftgrad, with the names that torch's module has beside it.

    Args:
        name: The module's name below torch.
        module: The module.
        additions: The module with names to add to it, or None.
    """

    def __init__(self, name: str, module: ModuleType, additions: ModuleType | None = None):
        self._name = name
        self._module = module
        self._additions = additions
        self._spec = getattr(module, "__spec__", None)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return self._module

    def exec_module(self, module: ModuleType) -> None:
        if self._spec is not None:
            module.__spec__ = self._spec  # the import system has replaced it by the spec of torch's name
        if not hasattr(module, "__path__"):
            module.__path__ = []  # so that names of `tables` below this module can be imported
        if self._additions is not None:
            for name in self._additions.__all__:
                if name not in vars(module):
                    setattr(module, name, getattr(self._additions, name))
        if self._name != "torch":  # programs use these without an import, because PyTorch imports them with the parent
            for name in (*STAND_INS, *ADDITIONS):
                if name.startswith(f"{self._name}.") and remedy_of(name) is None:
                    import_module(name)


class TorchDistribution(importlib.metadata.Distribution):
    """The metadata of the package `torch`, which libraries ask for its version."""

    def read_text(self, filename: str) -> str | None:
        if filename == "METADATA":
            return f"Metadata-Version: 2.1\nName: torch\nVersion: {TORCH_VERSION}\n"
        return None

    def locate_file(self, path: object) -> Path:
        return Path(__file__).with_name(str(path))


class Finder(MetaPathFinder):
    """Finds `torch` and the modules below it."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch" and not fullname.startswith("torch."):
            return None
        module = resolve(fullname)
        if module is None:
            return None
        additions = None
        if fullname in ADDITIONS:
            additions = import_module(f"{__package__}.additions.{ADDITIONS[fullname]}")
        is_package = hasattr(module, "__path__")
        return spec_from_loader(fullname, ExistingModuleLoader(fullname, module, additions), is_package=is_package)

    def find_distributions(
        self, context: importlib.metadata.DistributionFinder.Context | None = None
    ) -> Iterable[importlib.metadata.Distribution]:
        """Yield the metadata of `torch`."""
        if context is None or context.name is None or context.name.lower() == "torch":
            yield TorchDistribution()


def resolve(name: str) -> ModuleType | None:
    """Return the module that a name of a torch module means.

    Args:
        name: The whole name: `torch`, `torch.nn.functional`.

    Returns:
        The module, or None if torch has no such module as far as `tables` knows.

    Example:
        >>> from weftgrad.torch_names import finder
        >>> finder.resolve('torch.nn.functional') is wg.nn.functional
        True
    """
    if name == "torch":
        return TorchModule(import_module(_PACKAGE))
    if name in STAND_INS:
        return import_module(f"{__package__}.stand_ins.{STAND_INS[name]}")
    own_name = MOVED.get(name) or _PACKAGE + name.removeprefix("torch")
    is_shared = name in MOVED or name.split(".")[1] in ALIASES  # torch and weftgrad have the same module
    if is_shared and _exists(own_name):
        return import_module(own_name)
    remedy = remedy_of(name)
    return None if remedy is None else PlaceholderModule(name, remedy)


def _exists(own_name: str) -> bool:
    """Return True if weftgrad has a module of this name."""
    try:
        return find_spec(own_name) is not None
    except ModuleNotFoundError:  # its parent is a module, not a package
        return False


def install() -> None:
    """Make `import torch` mean weftgrad in this process, and in those that `multiprocessing` starts from it.

    Importing `weftgrad.torch_compat` calls this function.

    Raises:
        ArgumentError: PyTorch was imported before, so that other modules hold it already.

    Example:
        >>> import weftgrad.torch_compat  # doctest: +SKIP
        >>> import torch  # doctest: +SKIP
        >>> torch.nn is wg.nn  # doctest: +SKIP
        True
    """
    present = sys.modules.get("torch")
    if isinstance(present, TorchModule):
        return
    if present is not None:
        raise ArgumentError(
            f"torch_compat: PyTorch {getattr(present, '__version__', '')} was imported before, from "
            f"{getattr(present, '__file__', 'an unknown file')}, and other modules use it; import "
            "weftgrad.torch_compat first, or start the program with `python -m weftgrad.as_torch PROGRAM`"
        )
    sys.meta_path.insert(0, Finder())
    import_module("torch")
    child_processes.install()
