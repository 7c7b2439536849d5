"""Types of pyopencl's members that the backend uses. pyopencl is optional, so type checkers do not read it.

`PyOpenCL` is the module itself (`opencl_devices.cl`); the other classes are its objects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from ..dtypes import Array

__all__ = [
    "ClBuffer", "ClContext", "ClDevice", "ClEvent", "ClKernel", "ClPlatform", "ClProgram", "ClQueue", "Enqueue",
    "PyOpenCL",
]  # fmt: skip


class ClPlatform(Protocol):
    """An installed OpenCL implementation, such as PoCL."""

    name: str
    version: str
    extensions: str
    int_ptr: int

    def get_devices(self) -> Sequence[ClDevice]: ...


class ClDevice(Protocol):
    """A device of a platform. type and single_fp_config: bits of `PyOpenCL.device_type` and `device_fp_config`."""

    platform: ClPlatform
    name: str
    version: str
    driver_version: str
    extensions: str
    type: int
    max_compute_units: int
    max_work_group_size: int
    local_mem_size: int
    global_mem_size: int
    max_mem_alloc_size: int
    host_unified_memory: int
    single_fp_config: int
    int_ptr: int


class ClContext(Protocol):
    """A context: the owner of buffers, programs and queues."""


class ClQueue(Protocol):
    """A command queue."""

    int_ptr: int

    def finish(self) -> None: ...
    def flush(self) -> None: ...


class ClBuffer(Protocol):
    """A buffer in device memory."""

    def release(self) -> None: ...


class _Profile(Protocol):
    """Times of a profiled command on the device's clock, in nanoseconds."""

    start: int
    end: int


class ClEvent(Protocol):
    """The event of a queued command. command_execution_status: 0 when it is done, positive before, negative: failed."""

    command_execution_status: int
    profile: _Profile

    def wait(self) -> None: ...


class ClKernel(Protocol):
    """A kernel object, which holds the arguments of its next launch."""

    function_name: str
    int_ptr: int

    def set_arg(self, index: int, value: object) -> None: ...
    def get_work_group_info(self, parameter: int, device: ClDevice) -> Any: ...
    def _set_arg_buf(self, index: int, value: bytes) -> None: ...


class ClProgram(Protocol):
    """A program in a context."""

    def build(
        self,
        options: Sequence[str] = (),
        devices: Sequence[ClDevice] | None = None,
        cache_dir: str | bool | None = None,
    ) -> ClProgram: ...
    def get_info(self, parameter: int) -> Sequence[bytes]: ...


Enqueue: TypeAlias = Callable[[ClQueue, ClKernel, tuple[int, ...], tuple[int, ...] | None], ClEvent]
"""Queue a kernel with a global and a local size."""


class _DeviceType(Protocol):
    CPU: int
    GPU: int


class _FloatConfig(Protocol):
    CORRECTLY_ROUNDED_DIVIDE_SQRT: int


class _WorkGroupInfo(Protocol):
    COMPILE_WORK_GROUP_SIZE: int
    WORK_GROUP_SIZE: int


class _MemFlags(Protocol):
    READ_WRITE: int


class _QueueProperties(Protocol):
    PROFILING_ENABLE: int


class _ProgramInfo(Protocol):
    BINARIES: int


class _Library(Protocol):
    """pyopencl's extension module, which is linked with the OpenCL library."""

    __file__: str


class PyOpenCL(Protocol):
    """The module `pyopencl`."""

    _cl: _Library
    Error: type[Exception]
    CompilerWarning: type[Warning]
    device_type: _DeviceType
    device_fp_config: _FloatConfig
    kernel_work_group_info: _WorkGroupInfo
    mem_flags: _MemFlags
    command_queue_properties: _QueueProperties
    program_info: _ProgramInfo
    enqueue_nd_range_kernel: Enqueue

    def get_platforms(self) -> Sequence[ClPlatform]: ...
    def Context(self, devices: Sequence[ClDevice]) -> ClContext: ...
    def CommandQueue(self, context: ClContext, device: ClDevice, properties: int = 0) -> ClQueue: ...
    def Buffer(self, context: ClContext, flags: int, size: int) -> ClBuffer: ...
    def Kernel(self, program: ClProgram, name: str) -> ClKernel: ...
    def Program(
        self, context: ClContext, source: str | Sequence[ClDevice], binaries: Sequence[bytes] = ..., /
    ) -> ClProgram: ...
    def enqueue_marker(self, queue: ClQueue) -> ClEvent: ...
    def enqueue_barrier(self, queue: ClQueue, wait_for: Sequence[ClEvent]) -> ClEvent: ...
    def enqueue_copy(
        self,
        queue: ClQueue,
        dest: ClBuffer | Array,
        src: ClBuffer | Array,
        *,
        dst_offset: int = 0,
        src_offset: int = 0,
        is_blocking: bool = True,
    ) -> ClEvent: ...
