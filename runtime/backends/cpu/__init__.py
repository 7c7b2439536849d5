"""The `cpu` device: host memory, and kernels that clang compiles as C and that are called as functions.

    driver      CpuDriver: memory, streams and events of the device, and the launchers of planned steps
    launching   ClangExecutor: launches; a queue for launches whose kernels are still being compiled
    kernels     ClangKernels: map instances to function addresses; threads that compile in the background
    objects     shared objects: compile, cache, check, load
    compilers   find a working clang, and the flags for this processor
    fallback    OpenCLExecutor: the same kernels by an installed OpenCL CPU driver, if there is no clang

A call of an op ends in `launching`. If its kernel has been compiled, the calling thread and its team of helper threads
(`csrc/team.c`) call the function, and the work is done on return, as with PyTorch. If not, a background thread compiles
the kernel while the program goes on. Later launches are queued behind it, and the next read of a value waits for all of
them. So the kernels of a first training step are compiled many at a time, on every core.

Kernels get the addresses of tensors in host memory. No driver has to be open to create, view or pickle tensors, or to
exchange them with NumPy.
"""

from __future__ import annotations

from .driver import CpuDriver, CpuStream

__all__ = ["CpuDriver", "CpuStream"]
