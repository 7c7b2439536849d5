"""A launch's arguments: packed as kernels read them, and set on a kernel object.

Knows pyopencl's kernel objects only by two of their methods, `set_arg` and the private `_set_arg_buf(i, bytes)`,
which is a hundred times as fast for a struct (`tests/test_opencl_contract.py` holds that it is there).
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import ArgumentError, LaunchError
from ..storage import Storage
from .protocol import Step

__all__ = ["Scratch", "attach", "bind", "fit"]

_PACK = {"float": "f", "double": "d", "char": "b", "uchar": "B", "short": "h", "int": "i", "long": "q", "ushort": "H"}
_DTYPES = {
    "float": "float32", "double": "float64", "char": "int8", "uchar": "uint8", "short": "int16", "int": "int32",
    "long": "int64", "ushort": "uint16",
}  # fmt: skip


class Scratch:
    """Memory that lives for one call, in the form in which launchers take tensors."""

    __slots__ = ("start", "storage")

    def __init__(self, storage: Storage):
        self.storage = storage
        self.start = storage.start


def bind(kernel: Any, step: Step) -> Callable[[list[Any], Sequence[Any]], None]:
    """A function that sets the arguments of `kernel` for a call's tensors and numbers.

    Written out for the number of buffers by `exec` of text made here alone: a loop would cost half as much again as
    the launch's own arguments.
    """
    count = len(step.buffers)
    letters = [f"t{i}" for i in range(count)]
    code = "q" * (count + len(step.integers)) + _PACK[step.instance.element] * len(step.scalars) + "0q"
    numbers = [f"scalars[{i}]" for i in (*step.integers, *step.scalars)]
    lines = ["def arguments(tensors, scalars):"]
    lines += [f"    {name} = tensors[{i}]" for name, i in zip(letters, step.buffers, strict=True)]
    for position, name in enumerate(letters):
        lines.append(f"    set_arg({position}, {name}.storage.buffer or attach({name}.storage))")
    packed = ", ".join([f"{name}.start" for name in letters] + numbers)
    lines += ["    try:", f"        packed = pack({packed})", "    except (error, OverflowError):"]
    lines += [f"        packed = pack({', '.join(f'{n}.start' for n in letters)}, *fit(scalars))"]
    lines.append(f"    set_bytes({count + 1}, packed)")
    if not step.geometry:
        raise LaunchError(f"{step.instance.name}: a step without geometry")
    lines.insert(1, f"    set_bytes({count}, geometry)")
    space = {
        "set_arg": kernel.set_arg,
        "set_bytes": kernel._set_arg_buf,
        "pack": struct.Struct("@" + code).pack,
        "geometry": step.geometry,
        "attach": attach,
        "error": struct.error,
        "fit": lambda scalars: fit(step, scalars),
    }
    exec("\n".join(lines), space)
    return space["arguments"]  # type: ignore[return-value]


def fit(step: Step, scalars: Sequence[Any]) -> list[Any]:
    """The call's numbers made to fit their types: floats overflow to infinity, integers may not overflow at all."""
    code = _PACK[step.instance.element]
    found = [int(scalars[i]) & 0xFFFFFFFFFFFFFFFF for i in step.integers]
    found = [v - (1 << 64) if v >> 63 else v for v in found]
    for i in step.scalars:
        value = scalars[i]
        try:
            struct.pack(code, value)
        except OverflowError:
            value = math.copysign(math.inf, value)
        except struct.error:
            raise ArgumentError(
                f"{step.instance.name}: the number {value!r} does not fit {_DTYPES[step.instance.element]}, the "
                "tensor's dtype; convert the tensor to a wider one with .to() first"
            ) from None
        found.append(value)
    return found


def attach(storage: Storage) -> Any:
    """The buffer of a storage that was made before a driver was open (host memory)."""
    return storage.device.driver.attach(storage)  # type: ignore[attr-defined]
