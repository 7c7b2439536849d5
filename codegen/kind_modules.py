"""Find the module of a kind of op in `kinds`."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

__all__ = ["kind_module"]


def kind_module(kind: str) -> ModuleType:
    """Import the module of `kind`."""
    return import_module(f".kinds.{kind}", __package__)
