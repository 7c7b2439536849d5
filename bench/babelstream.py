"""The suite `babelstream`: the five kernels of BabelStream (Deakin et al. 2016; v5.0), and a table as it prints.

Three arrays a, b, c have 2^25 elements, 0.1, 0.2 and 0.3, and the scalar is 0.4. A call is timed alone and waited for,
a hundred times by default (20 in each round), after an untimed one. GB/s are of the fastest call and count, as
BabelStream does, each array that a kernel reads or writes once:

    copy   c[i] = a[i]                   2 arrays
    mul    b[i] = 0.4 c[i]               2 arrays
    add    c[i] = a[i] + b[i]            3 arrays
    triad  a[i] = b[i] + 0.4 c[i]        3 arrays
    dot    sum += a[i] b[i]              2 arrays, and the sum on the host

Where three arrays take more than a quarter of the memory, their length is halved until they fit.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from .cases import Case, Pairs, Work, pieces
from .rows import Entry
from .sites import OurSite, Site

if TYPE_CHECKING:
    from types import ModuleType

    from .library_types import Tensor
    from .report_types import Times

__all__ = ["SUITE", "array_length", "cases", "table_lines"]

SUITE = "babelstream"
_LENGTH = 1 << 25
_ELEMENTS = {"a": 0.1, "b": 0.2, "c": 0.3}
_SCALAR = 0.4
_CALLS_PER_ROUND = 20  # with five rounds a hundred calls, as BabelStream makes by default
_PRECISIONS = {"double": "float64", "float": "float32"}  # BabelStream's words, and the dtypes
_CHECKED_ELEMENTS = 6144  # per array
_MIN_PARTIAL_SUMS = 256  # of a dot product

Run: TypeAlias = "Callable[[ModuleType, Tensor, Tensor, Tensor], object]"
"""A kernel, called with a library and a, b, c."""


@dataclass(frozen=True, slots=True)
class _Kernel:
    """A kernel.

    arrays: how many it reads and writes. run: by PyTorch's names. numpy: by NumPy's; None if it takes several passes
    there. result: the name of the array that it writes, or empty for a number. expected: an element of the result, or a
    term of the sum, from an element of a, of b and of c.
    """

    name: str
    arrays: int
    run: Run
    numpy: Run | None
    result: str
    expected: Callable[[float, float, float], float]


_KERNELS = (
    _Kernel("copy", 2, lambda f, a, b, c: c.copy_(a), lambda f, a, b, c: f.copyto(c, a), "c", lambda a, b, c: a),
    _Kernel("mul", 2, lambda f, a, b, c: f.mul(c, _SCALAR, out=b), lambda f, a, b, c: f.multiply(c, _SCALAR, out=b),
            "b", lambda a, b, c: _SCALAR * c),
    _Kernel("add", 3, lambda f, a, b, c: f.add(a, b, out=c), lambda f, a, b, c: f.add(a, b, out=c), "c",
            lambda a, b, c: a + b),
    _Kernel("triad", 3, lambda f, a, b, c: f.add(b, c, alpha=_SCALAR, out=a), None, "a",
            lambda a, b, c: b + _SCALAR * c),
    _Kernel("dot", 2, lambda f, a, b, c: float(f.dot(a, b)), lambda f, a, b, c: float(f.dot(a, b)), "",
            lambda a, b, c: a * b),
)  # fmt: skip


def array_length(memory_bytes: Sequence[int], itemsize: int, scale: int = 1) -> int:
    """Return the elements of an array: 2^25, halved until three arrays fit in a quarter of the smallest memory.

    Args:
        memory_bytes: the memory of each contender in bytes; 0 for the host's.
        itemsize: bytes of an element.
        scale: divides 2^25 by its square, to try the suite out.
    """
    smallest = min(size or _host_bytes() for size in memory_bytes)
    length = max(8, _LENGTH // scale**2)
    while 3 * itemsize * length > smallest / 4 and length > 8:
        length //= 2
    return length


def _host_bytes() -> int:
    """Return the bytes of the host's memory that are free."""
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def cases(sites: Sequence[Site], scale: int = 1) -> Iterator[Case]:
    """Yield a row for each kernel in double and in single precision."""
    for precision, dtype in _PRECISIONS.items():
        itemsize = np.dtype(dtype).itemsize
        length = array_length([site.memory for site in sites], itemsize, scale)
        for kernel in _KERNELS:
            tolerance = _tolerance(kernel, length, dtype)
            yield Case(kernel.name, f"{kernel.name} {precision} {length}", partial(_work, kernel, length, dtype),
                       bytes=kernel.arrays * itemsize * length, tolerance=tolerance, clock="wall", dtype=dtype,
                       single_calls=_CALLS_PER_ROUND)  # fmt: skip


