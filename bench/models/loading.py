"""Load a model's module for any library that has PyTorch's names, such as torch itself.

The models of this folder are plain programs that import weftgrad. To run one on torch, its source is executed with the
imports of weftgrad resolved to torch's modules, so that both libraries run the same program.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType

import weftgrad as wg

from . import alexnet, gnmt, mobilenet, ncf, resnet, translation, vgg

__all__ = ["NAMES", "load"]

_MODULES = {
    module.__name__.rpartition(".")[2]: module for module in (alexnet, vgg, resnet, mobilenet, gnmt, translation, ncf)
}
NAMES = tuple(_MODULES)
"""The modules with models."""


def load(name: str, library: ModuleType = wg) -> ModuleType:
    """Return the module `name` of this folder, whose classes are built from `library`.

    Args:
        name: One of `NAMES`.
        library: A module with PyTorch's names.

    Raises:
        ValueError: If there is no such module.

        >>> load("resnet").small_resnet().fc
        Linear(in_features=256, out_features=10, bias=True)
    """
    if name not in NAMES:
        raise ValueError(f"no model's module is called {name!r}: there are {', '.join(NAMES)}")
    if library is wg:
        return _MODULES[name]
    return _execute(name, library)


@cache
def _execute(name: str, library: ModuleType) -> ModuleType:
    """Execute a module's source with imports of weftgrad replaced by imports of `library`."""
    path = Path(__file__).with_name(f"{name}.py")
    module = ModuleType(f"{library.__name__}.models.{name}")
    module.__file__ = str(path)

    def import_replaced(
        name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (), level: int = 0,
    ) -> ModuleType:  # fmt: skip
        """Import as `__import__` does, with `library` in the place of weftgrad."""
        if level:  # `from .gnmt import GNMT`
            return load(name, library)
        package, dot, submodule = name.partition(".")
        if package != wg.__name__:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        imported = import_module(library.__name__ + dot + submodule)
        return imported if fromlist else library

    module.__dict__["__builtins__"] = vars(builtins) | {"__import__": import_replaced}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module
