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
from .override_methods import OverrideMethods
from .properties import Properties
from .protocols import Protocols
from .storage_methods import StorageMethods
from .view_methods import ViewMethods

__all__ = ["METHOD_CLASSES", "install"]

METHOD_CLASSES = (
    Properties, ViewMethods, AutogradMethods, Conversions, DTypeMethods, CreationMethods, Protocols, StorageMethods,
    OverrideMethods,
)  # fmt: skip
"""Classes whose attributes `install` copies; nothing inherits from them. `codegen/tensor_stub.py` reads this tuple."""


def install() -> None:
    """Set the methods and properties of `METHOD_CLASSES` on `Tensor`, but nothing that Python adds to every class."""
    skipped_names = ("__module__", "__dict__", "__weakref__", "__doc__", "__annotations__", "__qualname__")
    for method_class in METHOD_CLASSES:
        for name, attribute in vars(method_class).items():
            if name not in skipped_names:
                setattr(Tensor, name, attribute)
