"""Whether kernels of an OpenCL CPU device can be called as functions (csrc/direct.c), without a launch of the driver.

PoCL's launch takes a microsecond, and two threads that launch wait for each other. What it does in the end is to call
a function, of a form that PoCL's versions share but do not promise (its pocl_context.h). So the form is tried here with
a kernel that writes down all that it is given, in each process, and only for the versions that it was tried with.
"""

from __future__ import annotations

import os
import re
from typing import Any

import numpy as np

from .. import native, program
from .protocol import Instance, Slot

__all__ = ["MOST_ITEMS", "PROBE", "can_call", "cores", "function"]

MOST_ITEMS = 0x7FFF  # work-items of a launch: PoCL compiles kernels anew for larger ones, and items have 16 bits
_VERSIONS = re.compile(r"OpenCL 3\.0 PoCL 3\.[01]\b")
_TEXT = """
typedef struct { long a[2]; int b; } NAME(given_t);
WG_ONE kernel void NAME(probe)(global long *p0, const NAME(given_t) given, global long *p1) {
    for (uint d = 0; d < 3; d++) {
        p0[d] = get_global_id(d);
        p0[3 + d] = get_group_id(d);
        p0[6 + d] = get_global_size(d);
        p0[9 + d] = get_local_size(d);
    }
    p0[12] = given.a[0];
    p0[13] = given.a[1];
    p0[14] = given.b;
    p0[15] = p1[1];
}
"""
PROBE = Instance("probe", _TEXT, "probe", "long", 1, (Slot("int64", "raw"), Slot("int64", "raw")))


def can_call(cl: Any, context: Any, queue: Any, compiler: Any, version: str) -> bool:
    """Whether kernels that `queue` has launched can be called. version: of the platform."""
    if not native.present or not _VERSIONS.match(version):
        return False
    found, second = np.zeros(16, np.int64), np.array([5, -6])
    given = np.zeros(1, np.dtype([("a", np.int64, 2), ("b", np.int32)], align=True))
    given["a"], given["b"] = [-7, 8], -9
    flags = cl.mem_flags.READ_WRITE | cl.mem_flags.USE_HOST_PTR
    buffers = [cl.Buffer(context, flags, hostbuf=each) for each in (found, second)]
    kernel = compiler.kernel(PROBE)
    kernel.set_args(buffers[0], given, buffers[1])
    cl.enqueue_nd_range_kernel(queue, kernel, (1, 1, 1), (1, 1, 1))
    queue.finish()
    expected = [0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, -7, 8, -9, -6]
    called = function(PROBE)
    if found.tolist() != expected or not called.find():
        return False
    pointers = np.array([found.ctypes.data, second.ctypes.data])
    places = (pointers.ctypes.data, given.ctypes.data, pointers.ctypes.data + pointers.itemsize)
    called.try_call(places, (4, 5, 6), (1, 2, 3))
    return found.tolist() == [1, 2, 3, 1, 2, 3, 4, 5, 6, *expected[9:]]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def function(instance: Instance) -> Any:
    """The kernel of an instance as a function, which can be called once the driver has launched it."""
    return native.function(program.entry_name(instance))
