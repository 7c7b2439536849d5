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

__all__ = ["PACK", "Base", "Scratch", "attach", "bind", "bind_launch", "fit"]

PACK = {"float": "f", "double": "d", "char": "b", "uchar": "B", "short": "h", "int": "i", "long": "q", "ushort": "H"}
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


class Base:
    """A whole buffer, in the form in which launchers take tensors. Its own `storage`: launchers note events there."""

    __slots__ = ("buffer", "pending", "start", "storage")

    def __init__(self, buffer: Any):
        self.buffer = buffer
        self.start = 0
        self.pending: Any = None
        self.storage = self


def bind(kernel: Any, step: Step) -> Callable[[list[Any], Sequence[Any]], None]:
    """A function that sets the arguments of `kernel` for a call's tensors and numbers."""
    return _written(kernel, step, "tensors, scalars", [], [], {})


def bind_launch(
    kernel: Any, step: Step, head: Sequence[str], tail: Sequence[str], names: dict[str, Any]
) -> Callable[[Sequence[Any], Sequence[Any], Any], None]:
    """A launcher: what `bind` does between the statements `head` and `tail`, which know `tensors`, `scalars`, `stream`
    and `names`. One Python call instead of two, where an eager op is a dozen."""
    return _written(kernel, step, "tensors, scalars, stream", head, tail, names)


def _written(
    kernel: Any, step: Step, parameters: str, head: Sequence[str], tail: Sequence[str], names: dict[str, Any]
) -> Callable[..., None]:
    """Written out for the number of buffers by `exec` of text made here alone: a loop would cost half as much again as
    the launch's own arguments."""
    count = len(step.buffers)
    if not step.geometry:
        raise LaunchError(f"{step.instance.name}: a step without geometry")
    letters = [f"t{i}" for i in range(count)]
    code = "q" * (count + len(step.integers)) + PACK[step.instance.element] * len(step.scalars) + "0q"
    numbers = [f"scalars[{i}]" for i in (*step.integers, *step.scalars)]
    starts = ", ".join(f"{name}.start" for name in letters)
    lines = [*head]
    lines += [f"{name} = tensors[{i}]" for name, i in zip(letters, step.buffers, strict=True)]
    for position, name in enumerate(letters):
        lines.append(f"set_arg({position}, {name}.storage.buffer or attach({name}.storage))")
    lines.append(f"set_bytes({count}, geometry)")
    if numbers:
        lines += ["try:", f"    packed = pack({', '.join([starts, *numbers])})", "except (error, OverflowError):"]
        lines += [f"    packed = pack({starts}, *fit(scalars))", f"set_bytes({count + 1}, packed)"]
    else:
        lines.append(f"set_bytes({count + 1}, pack({starts}))")
    space = {
        **names,
        "set_arg": kernel.set_arg,
        "set_bytes": kernel._set_arg_buf,
        "pack": struct.Struct("@" + code).pack,
        "geometry": step.geometry,
        "attach": attach,
        "error": struct.error,
        "fit": lambda scalars: fit(step, scalars),
    }
    exec("\n    ".join([f"def run({parameters}):", *lines, *tail]), space)
    return space["run"]  # type: ignore[no-any-return]


def fit(step: Step, scalars: Sequence[Any]) -> list[Any]:
    """The call's numbers made to fit their types: floats overflow to infinity, integers may not overflow at all."""
    code = PACK[step.instance.element]
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
