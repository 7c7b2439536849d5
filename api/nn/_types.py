"""Aliases for annotations that modules of `nn` share. Nothing here is needed at run time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

__all__ = ["Argument", "Hook", "Output", "StateDict"]

Argument: TypeAlias = Any
"""An argument whose type a subclass decides on, as those of `Module.forward`, or that is passed on unchanged.

Type checkers accept every signature as an override of `(*args: Any, **kwargs: Any)`.
"""

Output: TypeAlias = Any
"""The result of a module's call, which its subclass decides on, and which hooks may replace."""

Hook: TypeAlias = Callable[..., Any]
"""A user's hook. What it takes depends on the options that it is registered with; it may return any replacement."""

StateDict: TypeAlias = dict[str, Any]
"""Tensors by path, and what `Module.get_extra_state` returns, which may be any object."""
