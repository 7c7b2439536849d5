"""Load a model's module for any library that has PyTorch's names, such as torch itself.

The models of this folder are plain programs that import weftgrad. `library_source` executes them on other libraries.
"""

from __future__ import annotations

from functools import cache, partial
from pathlib import Path
from types import ModuleType

import weftgrad as wg

from ..library_source import execute_source
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
    return execute_source(Path(__file__).with_name(f"{name}.py"), library, partial(load, library=library))
