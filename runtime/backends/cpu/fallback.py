"""`cpu` without a clang: run kernels by an installed OpenCL CPU driver (PoCL, Intel's runtime), one launch at a time.

Kernels get the tensors' host addresses by `clSetKernelArgSVMPointer`, so the driver owns no memory. The standard allows
this for devices with fine-grained system SVM (OpenCL 2.0, section 3.3.3). PoCL's CPU device does not report it, but
supports it; each driver is tested with a kernel that copies a number. Every launch is waited for, which makes small ops
about ten times slower than with `ClangExecutor`. Work-groups may have several work-items, so tests of GPU schedules use
this executor too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from ...errors import DriverNotFound, LaunchError
from ...storage import Storage
from .. import opencl
from ..arguments import Operand, geometry_bytes, packer
from ..overrides import override
from ..protocol import Capabilities, Instance, Step, Stream
from ..queues import Counter, launch_error

__all__ = ["OpenCLExecutor"]

cl = opencl.cl
_set_pointer = ctypes.CDLL(cl._cl.__file__).clSetKernelArgSVMPointer
_set_pointer.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p)


class OpenCLExecutor:
    """Kernels that an OpenCL CPU driver compiled and runs.

    Args:
        counter: Counts launches.
        capabilities: Replaces the device's capabilities in tests.

    Raises:
        DriverNotFound: No CPU driver is installed, or none that can access host memory.
    """

    def __init__(self, counter: Counter, capabilities: Capabilities | None = None):
        info = _cpu_device()
        caps = replace(opencl.capabilities_of(info), memory=0)
        self.capabilities = capabilities or override(caps, os.environ.get("WEFTGRAD_CAPABILITIES", ""))
        self.identity, self.name = opencl.identity_of(info), f"{info.platform} (OpenCL)"
        self._counter = counter
        self._device_name = info.name
        self._context = cl.Context([info.handle])
        self._queue = cl.CommandQueue(self._context, info.handle)
        self._check_memory(info)
        self.compiler = opencl.Compiler(self._context, info.handle, self.capabilities)

    def _check_memory(self, info: opencl.DeviceInfo) -> None:
        """Raise `DriverNotFound` unless a kernel can copy a number in host memory."""
        text = "kernel void copy(global const int *a, global int *b, long offset) { b[offset] = a[get_global_id(0)]; }"
        numbers = np.array([7, 8, 9, 0], np.int32)
        try:
            kernel = cl.Kernel(cl.Program(self._context, text).build(cache_dir=False), "copy")
            _set_pointer(kernel.int_ptr, 0, numbers.ctypes.data)
            _set_pointer(kernel.int_ptr, 1, 0)  # a null pointer whose address is entirely in the offset
            kernel.set_arg(2, np.int64(numbers.ctypes.data // 4 + 3))
            cl.enqueue_nd_range_kernel(self._queue, kernel, (1,), (1,))
            self._queue.finish()
        except cl.Error as error:
            raise DriverNotFound(f"{info.platform} does not compile or run a kernel: {error}") from error
        if numbers.tolist() != [7, 8, 9, 7]:
            raise DriverNotFound(f"{info.platform} does not reach the host's memory")

    def build(self, instances: Sequence[Instance]) -> int:
        """Build the missing kernels as one program. Return their number."""
        return self.compiler.build(instances)

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has the kernel."""
        return self.compiler.is_cached(instance)

    def prepare(self, step: Step) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for a step and the calling thread: a kernel holds its arguments."""
        opencl.check_fork()
        kernel = self.compiler.kernel(step.instance)
        handle, count = kernel.int_ptr, len(step.buffers)
        positions, geometry, pack = step.buffers, geometry_bytes(step), packer(step)

        def run(tensors: Sequence[Operand], scalars: Sequence[float], stream: Stream) -> None:
            operands = [tensors[i] for i in positions]
            # Hold the storages: while the kernel runs, another thread may give a tensor another one (`x.data =`).
            storages = [operand.storage for operand in operands]
            for i, storage in enumerate(storages):
                if status := _set_pointer(handle, i, storage.buffer or 0):
                    raise LaunchError(f"{step.instance.name}: {self._device_name} refuses an address: status {status}")
            kernel._set_arg_buf(count, geometry)
            kernel._set_arg_buf(count + 1, pack([operand.start for operand in operands], scalars))
            try:
                opencl.enqueue(self._queue, kernel, step.global_size, step.local_size)
                self._queue.finish()
            except cl.Error as error:
                raise launch_error(step.instance.name, step, self._device_name, error) from error
            self._counter.value += 1

        return run

    @property
    def has_queued_launches(self) -> bool:
        return False

    def synchronize(self) -> None:
        """Do nothing: each launch is waited for."""

    def wait_for(self, storage: Storage) -> None:
        """Do nothing: each launch is waited for."""


def _cpu_device() -> opencl.DeviceInfo:
    """Return the OpenCL CPU device: of the platform that WEFTGRAD_CPU_PLATFORM names, else the first PoCL, else any."""
    infos = [info for info in opencl.devices() if info.handle.type & cl.device_type.CPU]
    platform_name = os.environ.get("WEFTGRAD_CPU_PLATFORM", "").lower()
    matching = [i for i in infos if platform_name in f"{i.platform} {i.handle.platform.version}".lower()]
    if not matching:
        platforms = ", ".join(dict.fromkeys(info.platform for info in infos)) or "none"
        condition = f" whose platform's name has {platform_name!r}" if platform_name else ""
        raise DriverNotFound(f"no OpenCL CPU driver{condition} is installed (platforms with a CPU: {platforms})")
    return min(matching, key=lambda info: "Portable" not in info.platform)
