"""Pack a launch's arguments as kernels read them, and set them on an OpenCL kernel object. Launch several steps.

Of pyopencl's kernel objects only two methods are used: `set_arg`, and the private `_set_arg_buf(i, bytes)`, which is
a hundred times as fast for a struct (`tests/test_opencl_contract.py` checks that it exists).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError, LaunchError
from ..storage import Storage
from .protocol import Step

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .opencl_types import ClKernel
    from .protocol import Driver, Stream

__all__ = ["PACK", "Base", "Operand", "Scratch", "bind", "fit", "geometry_bytes", "launch_in_order", "packer"]

Buffer: TypeAlias = Any
"""What kernels get of a storage. The backend decides its type: an address, or pyopencl's buffer."""

PACK = {"float": "f", "double": "d", "char": "b", "uchar": "B", "short": "h", "int": "i", "long": "q", "ushort": "H"}
_DTYPES = {
    "float": "float32", "double": "float64", "char": "int8", "uchar": "uint8", "short": "int16", "int": "int32",
    "long": "int64", "ushort": "uint16",
}  # fmt: skip


class Scratch:
    """Memory for the duration of one call, with the attributes that launchers read from tensors."""

    __slots__ = ("start", "storage")

    def __init__(self, storage: Storage):
        self.storage = storage
        self.start = storage.start


class Base:
    """A whole buffer, with the attributes that launchers read from tensors: it is its own `storage`."""

    __slots__ = ("buffer", "start", "storage")

    def __init__(self, buffer: Buffer):
        self.buffer = buffer
        self.start = 0
        self.storage = self


Operand: TypeAlias = "Tensor | Scratch | Base"
"""What launchers take in a list of tensors: they read `storage.buffer` and `start`."""


def geometry_bytes(step: Step) -> bytes:
    """Return the struct with the geometry of a step in OpenCL C. Raise `LaunchError` if the step has none."""
    geometry = step.geometry
    if not geometry or not isinstance(geometry, bytes):
        raise LaunchError(f"{step.instance.name}: a step without geometry")
    return geometry


def packer(step: Step) -> Callable[[Sequence[int], Sequence[float]], bytes]:
    """Return a function that packs a call's offsets (one per buffer, in bytes) and numbers as the kernel reads them."""
    code = "@" + "q" * (len(step.buffers) + len(step.integers)) + PACK[step.instance.element] * len(step.scalars) + "0q"
    pack, positions = struct.Struct(code).pack, (*step.integers, *step.scalars)

    def pack_arguments(starts: Sequence[int], scalars: Sequence[float]) -> bytes:
        try:
            return pack(*starts, *[scalars[i] for i in positions])
        except struct.error:
            return pack(*starts, *fit(step, scalars))

    return pack_arguments


def bind(kernel: ClKernel, step: Step) -> Callable[[Sequence[Operand], Sequence[float]], None]:
    """Return a function that sets the arguments of `kernel` for a call's tensors and numbers."""
    buffers, geometry, pack = step.buffers, geometry_bytes(step), packer(step)
    count = len(buffers)
    set_arg, set_bytes = kernel.set_arg, kernel._set_arg_buf

    def run(tensors: Sequence[Operand], scalars: Sequence[float]) -> None:
        operands = [tensors[i] for i in buffers]
        for position, operand in enumerate(operands):
            set_arg(position, operand.storage.buffer)
        set_bytes(count, geometry)
        set_bytes(count + 1, pack([operand.start for operand in operands], scalars))

    return run


def fit(step: Step, scalars: Sequence[float]) -> list[float]:
    """Return the call's 64-bit integers, wrapped, and then its numbers.

    Floats need no conversion: `struct` packs those that are too large for float32 as infinity.

    Raises:
        ArgumentError: A number does not fit the compute type.
    """
    code = PACK[step.instance.element]
    integers = [int(scalars[i]) & 0xFFFFFFFFFFFFFFFF for i in step.integers]
    numbers: list[float] = [v - (1 << 64) if v >> 63 else v for v in integers]
    for i in step.scalars:
        value = scalars[i]
        try:
            struct.pack(code, value)
        except struct.error:
            raise ArgumentError(
                f"{step.instance.name}: the number {value!r} does not fit {_DTYPES[step.instance.element]}, the "
                "tensor's dtype; convert the tensor to a wider one with .to() first"
            ) from None
        numbers.append(value)
    return numbers


def launch_in_order(
    driver: Driver, runs: Sequence[Callable[..., None]], scratch: Sequence[int]
) -> Callable[[list[Operand], Sequence[float], Stream], None]:
    """Return one `run(tensors, scalars, stream)` for the launches of several steps.

    Args:
        driver: Allocates the temporary buffers.
        runs: `run` of each step; it gets the tensors with the temporary buffers behind them.
        scratch: Sizes of the temporary buffers in bytes. They are allocated at each call.
    """
    if len(runs) == 1 and not scratch:
        return runs[0]

    def run(tensors: list[Operand], scalars: Sequence[float], stream: Stream) -> None:
        operands = [*tensors, *[Scratch(driver.allocate(nbytes, stream)) for nbytes in scratch]]
        for launch in runs:
            launch(operands, scalars, stream)

    return run
