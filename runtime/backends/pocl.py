"""Workarounds for PoCL: a private cache folder, a processor name that its LLVM accepts, and which of several it is.

PoCL loads compiled kernels from its own cache unchecked: a truncated shared object ends the process, and an empty file
makes every later build fail. This project has a checked cache (`runtime.cache`), so PoCL gets a temporary folder.

PoCL 3.0 (2022) asks LLVM 14 for the processor's name. For a newer processor LLVM answers `generic`, which clang refuses
for x86-64, and nothing compiles. `correct_processor` replaces this name by an instruction set level, such as
`x86-64-v3`, in PoCL's own record of the device.

A system may have a PoCL beside the one that pip installed (`pocl-binary-distribution`), and both have the same name.
`is_from_wheel` tells them apart by their libraries' paths, so that installing a second one changes no device's number.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from ..device import known_devices
from . import processor

if TYPE_CHECKING:
    from .opencl_types import ClDevice, ClPlatform

__all__ = ["correct_processor", "is_from_wheel", "library_of", "private_cache"]

_UNKNOWN = b"generic\0"
_RECORD_WORDS = 300  # words of `struct _cl_device_id` to search for the name's pointer (at byte 640 in PoCL 3.0)
_NAMES = {"avx512": b"x86-64-v4", "avx2": b"x86-64-v3", "sse": b"x86-64-v2"}
_name_buffers: list[ctypes.Array[ctypes.c_char]] = []  # keeps the names alive that PoCL points to


def private_cache() -> None:
    """Give PoCL a temporary folder for its files, removed at exit, unless POCL_CACHE_DIR names one."""
    if "POCL_CACHE_DIR" in os.environ:
        return
    try:
        folder = tempfile.mkdtemp(prefix="weftgrad-pocl-")
    except OSError:
        return
    os.environ["POCL_CACHE_DIR"] = folder
    atexit.register(_remove, folder, os.getpid())


def _remove(folder: str, process: int) -> None:
    if os.getpid() != process:
        return
    for device in known_devices():  # PoCL links a kernel at its first run, in this folder, and aborts if it is missing
        if device.type == "opencl" and device._driver is not None:
            with suppress(Exception):
                device._driver.synchronize()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ.pop("POCL_CACHE_DIR", None)


def correct_processor(device: ClDevice) -> bool:
    """Replace the processor name `generic` of a PoCL device by the processor's instruction set level.

    Args:
        device: pyopencl's device.

    Returns:
        Whether the name was replaced.
    """
    instructions = processor.best_instruction_set()
    if not device.version.endswith("-generic") or instructions not in _NAMES:
        return False
    return replace_name(device, _UNKNOWN, _NAMES[instructions])


def replace_name(device: ClDevice, old: bytes, new: bytes) -> bool:
    """Redirect the pointer to the text `old` in a PoCL device's record to `new`. Return whether there was one."""
    words = (ctypes.c_uint64 * _RECORD_WORDS).from_address(device.int_ptr)
    try:
        memory = os.open("/proc/self/mem", os.O_RDONLY)
    except OSError:
        return False
    try:
        for i, word in enumerate(words):
            if word < 1 << 12 or word >> 47:
                continue
            try:
                text = os.pread(memory, len(old), word)
            except OSError:  # not a valid address
                continue
            if text == old:
                name = ctypes.create_string_buffer(new)
                _name_buffers.append(name)
                words[i] = ctypes.addressof(name)
                return True
    finally:
        os.close(memory)
    return False


class _SymbolInfo(ctypes.Structure):
    """`Dl_info` of dlfcn.h: the library that an address belongs to, and the symbol."""

    _fields_ = (
        ("path", ctypes.c_char_p), ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p), ("symbol_address", ctypes.c_void_p),
    )  # fmt: skip


def library_of(platform: ClPlatform) -> str:
    """Return the path of a platform's driver library; "" if it is not known.

    Every object of a driver with the extension cl_khr_icd begins with a pointer to the driver's table of functions, and
    the dynamic linker knows which library has the first function.
    """
    find_symbol = getattr(ctypes.CDLL(None), "dladdr", None) if os.name == "posix" else None
    if find_symbol is None or "cl_khr_icd" not in platform.extensions.split():
        return ""
    table = ctypes.c_void_p.from_address(platform.int_ptr).value
    function = ctypes.c_void_p.from_address(table).value if table else None
    info = _SymbolInfo()
    if function is None or not find_symbol(ctypes.c_void_p(function), ctypes.byref(info)) or info.path is None:
        return ""
    return os.fsdecode(info.path)


def is_from_wheel(platform: ClPlatform, packages: Path) -> bool:
    """Return True if a platform is a PoCL that pip installed: its library is in the folder of Python's packages."""
    return "Portable" in platform.name and packages in Path(library_of(platform)).parents
