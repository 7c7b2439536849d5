"""The layers under PyTorch's module paths: `nn.modules.Linear` is `nn.Linear`."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from . import module

__all__ = ["module"]

_SUBMODULES = (
    "activation", "batchnorm", "container", "conv", "dropout", "instancenorm", "linear", "loss", "normalization",
    "pooling", "rnn", "sparse", "transformer", "utils",
)  # fmt: skip


def __getattr__(name: str) -> Any:
    from ... import nn

    if name in _SUBMODULES:
        return import_module(f".{name}", __name__)
    try:
        return getattr(nn, name)
    except AttributeError:
        raise AttributeError(f"module 'weftgrad.nn.modules' has no attribute {name!r}") from None
