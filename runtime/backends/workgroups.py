"""Whether kernels of an OpenCL CPU device can be called as functions (csrc/direct.c), without a launch of the driver.

A launch of PoCL's takes a microsecond, one of Intel's runtime five to ten, and two threads that launch wait for each
other. What PoCL does in the end is to call a function, of a form that its versions share but do not promise (its
pocl_context.h); it is found by its name once the kernel was launched. Of Intel's runtime, whose kernels have a form of
their own, the same is had by functions beside the kernels (`runtime.called`), whose addresses kernels tell. Its
compiler has no built-ins for the processor's instructions, but assembler (WG_ASSEMBLER512). Each is tried here in each
process with a kernel that writes down all that it is given, and only of versions that it was tried with before.
"""

from __future__ import annotations

import re
import threading
from typing import Any

import numpy as np

from .. import called, native, program
from .protocol import Instance, Slot

__all__ = ["MOST_ITEMS", "PROBE", "Functions", "Named", "Placed", "can_call"]

MOST_ITEMS = 0x7FFF  # work-items of a launch: PoCL compiles kernels anew for larger ones, and items have 16 bits
_VERSIONS = re.compile(r"OpenCL 3\.0 PoCL 3\.[01]\b")
_INTEL = re.compile(r"2026\.")
_TEXT = """
typedef struct { long a[2]; int b; } NAME(Geometry);
typedef struct { long offset[2]; } NAME(Dynamic);
#ifdef WG_ASSEMBLER512
static inline float NAME(scaled)(float16 x) {
    float16 y;
    __asm__("vscalefps %1, %1, %0" : "=X"(y) : "X"(x));
    return y.s0;
}
#else
static inline float NAME(scaled)(float16 x) { return x.s0 * 8; }
#endif
WG_ONE kernel void NAME(probe)(global long *p0, global long *p1, const NAME(Geometry) geo, const NAME(Dynamic) dyn) {
    for (uint d = 0; d < 3; d++) {
        p0[d] = get_global_id(d);
        p0[3 + d] = get_group_id(d);
        p0[6 + d] = get_global_size(d);
        p0[9 + d] = get_local_size(d);
    }
    p0[12] = geo.a[0];
    p0[13] = geo.a[1];
    p0[14] = geo.b;
    p0[15] = p1[dyn.offset[1]];
    p0[16] = (long)NAME(scaled)((float16)(p1[0] - 2));
}
"""
PROBE = Instance("probe", _TEXT, "probe", "long", 1, (Slot("int64", "raw"), Slot("int64", "raw")))


class Named:
    """Kernels of PoCL, found by their names once the driver launched them. version: of the platform."""

    def __init__(self, compiler: Any, version: str):
        self.compiler = compiler
        self.tried = _VERSIONS.match(version) is not None

    def has(self, instance: Instance) -> bool:
        """Whether the kernel of an instance is a function."""
        return True

    def function(self, instance: Instance) -> Any:
        """The kernel of an instance, which can be called after its first launch."""
        return native.function(program.entry_name(instance))


class Placed:
    """Kernels of a compiler with `functions`, whose addresses the device tells on `queue`."""

    def __init__(self, cl: Any, context: Any, queue: Any, compiler: Any):
        self._cl, self._queue = cl, queue
        self.compiler = compiler
        handle = compiler._handle
        self.tried = "Intel" in handle.platform.name and _INTEL.match(handle.driver_version) is not None
        self._found = np.zeros(1, np.uint64)
        self._buffer = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 8)
        self._lock = threading.Lock()

    def has(self, instance: Instance) -> bool:
        """Whether the kernel of an instance is a function."""
        return called.with_function(instance.text, instance.entry, len(instance.slots)) is not None

    def function(self, instance: Instance) -> Any:
        """The kernel of an instance, which `has` says is a function."""
        made, name = self.compiler.program_of(instance)
        with self._lock:
            kernel = self._cl.Kernel(made, called.place_name(name))
            kernel.set_args(self._buffer)
            self._cl.enqueue_nd_range_kernel(self._queue, kernel, (1,), (1,))
            self._cl.enqueue_copy(self._queue, self._found, self._buffer)
            return native.function(name, int(self._found[0]))


Functions = Named | Placed


def can_call(cl: Any, context: Any, queue: Any, functions: Functions) -> bool:
    """Whether `functions`, of kernels that `queue` has launched, can be called."""
    if not native.present or not functions.tried:
        return False
    found, second = np.zeros(17, np.int64), np.array([5, -6])
    geometry, dynamic = np.zeros(1, np.dtype([("a", np.int64, 2), ("b", np.int32)], align=True)), np.array([0, 1])
    geometry["a"], geometry["b"] = [-7, 8], -9
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=each) for each in (found, second)]
    kernel = functions.compiler.kernel(PROBE)
    kernel.set_args(*buffers, geometry, dynamic)
    cl.enqueue_nd_range_kernel(queue, kernel, (1, 1, 1), (1, 1, 1))
    cl.enqueue_copy(queue, found, buffers[0])
    expected = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -7, 8, -9, -6, 24]
    probe = functions.function(PROBE)
    if found.tolist() != expected or not probe.find():
        return False
    pointers = np.array([found.ctypes.data, second.ctypes.data])
    first = pointers.ctypes.data
    places = (first, first + pointers.itemsize, geometry.ctypes.data, dynamic.ctypes.data)
    probe.try_call(places, (4, 5, 6), (1, 2, 3))
    return found.tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 6, *expected[9:]]
