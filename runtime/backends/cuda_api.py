"""Load and call CUDA's driver library, and translate its errors. The only file that imports cuda-bindings.

All GPU calls go through `call_driver(name, …)` or, on the hot path, through a function of `library()`.
`use(stand_in)` replaces the library by another object with the same functions: tests run the backend without a GPU.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, overload

from ..device import forbid_fork
from ..errors import CaptureError, DeviceError, DriverNotFound, ForkError, LaunchError

if TYPE_CHECKING:
    from .cuda import CudaDriver
    from .cuda_types import DriverHandle, DriverLibrary, HandleFunction, IntegerFunction, VoidFunction

__all__ = [
    "DeviceInfo",
    "activate",
    "call_driver",
    "check_fork",
    "devices",
    "driver_error",
    "library",
    "local",
    "may_exist",
    "use",
]

_lock = threading.RLock()
_library: DriverLibrary | None = None
_devices: tuple[DeviceInfo, ...] | None = None
_forked = False

# CUresult codes. As numbers, because older versions of cuda-bindings lack the names of newer codes.
SUCCESS, OUT_OF_MEMORY, NO_DEVICE, NOT_READY = 0, 2, 100, 600
WRONG_CONTEXT = (201, 400)  # invalid context, invalid handle: another library made its own context current
_CAPTURE = range(900, 911)
# Errors of a running kernel. They make the whole context unusable.
_KERNEL_FAULTS = {
    700: "it read or wrote memory that is not its own",
    702: "it ran longer than the system allows",
    710: "an assertion in it failed",
    714: "its stack overflowed",
    715: "it met an illegal instruction",
    716: "it read or wrote at a misaligned address",
    717: "it used an address of the wrong address space",
    718: "its program counter left the kernel",
    719: "it failed",
}


class _ThreadState(threading.local):
    """The driver whose context this package made current on this thread last."""

    driver: CudaDriver | None = None


local = _ThreadState()


def _after_fork() -> None:
    global _forked, local
    if _library is not None:
        _forked = True
        local.driver = None  # so that every prepared launch activates its context first, which raises `ForkError`


os.register_at_fork(after_in_child=_after_fork)


def check_fork() -> None:
    """Raise `ForkError` in a forked child: a CUDA context does not survive a fork, calls would fail or hang."""
    if _forked:
        raise ForkError(
            "this process was forked after a CUDA device was opened, and CUDA does not work in such a child; "
            "start workers with multiprocessing's 'spawn' or 'forkserver' method"
        )


def may_exist() -> bool:
    """Return True if an NVIDIA GPU may be available: its device files exist and it is not hidden. Loads nothing."""
    if _library is not None:
        return True
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return os.name == "nt" or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")))


def use(stand_in: DriverLibrary | None) -> None:
    """Replace `cuda.bindings.driver` by `stand_in` for tests; None restores the real library."""
    global _library, _devices, _forked
    with _lock:
        _library, _devices, _forked = stand_in, None, False
        local.driver = None


def library() -> DriverLibrary:
    """Return the initialised `cuda.bindings.driver`. Raise `DriverNotFound` without bindings, driver or GPU."""
    global _library
    check_fork()
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def _load() -> DriverLibrary:
    try:
        from cuda.bindings import driver  # lazy: optional dependency (cuda)
    except ImportError as error:
        raise DriverNotFound(
            f"CUDA needs cuda-bindings, which does not import ({error}): pip install 'weftgrad[cuda]'"
        ) from error
    initialise(driver)
    forbid_fork()
    return driver


def initialise(bindings: DriverLibrary) -> None:
    """Call `cuInit`. Raise `DriverNotFound` if it fails."""
    try:
        (code,) = bindings.cuInit(0)
    except Exception as error:  # the bindings' own exception class is in a private module
        raise DriverNotFound(
            f"NVIDIA's driver library (libcuda) is not here ({error}): install the NVIDIA driver; a container needs "
            "to be started with the GPU passed through (--gpus all)"
        ) from error
    if code == NO_DEVICE:
        raise DriverNotFound(
            "NVIDIA's driver is installed, but there is no GPU that this process may use: look at nvidia-smi, and at "
            "CUDA_VISIBLE_DEVICES"
        )
    if code:
        raise DriverNotFound(
            f"NVIDIA's driver does not start ({_describe_code(bindings, code)}): nvidia-smi tells more; a driver that "
            "was updated needs a restart"
        )


def _describe_code(driver: DriverLibrary, code: int) -> str:
    """Return the name and meaning of a result code."""
    parts = []
    for function in (driver.cuGetErrorName, driver.cuGetErrorString):
        status, text = function(code)
        if not status and text:
            parts.append(text.decode() if isinstance(text, bytes) else str(text))
    return ": ".join(parts) or f"code {int(code)}"


@overload
def call_driver(name: VoidFunction, *arguments: object) -> None: ...
@overload
def call_driver(name: HandleFunction, *arguments: object) -> DriverHandle: ...
@overload
def call_driver(name: IntegerFunction, *arguments: object) -> int: ...
@overload
def call_driver(name: Literal["cuStreamEndCapture"], *arguments: object) -> DriverHandle | None: ...
@overload
def call_driver(name: Literal["cuDeviceGetName"], *arguments: object) -> bytes: ...
@overload
def call_driver(name: Literal["cuEventElapsedTime"], *arguments: object) -> float: ...
@overload
def call_driver(name: Literal["cuMemGetInfo"], *arguments: object) -> tuple[int, int]: ...
def call_driver(name: str, *arguments: object) -> object:
    """Call a function of the driver library, and return its results without the status code.

    Raises:
        Exception: the error of `driver_error`, if the status is not success.
    """
    results = getattr(_library, name)(*arguments)
    if results[0]:
        raise driver_error(name, results[0])
    return None if len(results) == 1 else results[1] if len(results) == 2 else results[1:]


def driver_version() -> str:
    """Return the CUDA version that the driver supports, for example `13.1`."""
    version = int(call_driver("cuDriverGetVersion"))
    return f"{version // 1000}.{version % 1000 // 10}"


def driver_error(name: str, code: int, last_kernel: str = "") -> Exception:
    """Return the exception for a driver function that returned `code`. last_kernel: the last launch, if known."""
    assert _library is not None
    description = _describe_code(_library, code)
    if code == OUT_OF_MEMORY:
        return MemoryError(f"{name}: {description}")
    if code in _KERNEL_FAULTS:
        last_kernel = last_kernel or (local.driver.last_kernel if local.driver is not None else "")
        context = f" (the last launch before this was noticed: {last_kernel})" if last_kernel else ""
        return LaunchError(
            f"a kernel that was launched earlier went wrong: {_KERNEL_FAULTS[int(code)]}{context}. {name} reports "
            f"{description}. "
            "CUDA cannot be used in this process any more; run it again with CUDA_LAUNCH_BLOCKING=1 to have the "
            "launch itself fail"
        )
    if int(code) in _CAPTURE:
        return CaptureError(f"{name} is not possible while a graph is captured, or the capture broke: {description}")
    return DeviceError(f"{name} failed: {description}")


def activate(driver: CudaDriver) -> None:
    """Make a driver's context current on this thread."""
    check_fork()
    call_driver("cuCtxSetCurrent", driver.context)
    local.driver = driver


