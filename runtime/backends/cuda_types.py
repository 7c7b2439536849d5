"""Types of `cuda.bindings.driver`. cuda-bindings is optional, so type checkers do not read it.

`DriverLibrary` has the functions that are called directly. For `cuda_api.call_driver`, the names of the other functions
are grouped by what they return. Tests replace the library by an object with the same functions (`cuda_api.use`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, Protocol, TypeAlias

__all__ = [
    "Destroy", "DriverHandle", "DriverLibrary", "HandleFunction", "IntegerFunction", "LaunchFunction", "VoidFunction",
]  # fmt: skip


class DriverHandle(Protocol):
    """An object of the driver: a context, stream, event, module, function or graph. A null handle is 0 as an int."""

    def __int__(self) -> int: ...


LaunchFunction: TypeAlias = Callable[..., tuple[int]]
"""`cuLaunchKernel`: it takes the kernel, three sizes of the grid, three of a block, bytes of shared memory, the stream,
the address of the pointers to parameters, and 0. It returns the result code alone."""


class _CaptureModes(Protocol):
    CU_STREAM_CAPTURE_MODE_THREAD_LOCAL: int
    CU_STREAM_CAPTURE_MODE_RELAXED: int


class _FunctionAttributes(Protocol):
    CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES: int


class DriverLibrary(Protocol):
    """The module `cuda.bindings.driver`. Functions return a tuple of the result code and their results."""

    CUstreamCaptureMode: _CaptureModes
    CUfunction_attribute: _FunctionAttributes
    CUdevice_attribute: object
    cuLaunchKernel: LaunchFunction

    def cuInit(self, flags: int, /) -> tuple[int]: ...
    def cuGetErrorName(self, code: int, /) -> tuple[int, bytes | str | None]: ...
    def cuGetErrorString(self, code: int, /) -> tuple[int, bytes | str | None]: ...
    def cuModuleLoadData(self, image: bytes, /) -> tuple[int, DriverHandle]: ...
    def cuEventQuery(self, event: DriverHandle, /) -> tuple[int]: ...
    def cuStreamQuery(self, stream: DriverHandle, /) -> tuple[int]: ...
    def cuStreamEndCapture(self, stream: DriverHandle, /) -> tuple[int, DriverHandle | None]: ...


IntegerFunction: TypeAlias = Literal[
    "cuDeviceGetAttribute", "cuDeviceGetCount", "cuDeviceTotalMem", "cuDriverGetVersion"
]
HandleFunction: TypeAlias = Literal[
    "cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuEventCreate", "cuGraphInstantiate", "cuMemAlloc", "cuMemHostAlloc",
    "cuModuleGetFunction", "cuStreamCreateWithPriority", "cuThreadExchangeStreamCaptureMode",
]  # fmt: skip
Destroy: TypeAlias = Literal["cuGraphDestroy", "cuGraphExecDestroy", "cuStreamDestroy"]
VoidFunction: TypeAlias = (
    Destroy
    | Literal[
        "cuCtxSetCurrent", "cuCtxSynchronize", "cuEventRecord", "cuEventSynchronize", "cuFuncSetAttribute",
        "cuGraphLaunch", "cuMemFree", "cuMemFreeHost", "cuMemcpyDtoHAsync", "cuMemcpyHtoDAsync", "cuMemcpyPeerAsync",
        "cuStreamBeginCapture", "cuStreamSynchronize", "cuStreamWaitEvent",
    ]
)  # fmt: skip
