"""Tensors that a module owns."""

from __future__ import annotations

from typing import Any

from .._checks import only_tensors
from ..runtime.tensor import Tensor

__all__ = ["Buffer", "Parameter"]


class Parameter(Tensor):
    """A tensor that is a module's to learn: assigned to a module's attribute, it is listed by `parameters()`.

    It shares the memory of `data` and requires a gradient unless told otherwise.
    """

    def __init__(self, data: Any = None, requires_grad: bool = True):
        if data is None:
            from ..factories import empty

            data = empty(0)
        only_tensors("Parameter", data)
        Tensor.__init__(self, data.storage, data.meta, data.start)
        if requires_grad:
            self.requires_grad_(True)  # type: ignore[attr-defined]

    def __repr__(self) -> str:
        return f"Parameter containing:\n{Tensor.__repr__(self)}"


class Buffer(Tensor):
    """A tensor that belongs to a module's state without being learned: listed by `buffers()`."""

    def __init__(self, data: Any = None, *, persistent: bool = True):
        if data is None:
            from ..factories import empty

            data = empty(0)
        only_tensors("Buffer", data)
        Tensor.__init__(self, data.storage, data.meta, data.start)
        self.persistent = persistent
