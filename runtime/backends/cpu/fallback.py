"""`cpu` without a clang: kernels go to an installed OpenCL CPU driver (PoCL, Intel's runtime), one launch at a time.

The driver is given the tensors' addresses by `clSetKernelArgSVMPointer`, so no memory belongs to it. The standard
allows that where a device has fine-grained system SVM (OpenCL 2.0, section 3.3.3). PoCL's CPU does not say that it
has, but works so; each driver is tried with a kernel that copies a number. Every launch is waited for, which makes
small ops some ten times slower than on the usual road. Work-groups may have several work-items, so tests of schedules
for GPUs take this road too.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from ...errors import DriverNotFound, LaunchError
from ...storage import Storage
from .. import opencl
from ..arguments import packer
from ..overrides import override
from ..protocol import Capabilities, Instance, Step
from ..queues import Counter, launch_error

__all__ = ["OpenCLRoad"]

cl = opencl.cl
_set_pointer = ctypes.CDLL(cl._cl.__file__).clSetKernelArgSVMPointer
_set_pointer.argtypes = (ctypes.c_void_p, ctypes.c_uint, ctypes.c_void_p)


class OpenCLRoad:
    """Kernels that an OpenCL CPU driver compiled and runs.

    Args:
        counter: Of the launches.
        capabilities: What to claim instead of what the device says (tests).

    Raises:
        DriverNotFound: No CPU driver is installed, or none that reaches the host's memory.
    """

    def __init__(self, counter: Counter, capabilities: Capabilities | None = None):
        info = _cpu_device()
        here = replace(opencl.capabilities_of(info), memory=0)
        self.capabilities = capabilities or override(here, os.environ.get("WEFTGRAD_CAPABILITIES", ""))
        self.identity, self.name = opencl.identity_of(info), f"{info.platform} (OpenCL)"
        self._counter = counter
        self._device_name = info.name
        self._context = cl.Context([info.handle])
        self._queue = cl.CommandQueue(self._context, info.handle)
        self._check_memory(info)
        self.compiler = opencl.Compiler(self._context, info.handle, self.capabilities)

    def _check_memory(self, info: opencl.DeviceInfo) -> None:
        """Raise `DriverNotFound` if a kernel that copies a number of the host's to the host does not."""
        text = "kernel void copy(global const int *a, global int *b, long offset) { b[offset] = a[get_global_id(0)]; }"
        numbers = np.array([7, 8, 9, 0], np.int32)
        try:
            kernel = cl.Program(self._context, text).build(cache_dir=False).copy
            _set_pointer(kernel.int_ptr, 0, numbers.ctypes.data)
            _set_pointer(kernel.int_ptr, 1, 0)  # an address may be all in the offset
            kernel.set_arg(2, np.int64(numbers.ctypes.data // 4 + 3))
            cl.enqueue_nd_range_kernel(self._queue, kernel, (1,), (1,))
            self._queue.finish()
        except cl.Error as error:
            raise DriverNotFound(f"{info.platform} does not compile or run a kernel: {error}") from error
        if numbers.tolist() != [7, 8, 9, 7]:
            raise DriverNotFound(f"{info.platform} does not reach the host's memory")

    def build(self, instances: Sequence[Instance]) -> int:
        """Build those that are missing, as one program. Returns how many there were."""
        return self.compiler.build(instances)

    def is_cached(self, instance: Instance) -> bool:
        """Return whether the cache on disk has the kernel."""
        return self.compiler.is_cached(instance)

    def prepare(self, step: Step) -> Callable[..., None]:
        """Return `run(tensors, scalars, stream)` for a step, for the calling thread: arguments are a kernel's state."""
        opencl.check_fork()
        kernel = self.compiler.kernel(step.instance)
        handle, count = kernel.int_ptr, len(step.buffers)
        positions, geometry, pack = step.buffers, step.geometry, packer(step)

        def run(tensors: Sequence[Any], scalars: Sequence[Any], stream: Any) -> None:
            operands = [tensors[i] for i in positions]
            for i, operand in enumerate(operands):
                if status := _set_pointer(handle, i, operand.storage.buffer or 0):
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

    def synchronize(self) -> None:
        """Launches are waited for one by one."""

    def wait_for(self, storage: Storage) -> None:
        """Launches are waited for one by one."""


def _cpu_device() -> opencl.DeviceInfo:
    """The CPU of the platform that WEFTGRAD_CPU_PLATFORM names a part of, or of PoCL, or of any other."""
    infos = [info for info in opencl.devices() if info.handle.type & cl.device_type.CPU]
    named = os.environ.get("WEFTGRAD_CPU_PLATFORM", "").lower()
    matching = [i for i in infos if named in f"{i.platform} {i.handle.platform.version}".lower()]
    if not matching:
        platforms = ", ".join(dict.fromkeys(info.platform for info in infos)) or "none"
        condition = f" whose platform's name has {named!r}" if named else ""
        raise DriverNotFound(f"no OpenCL CPU driver{condition} is installed (platforms with a CPU: {platforms})")
    return min(matching, key=lambda info: "Portable" not in info.platform)
