"""Copy to `Tensor` the methods that are written in Python, such as `backward`, `numpy` and `__repr__`.

The runtime defines `Tensor`, and must not import this package, so `Tensor` cannot inherit from the classes here.
`generated_methods` adds the methods that are ops, and `derived_methods` aliases and in-place forms.
"""

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
"""Classes whose attributes `install` copies; nothing inherits from them. `codegen/tensor_stub.py` reads this tuple."""


def install() -> None:
    """Set the methods and properties of `MIXINS` on `Tensor`, but not what Python itself adds to every class."""
    skipped_names = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__")
    for mixin in MIXINS:
        for name, attribute in vars(mixin).items():
            if name not in skipped_names:
                setattr(Tensor, name, attribute)
