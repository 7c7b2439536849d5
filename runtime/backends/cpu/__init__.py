"""The `cpu` device: host memory, and kernels that clang compiled as C and that are called as functions.

    driver      CpuDriver: memory, streams and events of the device, and the launchers of planned steps
    launching   a launcher; launches that wait for kernels which are still being compiled
    kernels     ClangKernels: from instances to addresses of functions; threads that compile in the background
    objects     shared objects: compile, keep in the cache, check, load
    compilers   find a clang that works, and the flags for this processor
    fallback    OpenCLKernels: the same kernels by an installed OpenCL CPU driver, where there is no clang

A call of an op ends in `launching`. If its kernel has been compiled, the calling thread and its team of helper threads
(`csrc/team.c`) call the function, and the work is done on return, as with PyTorch. If not, a background thread compiles
it while the program goes on: later launches queue up behind it, and the next look at a value waits for all of them.
So the kernels of a first training step are compiled many at a time, on every core.

Memory is the host's. A tensor's address is all that a kernel is given, and no driver has to be open for tensors to be
made, viewed, pickled or exchanged with NumPy.
"""

from __future__ import annotations

from .driver import CpuDriver, CpuStream

__all__ = ["CpuDriver", "CpuStream"]
