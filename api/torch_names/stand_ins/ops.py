"""`torch.ops`: ops by library and name.

There are those that Python code defined, and torchvision's; no compiled library can be loaded.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..placeholders import placeholder, placeholder_error

__all__ = ["OpOverload", "OpOverloadPacket", "define_op", "load_library", "loaded_libraries"]

_REMEDY = "Write the op with torch's functions, or as a spec for weftgrad.ops.load."
OpOverload = placeholder("torch._ops.OpOverload", _REMEDY)
OpOverloadPacket = placeholder("torch._ops.OpOverloadPacket", _REMEDY)
loaded_libraries: set[str] = set()
_namespaces: dict[str, Namespace] = {}


def load_library(path: object) -> None:
    """Define the ops of torchvision's library, which weftgrad has itself; raise `OSError` for any other library.

    Args:
        path: Path of the library. No file is loaded.

    Raises:
        OSError: The library is not torchvision's: compiled ops are linked to PyTorch's own libraries.
    """
    file = Path(os.fspath(path))  # type: ignore[call-overload]
    if file.parent.name == "torchvision" and file.name.partition(".")[0] == "_C":
        from ..torchvision_ops import OPS  # lazy: start-up

        for name, function in OPS.items():
            define_op("torchvision", name, function)
        return
    raise OSError(f"torch.ops.load_library: {path} is linked to PyTorch's libraries, which are not there. {_REMEDY}")


class Op:
    """One op of `torch.ops`, which is also its only overload.

    Args:
        function: The function.
    """

    def __init__(self, function: Callable[..., Any]):
        self._function = function
        self.default = self

    def __call__(self, *args: object, **kwargs: object) -> Any:
        return self._function(*args, **kwargs)


class Namespace:
    """The ops of one library. A name that no Python code defined is an `AttributeError`.

    Args:
        name: The library's name.
    """

    def __init__(self, name: str):
        self._name = name

    def __getattr__(self, op: str) -> Op:
        raise AttributeError(str(placeholder_error(f"torch.ops.{self._name}.{op}", _REMEDY)))


def define_op(namespace: str, name: str, function: Callable[..., Any]) -> None:
    """Let `torch.ops.NAMESPACE.NAME` call `function`.

    Args:
        namespace: Name of the library.
        name: Name of the op.
        function: The function.
    """
    library = _namespaces.setdefault(namespace, Namespace(namespace))
    setattr(library, name, Op(function))


def __getattr__(name: str) -> Namespace:
    if name.startswith("__"):
        raise AttributeError(f"module 'torch.ops' has no attribute {name!r}")
    return _namespaces.setdefault(name, Namespace(name))
