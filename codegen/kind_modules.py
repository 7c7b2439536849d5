"""Find the module of a kind of op: in `kinds`, or registered from outside the package."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from .model import KINDS

__all__ = ["kind_module", "kind_names", "register_kind"]

_NEEDED = ("FIELDS", "REQUIRED", "check", "render", "derive")
_registered: dict[str, ModuleType] = {}


def kind_module(kind: str) -> ModuleType:
    """Return the module of `kind`, imported at its first use."""
    return _registered.get(kind) or import_module(f".kinds.{kind}", __package__)


def kind_names() -> tuple[str, ...]:
    """Return the names of all kinds: those of the package, then registered ones."""
    return (*KINDS, *_registered)


def register_kind(module: ModuleType) -> None:
    """Register a kind of op from outside the package. Its name is the last part of the module's.

    The runtime finds its planner by `runtime.planners.register_planner`.

    Args:
        module: What a module of `kinds` has: `FIELDS`, `REQUIRED`, `check`, `render` and `derive`. It may have
            `DEFAULT_DTYPES`, and `UNREAD`: common fields that have no effect on its ops, which are then errors.

    Raises:
        ValueError: The module lacks one of them, or a kind of this name exists.
    """
    name = module.__name__.rpartition(".")[2]
    missing = [part for part in _NEEDED if not hasattr(module, part)]
    if missing:
        raise ValueError(f"kind {name!r}: its module has no {', '.join(missing)}")
    if _registered.get(name, module) is not module or name in KINDS:
        raise ValueError(f"a kind named {name!r} exists already; choose another name")
    _registered[name] = module
