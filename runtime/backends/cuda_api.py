"""CUDA's driver library: loaded, asked, and its errors told apart. The only file that imports cuda-bindings.

Everything that touches a GPU goes through `ask(name, …)` or, on the hot path, through a function of `library()`.
`use(stand_in)` puts another object with the same functions in the library's place: tests run the backend without a GPU.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import CaptureError, DeviceError, DriverNotFound, ForkError, LaunchError

__all__ = ["DeviceInfo", "activate", "ask", "check_fork", "devices", "failure", "library", "local", "may_exist", "use"]

_lock = threading.RLock()
_library: Any = None
_devices: tuple[DeviceInfo, ...] | None = None
_forked = False

# CUresult. By number: the names of later ones are not in every version of cuda-bindings.
SUCCESS, OUT_OF_MEMORY, NO_DEVICE, NOT_READY = 0, 2, 100, 600
WRONG_CONTEXT = (201, 400)  # invalid context, invalid handle: another library made its own context current
_CAPTURE = range(900, 911)
# A kernel went wrong while it ran. The context is lost with it.
_LATE = {
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


class _Local(threading.local):
    """The driver whose context is current on this thread, as far as this package knows."""

    driver: Any = None


local = _Local()


def _after_fork() -> None:
    global _forked, local
    if _library is not None:
        _forked = True
        local.driver = None  # so that every prepared launch asks for its context first, and is refused


os.register_at_fork(after_in_child=_after_fork)


def check_fork() -> None:
    """A CUDA context does not survive a fork: every call would fail or hang. Say so instead."""
    if _forked:
        raise ForkError(
            "this process was forked after a CUDA device was opened, and CUDA does not work in such a child; "
            "start workers with multiprocessing's 'spawn' or 'forkserver' method"
        )


def may_exist() -> bool:
    """Whether an NVIDIA GPU may be here, told without loading anything: its device files are, and are not hidden."""
    if _library is not None:
        return True
    if os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        return False
    return os.name == "nt" or any(map(os.path.exists, ("/dev/nvidiactl", "/dev/dxg", "/dev/nvmap")))


def use(stand_in: Any) -> None:
    """Let `stand_in` take the place of `cuda.bindings.driver`; None: the real one again. For tests."""
    global _library, _devices, _forked
    with _lock:
        _library, _devices, _forked = stand_in, None, False
        local.driver = None


def library() -> Any:
    """`cuda.bindings.driver`, initialised. Raises `DriverNotFound` where bindings, driver or GPU are missing."""
    global _library
    check_fork()
    if _library is None:
        with _lock:
            if _library is None:
                _library = _load()
    return _library


def _load() -> Any:
    try:
        from cuda.bindings import driver
    except ImportError as error:
        raise DriverNotFound(
            f"CUDA needs cuda-bindings, which does not import ({error}): pip install 'weftgrad[cuda]'"
        ) from error
    initialise(driver)
    return driver


def initialise(driver: Any) -> None:
    """`cuInit`, with its failures as `DriverNotFound`."""
    try:
        (code,) = driver.cuInit(0)
    except Exception as error:  # the bindings' own, of a module that says that it is private
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
            f"NVIDIA's driver does not start ({_words(driver, code)}): nvidia-smi tells more; a driver that was "
            "updated needs a restart"
        )


def _words(driver: Any, code: Any) -> str:
    """Name and meaning of a result code."""
    found = []
    for function in (driver.cuGetErrorName, driver.cuGetErrorString):
        status, text = function(code)
        if not status and text:
            found.append(text.decode() if isinstance(text, bytes) else str(text))
    return ": ".join(found) or f"code {int(code)}"


def ask(name: str, *arguments: Any) -> Any:
    """Call a function of the library; what it returns apart from the status. Raises what `failure` gives."""
    found = getattr(_library, name)(*arguments)
    if found[0]:
        raise failure(name, found[0])
    return None if len(found) == 1 else found[1] if len(found) == 2 else found[1:]


def driver_version() -> str:
    """The version of CUDA that the driver has, as in `13.1`."""
    found = int(ask("cuDriverGetVersion"))
    return f"{found // 1000}.{found % 1000 // 10}"


def failure(name: str, code: Any, last: str = "") -> Exception:
    """The error for a function that returned `code`. `last`: what was launched last, if that is known."""
    words = _words(_library, code)
    if code == OUT_OF_MEMORY:
        return MemoryError(f"{name}: {words}")
    if code in _LATE:
        last = last or (local.driver.last if local.driver is not None else "")
        after = f" (the last launch before this was noticed: {last})" if last else ""
        return LaunchError(
            f"a kernel that was launched earlier went wrong: {_LATE[int(code)]}{after}. {name} reports {words}. "
            "CUDA cannot be used in this process any more; run it again with CUDA_LAUNCH_BLOCKING=1 to have the "
            "launch itself fail"
        )
    if int(code) in _CAPTURE:
        return CaptureError(f"{name} is not possible while a graph is captured, or the capture broke: {words}")
    return DeviceError(f"{name} failed: {words}")


def activate(driver: Any) -> None:
    """Make the context of `driver` current on this thread."""
    check_fork()
    ask("cuCtxSetCurrent", driver.context)
    local.driver = driver


@contextmanager
def relaxed() -> Iterator[None]:
    """Allow calls that a capture on this thread forbids by default because they might wait: allocation, queries."""
    mode = _library.CUstreamCaptureMode
    before = ask("cuThreadExchangeStreamCaptureMode", mode.CU_STREAM_CAPTURE_MODE_RELAXED)
    try:
        yield
    finally:
        ask("cuThreadExchangeStreamCaptureMode", before)


@dataclass(frozen=True, slots=True)
class DeviceInfo:
    """One GPU. memory, shared_memory (that one block may have): bytes. sm: 90 for compute capability 9.0."""

    index: int
    handle: Any
    name: str
    sm: int
    multiprocessors: int
    memory: int
    shared_memory: int
    threads: int
    reads_pageable: bool  # copies may read pageable host memory after the call returned (coherent links)


def devices() -> tuple[DeviceInfo, ...]:
    """All GPUs that this process may use. Raises `DriverNotFound` where there is no driver or no GPU."""
    global _devices
    cuda = library()
    with _lock:
        if _devices is None:
            _devices = tuple(_device(cuda, i) for i in range(ask("cuDeviceGetCount")))
        if not _devices:
            raise DriverNotFound("NVIDIA's driver is installed, but there is no GPU: see CUDA_VISIBLE_DEVICES")
        return _devices


def _device(cuda: Any, index: int) -> DeviceInfo:
    handle = ask("cuDeviceGet", index)
    kinds = cuda.CUdevice_attribute

    def number(name: str) -> int:
        return int(ask("cuDeviceGetAttribute", getattr(kinds, f"CU_DEVICE_ATTRIBUTE_{name}"), handle))

    return DeviceInfo(
        index,
        handle,
        ask("cuDeviceGetName", 256, handle).split(b"\0")[0].decode(),
        number("COMPUTE_CAPABILITY_MAJOR") * 10 + number("COMPUTE_CAPABILITY_MINOR"),
        number("MULTIPROCESSOR_COUNT"),
        int(ask("cuDeviceTotalMem", handle)),
        number("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        number("MAX_THREADS_PER_BLOCK"),
        bool(number("PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES")),
    )
