"""The base class of pooling layers."""

from __future__ import annotations

from .module import Module

__all__ = ["PoolingLayer"]


class PoolingLayer(Module):
    """Base class of layers that call `functional.<function>` and print the attributes `repr_fields`."""

    function = ""
    repr_fields: tuple[str, ...] = ()

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={getattr(self, name)}" for name in self.repr_fields)
