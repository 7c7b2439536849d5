"""The layers under the path that PyTorch has them at: `nn.modules.Linear` is `nn.Linear`."""

from __future__ import annotations

from typing import Any

from . import module

__all__ = ["module"]


def __getattr__(name: str) -> Any:
    from ... import nn

    try:
        return getattr(nn, name)
    except AttributeError:
        raise AttributeError(f"module 'weftgrad.nn.modules' has no attribute {name!r}") from None