def relaxed(driver: CudaDriver) -> AbstractContextManager[None]:
    """Allow calls that a capture on this thread forbids by default because they might wait, such as allocations."""
    return _relaxed_captures() if driver.captures else _UNCHANGED


_UNCHANGED = nullcontext()


@contextmanager
def _relaxed_captures() -> Iterator[None]:
    mode = library().CUstreamCaptureMode
    old_mode = call_driver("cuThreadExchangeStreamCaptureMode", mode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        call_driver("cuThreadExchangeStreamCaptureMode", old_mode)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU.

    memory, shared_memory (maximum per block): bytes. threads: maximum per block. sm: 90 for compute capability 9.0.
    """

    index: int
    handle: DriverHandle
    name: str
    sm: int
    multiprocessors: int
    memory: int
    shared_memory: int
    threads: int
    reads_pageable: bool  # copies may still read pageable host memory after the call returns (coherent links)


def devices() -> tuple[DeviceInfo, ...]:
    """List all GPUs that this process may use. Raise `DriverNotFound` without a driver or a GPU."""
    global _devices
    cuda = library()
    with _lock:
        if _devices is None:
            _devices = tuple(_device(cuda, i) for i in range(call_driver("cuDeviceGetCount")))
        if not _devices:
            raise DriverNotFound("NVIDIA's driver is installed, but there is no GPU: see CUDA_VISIBLE_DEVICES")
        return _devices


def _device(cuda: DriverLibrary, index: int) -> DeviceInfo:
    handle = call_driver("cuDeviceGet", index)
    attributes = cuda.CUdevice_attribute

    def number(name: str) -> int:
        return int(call_driver("cuDeviceGetAttribute", getattr(attributes, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

    return DeviceInfo(
        index,
        handle,
        call_driver("cuDeviceGetName", 256, handle).split(b"\0")[0].decode(),
        number("COMPUTE_CAPABILITY_MAJOR") * 10 + number("COMPUTE_CAPABILITY_MINOR"),
        number("MULTIPROCESSOR_COUNT"),
        int(call_driver("cuDeviceTotalMem", handle)),
        number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        number("MAX_THREADS_PER_BLOCK"),
        bool(number("PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES")),
    )
