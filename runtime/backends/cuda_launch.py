"""Launches on CUDA: a planned step becomes a function that packs a call's arguments and queues the kernel.

A kernel's parameters lie in a block of memory that is prepared once: the driver gets an array of pointers into it, in
the order in which the kernel has its parameters. Geometry is written into the block at once, and a call writes only
its pointers and numbers, by one `struct` call. The block belongs to the thread that prepared the launch.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..errors import ArgumentError, CompileError, LaunchError, format_bytes
from ..storage import Storage
from ..triton import compile as compiler
from ..triton.signature import signature
from . import cuda_api
from .cuda_api import ask
from .protocol import Step

if TYPE_CHECKING:
    from .cuda import CudaDriver

__all__ = ["Kernel", "Scratch", "bind", "load"]

# Who wants to hear of launches while a profiler lasts: it puts a function in the place of `CudaDriver.launch`.
tracer: Any = None

# Bytes of shared memory that a kernel may ask for without being allowed more.
_FREE_SHARED = 48 * 1024
# The types numbers are calculated in that are narrower than what is passed: their values have to fit all the same.
_NARROW = {"char": "b", "uchar": "B", "short": "h", "int": "i"}


class Scratch:
    """Memory that lives for one call, in the form in which launchers take tensors."""

    __slots__ = ("start", "storage")

    def __init__(self, storage: Storage):
        self.storage = storage
        self.start = storage.start


class Kernel:
    """A loaded function. threads: of a block; shared: bytes of shared memory; room: bytes of scratch a program."""

    __slots__ = ("function", "module", "name", "room", "shared", "threads")

    def __init__(self, module: Any, function: Any, found: compiler.Binary):
        self.module = module
        self.function = function
        self.name = found.name
        self.threads = found.threads
        self.shared = found.shared
        self.room = found.scratch


def load(driver: CudaDriver, step: Step, found: compiler.Binary) -> Kernel:
    """Load machine code into the device's context. Raises `CompileError` where the device cannot run it."""
    name, info = step.instance.name, driver.info
    if found.shared > info.shared_memory:
        raise CompileError(
            f"{name}: {step.instance.entry} needs {format_bytes(found.shared)} of shared memory a block, and "
            f"{driver.name} ({driver.device}) has {format_bytes(info.shared_memory)}; its schedule "
            f"({_schedule(step)}) is for a larger GPU"
        )
    if found.threads > info.threads:
        raise CompileError(f"{name}: blocks of {found.threads} threads, and {driver.name} allows {info.threads}")
    if found.ctas != 1:
        raise CompileError(f"{name}: launches of clusters (num_ctas={found.ctas}) are not part of this backend")
    cuda_api.activate(driver)
    if driver.captures:
        with cuda_api.relaxed():
            return _load(driver, step, found)
    return _load(driver, step, found)


def _load(driver: CudaDriver, step: Step, found: compiler.Binary) -> Kernel:
    cuda = cuda_api.library()
    code, module = cuda.cuModuleLoadData(found.image)
    if code:
        error = cuda_api.failure("cuModuleLoadData", code)
        raise CompileError(
            f"{step.instance.name}: the machine code of {found.name} does not load on {driver.name} "
            f"(sm_{driver.info.sm}): {error}"
        ) from error
    function = ask("cuModuleGetFunction", module, found.name.encode())
    if found.shared > _FREE_SHARED:
        most = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        ask("cuFuncSetAttribute", function, most, found.shared)
    return Kernel(module, function, found)


def _schedule(step: Step) -> str:
    return ", ".join(f"{name}={value}" for name, value in step.instance.defines)


