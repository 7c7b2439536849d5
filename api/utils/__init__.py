"""Data loading and activation checkpointing."""

from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from . import data

__all__ = ["data"]

if TYPE_CHECKING:
    from . import checkpoint as checkpoint
else:

    def __getattr__(name: str) -> ModuleType:
        if name == "checkpoint":
            return import_module(f".{name}", __name__)
        raise AttributeError(f"module 'weftgrad.utils' has no attribute {name!r}")
