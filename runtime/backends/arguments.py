"""Pack a launch's arguments as kernels read them, and set them on an OpenCL kernel object. Launch several steps.

Of pyopencl's kernel objects only two methods are used: `set_arg`, and the private `_set_arg_buf(i, bytes)`, which is
a hundred times as fast for a struct (`tests/test_opencl_contract.py` checks that it exists).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, TypeAlias

from ..errors import ArgumentError, LaunchError
from ..storage import Storage
from .protocol import MISS_WORD, Step

if TYPE_CHECKING:
    from ..dtypes import Array
    from ..tensor import Tensor
    from .opencl_types import ClKernel
    from .protocol import Driver, Stream

__all__ = [
    "PACK",
    "Base",
    "MissWord",
    "Operand",
    "Scratch",
    "bind",
    "fit",
    "geometry_bytes",
    "launch_in_order",
    "packer",
]

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


class MissWord(Base):
    """The 64-bit integer in which kernels of a device note an index out of range (`runtime.deferred`).

    It is in memory that the host and the device share. `array`: an int64 array with the integer.
    """

    __slots__ = ("array", "block", "nbytes")

    def __init__(self, array: Array):
        super().__init__(array.__array_interface__["data"][0])
        self.array = array
        self.nbytes = array.nbytes
        self.block = None  # a graph keeps it alive


Operand: TypeAlias = "Tensor | Scratch | Base"
"""What launchers take in a list of tensors: they read `storage.buffer` and `start`."""


def geometry_bytes(step: Step) -> bytes:
    """Return the struct with the geometry of a step in OpenCL C. Raise `LaunchError` if the step has none."""
    geometry = step.geometry
    if not geometry or not isinstance(geometry, bytes):
        raise LaunchError(f"{step.instance.name}: a step without geometry")
    return geometry


@cache
def _struct(longs: int, element: str, numbers: int) -> struct.Struct:
    """Return the format of 64-bit integers and then numbers of the compute type, padded to 64 bits."""
    return struct.Struct("@" + "q" * longs + PACK[element] * numbers + "0q")


def packer(step: Step) -> Callable[[Sequence[int], Sequence[float]], bytes]:
    """Return a function that packs a call's offsets (one per buffer, in bytes) and numbers as the kernel reads them."""
    pack = _struct(len(step.buffers) + len(step.integers), step.instance.element, len(step.scalars)).pack
    positions = (*step.integers, *step.scalars)

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

    Floats need no conversion: `struct` packs those that are too large for float32 as infinity. In a step that
    `wraps`, integers of up to 64 bits wrap around, as PyTorch's do.

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
            if step.wraps and isinstance(value, int) and -(1 << 63) <= value < 1 << 64:
                numbers.append(_wrap(value, code))
                continue
            raise ArgumentError(
                f"{step.instance.name}: the number {value!r} does not fit {_DTYPES[step.instance.element]}, the "
                "tensor's dtype; convert the tensor to a wider one with .to() first"
            ) from None
        numbers.append(value)
    return numbers


def _wrap(value: int, code: str) -> int:
    """Return the integer of the type of `code` whose lowest bits are those of `value` (two's complement)."""
    bits = 8 * struct.calcsize(code)
    low = value & ((1 << bits) - 1)
    return low if code.isupper() or low < 1 << (bits - 1) else low - (1 << bits)


def launch_in_order(
    driver: Driver, runs: Sequence[Callable[..., None]], scratch: Sequence[int]
) -> Callable[[list[Operand], Sequence[float], Stream], None]:
    """Return one `run(tensors, scalars, stream)` for the launches of several steps.

    Args:
        driver: Allocates the temporary buffers.
        runs: `run` of each step; it gets the tensors with the temporary buffers behind them.
        scratch: Sizes of the temporary buffers in bytes. They are allocated at each call. `MISS_WORD` stands for the
            driver's miss word.
    """
    if len(runs) == 1 and not scratch:
        return runs[0]
    word = getattr(driver, "miss_word", None) if MISS_WORD in scratch else None

    def run(tensors: list[Operand], scalars: Sequence[float], stream: Stream) -> None:
        operands = [*tensors, *[word if n == MISS_WORD else Scratch(driver.allocate(n, stream)) for n in scratch]]
        for launch in runs:
            launch(operands, scalars, stream)

    return run
