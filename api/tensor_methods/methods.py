"""The classes whose methods Tensor gets besides its ops. `install` copies the methods to Tensor."""

from __future__ import annotations

from ..runtime.tensor import Tensor
from .autograd_methods import AutogradMethods
from .conversion import Conversions
from .creation_methods import CreationMethods
from .dtype_methods import DTypeMethods
from .properties import Properties
from .protocols import Protocols
from .view_methods import ViewMethods

__all__ = ["MIXINS", "install"]

MIXINS = (Properties, ViewMethods, AutogradMethods, Conversions, DTypeMethods, CreationMethods, Protocols)
"""`codegen/tensor_stub.py` reads this tuple, too."""


def install() -> None:
    """Add all methods to `Tensor`."""
    skipped_names = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__")
    for source in MIXINS:
        for name, value in vars(source).items():
            if name not in skipped_names:
                setattr(Tensor, name, value)
