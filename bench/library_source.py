"""Execute a program of this package on another library that has PyTorch's names, such as torch itself.

The program imports weftgrad. Its source is executed with these imports resolved to the other library's modules, so that
both libraries run the same program.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import ModuleType

import weftgrad as wg

__all__ = ["execute_source"]


def execute_source(path: Path, library: ModuleType, import_sibling: Callable[[str], ModuleType]) -> ModuleType:
    """Execute a module's source with imports of weftgrad replaced by imports of `library`.

    Args:
        path: The source.
        library: A module with PyTorch's names.
        import_sibling: Returns the module for `from .name import …`; relative imports of other forms are not for it.

    Returns:
        A new module, which is not in `sys.modules`: the program can define no data class with `ClassVar`.

    Raises:
        ImportError: The library has no module of this name.
    """
    module = ModuleType(f"{library.__name__}.{path.stem}")
    module.__file__ = str(path)

    def import_replaced(
        name: str, globals: Mapping[str, object] | None = None, locals: Mapping[str, object] | None = None,
        fromlist: Sequence[str] | None = (), level: int = 0,
    ) -> ModuleType:  # fmt: skip
        """Import as `__import__` does, with `library` in the place of weftgrad."""
        if level:  # `from .gnmt import GNMT`
            return import_sibling(name)
        package, dot, submodule = name.partition(".")
        if package != wg.__name__:
            return builtins.__import__(name, globals, locals, fromlist or (), level)
        imported = import_module(library.__name__ + dot + submodule)
        return imported if fromlist else library

    module.__dict__["__builtins__"] = vars(builtins) | {"__import__": import_replaced}
    exec(compile(path.read_text(encoding="utf-8"), str(path), "exec"), module.__dict__)
    return module
