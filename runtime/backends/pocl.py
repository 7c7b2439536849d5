"""What PoCL needs before it compiles: a folder of this process's own for its files, and a processor that it knows.

PoCL keeps compiled kernels in a cache of its own and loads what it finds there unchecked: shared objects that were cut
short end the process, and emptied files make every later build fail. The project has a checked cache (`runtime.cache`),
so PoCL gets a temporary folder.

PoCL 3.0 (2022) asks LLVM 14 for the processor's name. For one that LLVM does not know the answer is `generic`, which
clang then refuses for x86-64, and nothing compiles. `correct_processor` puts the name of the processor's instruction
set level in its place, in PoCL's own record of the device.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import tempfile
from contextlib import suppress
from typing import Any

from ..device import known_devices
from . import processor

__all__ = ["correct_processor", "private_cache"]

_UNKNOWN = b"generic\0"
_RECORD_WORDS = 300  # of `struct _cl_device_id`, in which the pointer to the name lies (at byte 640 in PoCL 3.0)
_NAMES = {"avx512": b"x86-64-v4", "avx2": b"x86-64-v3", "sse": b"x86-64-v2"}
_replaced: list[Any] = []  # names that PoCL points at


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
    for device in known_devices():  # PoCL links a kernel when it first runs, in this folder, and aborts if it is gone
        if device.type == "opencl" and device._driver is not None:
            with suppress(Exception):
                device._driver.synchronize()
    shutil.rmtree(folder, ignore_errors=True)
    os.environ.pop("POCL_CACHE_DIR", None)


def correct_processor(device: Any) -> bool:
    """Name the processor's instruction set level to a PoCL device that takes the processor for `generic`.

    Returns whether anything was changed. `device` is pyopencl's.
    """
    instructions = processor.best_instruction_set()
    if not device.version.endswith("-generic") or instructions not in _NAMES:
        return False
    return replace_name(device, _UNKNOWN, _NAMES[instructions])


def replace_name(device: Any, old: bytes, new: bytes) -> bool:
    """Point the word of a PoCL device's record that points at the text `old` at `new`; whether there was one."""
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
            except OSError:  # no pointer
                continue
            if text == old:
                name = ctypes.create_string_buffer(new)
                _replaced.append(name)
                words[i] = ctypes.addressof(name)
                return True
    finally:
        os.close(memory)
    return False
