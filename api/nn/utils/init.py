"""Modules made without drawing their initial values."""

from __future__ import annotations

import inspect
from typing import Any

from ...runtime.errors import DomainError
from .. import init
from ..module import Module

__all__ = ["skip_init"]


def skip_init(module_cls: type[Module], *args: Any, **kwargs: Any) -> Module:
    """`module_cls(*args, **kwargs)` whose `nn.init` calls do nothing: for values that are loaded anyway. No random
    number is drawn. Raises `DomainError`, a `RuntimeError` and a `ValueError`, for a class without `device=`."""
    if not (isinstance(module_cls, type) and issubclass(module_cls, Module)):
        raise DomainError(f"skip_init: takes a class of modules, not {module_cls!r}")
    if "device" not in inspect.signature(module_cls).parameters:
        raise DomainError(f"skip_init: {module_cls.__name__} takes no device=, as a module must to be made this way")
    with init.skipped():
        return module_cls(*args, **kwargs)