def _tolerance(kernel: _Kernel, length: int, dtype: str) -> float:
    """Return the relative error that a correct kernel may have.

    An element is rounded up to three times, as is the scalar. The terms of the dot product are equal, so that all
    roundings of a partial sum may go in one direction: of `n` terms its relative error is up to `n` times half of the
    dtype's epsilon. A kernel that uses a core's vector unit has at least `_MIN_PARTIAL_SUMS` of them.
    """
    rounding = float(np.finfo(dtype).eps) / 2
    return 3 * rounding if kernel.result else max(3.0, length / _MIN_PARTIAL_SUMS) * rounding


def _work(kernel: _Kernel, length: int, dtype: str, site: Site) -> Work | None:
    if isinstance(site, OurSite) and dtype == "float64" and not site.device.driver.capabilities.fp64:
        return None
    function = kernel.numpy if site.arrays else kernel.run
    if function is None or (site.arrays and not hasattr(site.library, "copyto")):
        return None
    arrays = {name: site.tensor(np.full(length, value, dtype), dtype=dtype) for name, value in _ELEMENTS.items()}

    def call() -> object:
        return function(site.library, *arrays.values())

    def pairs() -> Pairs:
        # Kernels overwrite an operand of other kernels only, so a call can be repeated.
        elements = {name: float(site.host(array[:1])[0]) for name, array in arrays.items()}
        value = call()
        expected = kernel.expected(*elements.values())
        if not kernel.result:
            return [(np.asarray(value, np.float64), np.asarray(length * expected))]
        result = arrays[kernel.result]
        return [(host := site.host(result[part]), np.full_like(host, expected))
                for part in pieces(length, _CHECKED_ELEMENTS)]  # fmt: skip

    return Work(call, pairs)


def table_lines(entries: Sequence[Entry]) -> list[str]:
    """Return a table for each device, library and precision, with the columns that BabelStream prints."""
    lines: list[str] = []
    rows = [entry for entry in entries if entry.suite == SUITE and entry.part == "kernel" and entry.time]
    for device in dict.fromkeys((entry.hardware, entry.device) for entry in rows):
        entries_of_device = [entry for entry in rows if (entry.hardware, entry.device) == device]
        for contender in ("", *dict.fromkeys(name for entry in entries_of_device for name in entry.peers)):
            for precision, dtype in _PRECISIONS.items():
                timed = [(entry, time) for entry in entries_of_device
                         if entry.dtype == dtype and (time := entry.peers.get(contender) if contender else entry.time)
                         ]  # fmt: skip
                if timed:
                    lines += _table(f"{device[0]} ({device[1]}), {contender or 'weftgrad'}", precision, timed)
    return lines


def _table(title: str, precision: str, timed: Sequence[tuple[Entry, Times]]) -> list[str]:
    length = int(timed[0][0].name.rpartition(" ")[2])
    megabytes = length * np.dtype(_PRECISIONS[precision]).itemsize * 1e-6
    lines = [
        "", f"BabelStream: {title}", f"Precision: {precision}",
        f"Array size: {megabytes:.1f} MB, total size: {3 * megabytes:.1f} MB",
        f"{'Function':12s}{'GBytes/sec':12s}{'Min (sec)':12s}{'Max':12s}{'Average':12s}".rstrip(),
    ]  # fmt: skip
    for entry, time in timed:
        least = time["least"]
        largest, average = time.get("largest") or time["p80"], time.get("mean") or time["median"]
        lines.append(f"{entry.group.capitalize():12s}{entry.bytes / least * 1e-9:<12.3f}{least:<12.5f}{largest:<12.5f}"
                     f"{average:<12.5f}".rstrip())  # fmt: skip
    return lines
