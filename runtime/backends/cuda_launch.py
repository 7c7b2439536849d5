"""Launches on CUDA: turn a planned step into a function that packs a call's arguments and queues the kernel.

A kernel's parameters lie in a block of memory that is prepared once. The driver gets an array of pointers into it, in
the order of the kernel's parameters. The geometry is written when the block is prepared; a call writes only its
pointers and numbers, by one `struct` call. The block belongs to the thread that prepared the launch.
"""

from __future__ import annotations

import ctypes
import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..errors import CompileError, LaunchError, format_bytes
from ..storage import Storage
from ..triton import compile as compiler
from ..triton.signature import signature
from . import cuda_api
from .arguments import fit
from .cuda_api import call_driver
from .protocol import Step

if TYPE_CHECKING:
    from ..tensor import Tensor
    from .arguments import Scratch
    from .cuda import CudaDriver
    from .cuda_streams import CudaStream
    from .cuda_types import DriverHandle

__all__ = ["Kernel", "bind", "load"]

# Bytes of dynamic shared memory that a kernel may use without setting a function attribute.
_DEFAULT_SHARED_BYTES = 48 * 1024
# Compute types that are narrower than the 64 bits in which their numbers are passed; values are range-checked.
_NARROW = {"char": "b", "uchar": "B", "short": "h", "int": "i"}


class Kernel:
    """A loaded function.

    threads: per block. shared: bytes of shared memory per block. scratch_bytes: bytes of global scratch per program.
    """

    __slots__ = ("function", "module", "name", "scratch_bytes", "shared", "threads")

    def __init__(self, module: DriverHandle, function: DriverHandle, binary: compiler.Binary):
        self.module = module
        self.function = function
        self.name = binary.name
        self.threads = binary.threads
        self.shared = binary.shared
        self.scratch_bytes = binary.scratch


def load(driver: CudaDriver, step: Step, binary: compiler.Binary) -> Kernel:
    """Load machine code into the device's context. Raise `CompileError` if the device cannot run it."""
    name, info = step.instance.name, driver.info
    if binary.shared > info.shared_memory:
        raise CompileError(
            f"{name}: {step.instance.entry} needs {format_bytes(binary.shared)} of shared memory a block, and "
            f"{driver.name} ({driver.device}) has {format_bytes(info.shared_memory)}; its schedule "
            f"({_schedule(step)}) is for a larger GPU"
        )
    if binary.threads > info.threads:
        raise CompileError(f"{name}: blocks of {binary.threads} threads, and {driver.name} allows {info.threads}")
    if binary.ctas != 1:
        raise CompileError(f"{name}: launches of clusters (num_ctas={binary.ctas}) are not part of this backend")
    cuda_api.activate(driver)
    with cuda_api.relaxed(driver):
        return _load(driver, step, binary)


def _load(driver: CudaDriver, step: Step, binary: compiler.Binary) -> Kernel:
    cuda = cuda_api.library()
    code, module = cuda.cuModuleLoadData(binary.image)
    if code:
        error = cuda_api.driver_error("cuModuleLoadData", code)
        raise CompileError(
            f"{step.instance.name}: the machine code of {binary.name} does not load on {driver.name} "
            f"(sm_{driver.info.sm}): {error}"
        ) from error
    function = call_driver("cuModuleGetFunction", module, binary.name.encode())
    if binary.shared > _DEFAULT_SHARED_BYTES:
        attribute = cuda.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        call_driver("cuFuncSetAttribute", function, attribute, binary.shared)
    return Kernel(module, function, binary)


def _schedule(step: Step) -> str:
    return ", ".join(f"{name}={value}" for name, value in step.instance.defines)