class Block:
    """The parameters of one launch in memory, for one thread.

    address: of the array of pointers that `cuLaunchKernel` takes. pack: writes pointers, then integers, then numbers,
    to the front of `memory`. scratch: where the pointer to global scratch lies.
    """

    def __init__(self, step: Step):
        found = signature(step, True)
        pointers = len(step.buffers)
        wide, narrow = len(step.integers), len(step.scalars)
        number = {"float": "f", "double": "d"}.get(step.instance.element, "q")
        self.packing = struct.Struct("@" + "Q" * pointers + "q" * wide + number * narrow)  # native: 1e39 is infinity
        places: dict[str, list[int]] = {
            "integers": [8 * (pointers + i) for i in range(wide)],
            "numbers": [8 * (pointers + wide) + struct.calcsize(number) * i for i in range(narrow)],
        }
        at = -(-self.packing.size // 8) * 8
        self.scratch = at
        fixed: list[tuple[int, str, int]] = []
        order: list[int] = []
        geometry = iter(step.geometry)
        pointer = iter(range(0, 8 * pointers, 8))
        at += 16  # global scratch, profile scratch
        codes = iter(found.codes)
        for name, type in found.types.items():
            if type == "constexpr":
                if name not in places and found.constants.get(name, self) is None:
                    next(geometry)  # an empty tuple
                continue
            many = type if isinstance(type, tuple) else (type,)
            here = [next(codes) for _ in many]
            if name in places:
                order += places[name]
            elif many[0].startswith("*"):
                order.append(next(pointer))
            else:
                value = next(geometry)
                for code, each in zip(here, value if isinstance(value, tuple) else (value,), strict=True):
                    fixed.append((at, code, each))
                    order.append(at)
                    at += 8
        order += [self.scratch, self.scratch + 8]
        self.memory = ctypes.create_string_buffer(at)
        for place, code, each in fixed:
            struct.pack_into(f"={code}", self.memory, place, each)
        base = ctypes.addressof(self.memory)
        self.pointers = (ctypes.c_void_p * len(order))(*[base + place for place in order])
        self.address = ctypes.addressof(self.pointers)


def bind(driver: CudaDriver, step: Step) -> Callable[[list[Any], Sequence[Any], Any], None]:
    """A function `run(tensors, scalars, stream)` that launches `step`, for the calling thread.

    Written out for the number of buffers by `exec` of text made here alone. Which kernel runs depends on the call:
    where all buffers are 16-byte aligned, one that was compiled with that promise. Each is made when first needed.
    """
    block = Block(step)
    grid = (*step.global_size, 1, 1)[:3]
    programs = math.prod(grid)
    count = len(step.buffers)
    space: dict[str, Any] = {}

    def need(aligned: bool) -> Any:
        kernel = driver.kernel(step, aligned)
        space["even" if aligned else "odd"] = found = (kernel.function, kernel.threads, kernel.shared, kernel.room)
        return found

    def room(nbytes: int, stream: Any) -> Storage:
        held = driver.allocate(nbytes * programs, stream)
        struct.pack_into("=Q", block.memory, block.scratch, held.buffer + held.start)
        return held

    def again(code: Any, function: Any, threads: int, shared: int, stream: Any, tensors: list[Any]) -> None:
        """A launch failed: once more if only the context was not ours, else the error."""
        if code in cuda_api.WRONG_CONTEXT:
            cuda_api.activate(driver)
            code = driver.launch(function, *grid, threads, 1, 1, shared, stream.handle, block.address, 0)[0]
        if code:
            raise launch_error(driver, step, code, threads, shared, tensors)

    pointers = [f"p{i}" for i in range(count)]
    given = [f"scalars[{i}]" for i in (*step.integers, *step.scalars)]
    lines = ["def run(tensors, scalars, stream):", "    if local.driver is not driver:", "        activate(driver)"]
    for i, position in enumerate(step.buffers):
        lines.append(f"    t = tensors[{position}]")
        lines.append(f"    p{i} = (t.storage.buffer or 0) + t.start")
    lines.append(f"    if ({' | '.join(pointers) or '0'}) & 15:")
    lines.append("        function, threads, shared, each = odd or need(False)")
    lines.append("    else:")
    lines.append("        function, threads, shared, each = even or need(True)")
    values = ", ".join(["memory", "0", *pointers, *given])
    if given:
        lines.append("    try:")
        if step.instance.element in _NARROW and step.scalars:
            lines.append(f"        narrow({', '.join(f'scalars[{i}]' for i in step.scalars)})")
        lines.append(f"        pack({values})")
        lines.append("    except error:")
        lines.append(f"        pack({', '.join(['memory', '0', *pointers])}, *fit(step, scalars))")
    else:
        lines.append(f"    pack({values})")
    lines += [
        "    if each:",
        "        held = room(each, stream)",
        "    if stream.capture is not None:",
        "        stream.capture.keep(tensors)",
        f"    code = driver.launch(function, {grid[0]}, {grid[1]}, {grid[2]}, threads, 1, 1, shared, stream.handle, "
        "parameters, 0)[0]",
        "    if code:",
        "        again(code, function, threads, shared, stream, tensors)",
        "    driver.last = entry",
        "    driver.launches += 1",
    ]
    space.update(
        local=cuda_api.local,
        driver=driver,
        activate=cuda_api.activate,
        even=None,
        odd=None,
        need=need,
        pack=block.packing.pack_into,
        memory=block.memory,
        narrow=struct.Struct("@" + _NARROW.get(step.instance.element, "q") * len(step.scalars)).pack,
        error=struct.error,
        fit=fit,
        step=step,
        room=room,
        parameters=block.address,
        again=again,
        entry=step.instance.entry,
        block=block,  # whose memory the kernel's parameters are
    )
    exec("\n".join(lines), space)
    return space["run"]  # type: ignore[no-any-return]


def fit(step: Step, scalars: Sequence[Any]) -> list[Any]:
    """The call's integers in 64 bits, and its numbers. Raises `ArgumentError` for one that its type does not hold."""
    code = {"float": "f", "double": "d", **_NARROW}.get(step.instance.element, "q")
    found = [int(scalars[i]) & 0xFFFFFFFFFFFFFFFF for i in step.integers]
    found = [v - (1 << 64) if v >> 63 else v for v in found]
    for i in step.scalars:
        try:
            struct.pack(code, scalars[i])
        except struct.error:
            raise ArgumentError(
                f"{step.instance.name}: the number {scalars[i]!r} does not fit the dtype that is calculated in; "
                "convert the tensor with .to() first"
            ) from None
        found.append(scalars[i])
    return found


def launch_error(
    driver: CudaDriver, step: Step, code: Any, threads: int, shared: int, tensors: Sequence[Any]
) -> Exception:
    """The error of a launch that the driver refused, with what it was."""
    shapes = ", ".join(f"{t.meta.dtype.name}{list(t.meta.shape)}" for t in tensors if hasattr(t, "meta"))
    error = cuda_api.failure("cuLaunchKernel", code, step.instance.entry)
    return LaunchError(
        f"{step.instance.name}({shapes}): {step.instance.entry} failed to launch on {driver.device} ({driver.name}) "
        f"with a grid of {step.global_size}, {threads} threads and {format_bytes(shared)} of shared memory a block "
        f"[{_schedule(step)}]: {error}"
    )
