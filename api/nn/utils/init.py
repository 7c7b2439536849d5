"""Construction of modules without initializing their parameters."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from ...runtime.errors import DomainError
from .. import init
from ..module import Module

__all__ = ["skip_init"]

_Module = TypeVar("_Module", bound=Module)
_Parameters = ParamSpec("_Parameters")


def skip_init(
    module_cls: Callable[_Parameters, _Module], *args: _Parameters.args, **kwargs: _Parameters.kwargs
) -> _Module:
    """Return `module_cls(*args, **kwargs)` without running `nn.init`, for parameters that are loaded afterwards.

    No random number is drawn.

    Args:
        module_cls: Class of modules with a `device` argument.
        *args: Positional arguments of the class.
        **kwargs: Keyword arguments of the class.

    Returns:
        The module, whose parameters have undefined values.

    Raises:
        DomainError: For a class without a `device` argument. It is also a `RuntimeError` and a `ValueError`.

    Example:
        >>> wg.nn.utils.skip_init(wg.nn.Linear, 2, 3).weight.shape
        weftgrad.Size([3, 2])
    """
    cls: object = module_cls
    if not (isinstance(cls, type) and issubclass(cls, Module)):
        raise DomainError(f"skip_init: takes a class of modules, not {module_cls!r}")
    if "device" not in inspect.signature(cls).parameters:
        raise DomainError(f"skip_init: {cls.__name__} has no device argument, which skip_init needs")
    with init.skip_initialization():
        return module_cls(*args, **kwargs)