class Block:
    """The memory of one launch's parameters, for one thread.

    address: address of the pointer array that `cuLaunchKernel` takes. packing: the `struct` of buffer pointers,
    integers and numbers at the front of `memory`. scratch: offset in `memory` of the pointer to global scratch.
    """

    def __init__(self, step: Step):
        sig = signature(step, True)
        pointers = len(step.buffers)
        integer_count, scalar_count = len(step.integers), len(step.scalars)
        scalar_code = {"float": "f", "double": "d"}.get(step.instance.element, "q")
        # Native mode ("@") packs 1e39 as a float32 infinity.
        self.packing = struct.Struct("@" + "Q" * pointers + "q" * integer_count + scalar_code * scalar_count)
        argument_offsets: dict[str, list[int]] = {
            "integers": [8 * (pointers + i) for i in range(integer_count)],
            "numbers": [8 * (pointers + integer_count) + struct.calcsize(scalar_code) * i for i in range(scalar_count)],
        }
        offset = -(-self.packing.size // 8) * 8
        self.scratch = offset
        fixed_values: list[tuple[int, str, int]] = []
        offsets: list[int] = []
        geometry = iter(step.geometry)
        pointer = iter(range(0, 8 * pointers, 8))
        offset += 16  # global scratch, profile scratch
        codes = iter(sig.codes)
        for name, type in sig.types.items():
            if type == "constexpr":
                if name not in argument_offsets and sig.constants.get(name, self) is None:
                    next(geometry)  # an empty tuple
                continue
            type_parts = type if isinstance(type, tuple) else (type,)
            part_codes = [next(codes) for _ in type_parts]
            if name in argument_offsets:
                offsets += argument_offsets[name]
            elif type_parts[0].startswith("*"):
                offsets.append(next(pointer))
            else:
                value = next(geometry)
                for code, part in zip(part_codes, value if isinstance(value, tuple) else (value,), strict=True):
                    fixed_values.append((offset, code, part))
                    offsets.append(offset)
                    offset += 8
        offsets += [self.scratch, self.scratch + 8]
        self.memory = ctypes.create_string_buffer(offset)
        for position, code, part in fixed_values:
            struct.pack_into(f"={code}", self.memory, position, part)
        base = ctypes.addressof(self.memory)
        self.pointers = (ctypes.c_void_p * len(offsets))(*[base + position for position in offsets])
        self.address = ctypes.addressof(self.pointers)


def bind(driver: CudaDriver, step: Step) -> Callable[..., None]:
    """Return a function `run(tensors, scalars, stream)` that launches `step`, for the calling thread.

    The function's source is generated for the number of buffers and run by `exec`; no user text enters it. Each call
    chooses between two kernels: one compiled for 16-byte-aligned buffers, and one without that assumption. Each is
    loaded when first needed.
    """
    block = Block(step)
    grid = (*step.global_size, 1, 1)[:3]
    programs = math.prod(grid)
    count = len(step.buffers)
    namespace: dict[str, object] = {}

    def load_kernel(aligned: bool) -> tuple[DriverHandle, int, int, int]:
        kernel = driver.kernel(step, aligned)
        launch_info = (kernel.function, kernel.threads, kernel.shared, kernel.scratch_bytes)
        namespace["aligned" if aligned else "unaligned"] = launch_info
        return launch_info

    def allocate_scratch(nbytes: int, stream: CudaStream) -> Storage:
        scratch = driver.allocate(nbytes * programs, stream)
        struct.pack_into("=Q", block.memory, block.scratch, scratch.buffer + scratch.start)
        return scratch

    def retry_launch(
        code: int, function: DriverHandle, threads: int, shared: int, stream: CudaStream,
        tensors: Sequence[Tensor | Scratch],
    ) -> None:  # fmt: skip
        """Retry a failed launch if only another context was current; otherwise raise the error."""
        if code in cuda_api.WRONG_CONTEXT:
            cuda_api.activate(driver)
            code = driver.launch(function, *grid, threads, 1, 1, shared, stream.handle, block.address, 0)[0]
        if code:
            raise launch_error(driver, step, code, threads, shared, tensors)

    pointer_names = [f"p{i}" for i in range(count)]
    number_terms = [f"scalars[{i}]" for i in (*step.integers, *step.scalars)]
    lines = ["def run(tensors, scalars, stream):", "    if local.driver is not driver:", "        activate(driver)"]
    for i, position in enumerate(step.buffers):
        lines.append(f"    t = tensors[{position}]")
        lines.append(f"    p{i} = (t.storage.buffer or 0) + t.start")
    lines.append(f"    if ({' | '.join(pointer_names) or '0'}) & 15:")
    lines.append("        function, threads, shared, scratch_bytes = unaligned or load_kernel(False)")
    lines.append("    else:")
    lines.append("        function, threads, shared, scratch_bytes = aligned or load_kernel(True)")
    values = ", ".join(["memory", "0", *pointer_names, *number_terms])
    if number_terms:
        lines.append("    try:")
        if step.instance.element in _NARROW and step.scalars:
            lines.append(f"        narrow({', '.join(f'scalars[{i}]' for i in step.scalars)})")
        lines.append(f"        pack({values})")
        lines.append("    except error:")
        lines.append(f"        pack({', '.join(['memory', '0', *pointer_names])}, *fit(step, scalars))")
    else:
        lines.append(f"    pack({values})")
    lines += [
        "    if scratch_bytes:",
        "        scratch = allocate_scratch(scratch_bytes, stream)",
        "    if stream.capture is not None:",
        "        stream.capture.retain_tensors(tensors)",
        f"    code = driver.launch(function, {grid[0]}, {grid[1]}, {grid[2]}, threads, 1, 1, shared, stream.handle, "
        "parameters, 0)[0]",
        "    if code:",
        "        retry_launch(code, function, threads, shared, stream, tensors)",
        "    driver.last_kernel = entry",
        "    driver.launches += 1",
    ]
    namespace.update(
        local=cuda_api.local,
        driver=driver,
        activate=cuda_api.activate,
        aligned=None,
        unaligned=None,
        load_kernel=load_kernel,
        pack=block.packing.pack_into,
        memory=block.memory,
        narrow=struct.Struct("@" + _NARROW.get(step.instance.element, "q") * len(step.scalars)).pack,
        error=struct.error,
        fit=fit,
        step=step,
        allocate_scratch=allocate_scratch,
        parameters=block.address,
        retry_launch=retry_launch,
        entry=step.instance.entry,
        block=block,  # keeps the parameters' memory alive
    )
    exec("\n".join(lines), namespace)
    run = namespace["run"]
    assert callable(run)
    return run


def launch_error(
    driver: CudaDriver, step: Step, code: int, threads: int, shared: int, tensors: Sequence[Tensor | Scratch]
) -> Exception:
    """Return the error for a launch that the driver refused, with its shapes, grid and schedule."""
    shapes = ", ".join(f"{t.meta.dtype.name}{list(t.meta.shape)}" for t in tensors if hasattr(t, "meta"))
    error = cuda_api.driver_error("cuLaunchKernel", code, step.instance.entry)
    return LaunchError(
        f"{step.instance.name}({shapes}): {step.instance.entry} failed to launch on {driver.device} ({driver.name}) "
        f"with a grid of {step.global_size}, {threads} threads and {format_bytes(shared)} of shared memory a block "
        f"[{_schedule(step)}]: {error}"
    )
