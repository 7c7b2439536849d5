"""What the launcher needs of pyopencl beyond its documented interface."""

import struct

import numpy as np
import pyopencl as cl

import weftgrad as wg


def test_a_struct_is_set_as_bytes() -> None:
    """`Kernel._set_arg_buf(i, bytes)` sets a by-value struct; the public way costs a hundred times as much."""
    driver = wg.device("opencl:0").driver
    source = """
    typedef struct { long n; float scale; } Given;
    kernel void fill(global float *out, const Given given) { out[get_global_id(0)] = given.n * given.scale; }
    """
    queue = driver.default_stream.queue
    kernel = cl.Kernel(cl.Program(driver.context, source).build(), "fill")
    out = cl.Buffer(driver.context, cl.mem_flags.READ_WRITE, 16)
    assert hasattr(kernel, "_set_arg_buf"), "pyopencl has no Kernel._set_arg_buf any more: see backends/arguments.py"
    kernel.set_arg(0, out)
    kernel._set_arg_buf(1, struct.pack("@qf0q", 3, 0.5))
    cl.enqueue_nd_range_kernel(queue, kernel, (4,), None)
    found = np.empty(4, np.float32)
    cl.enqueue_copy(queue, found, out)
    assert found.tolist() == [1.5] * 4


def test_a_queue_returns_events_that_know_their_state() -> None:
    """The `cpu` stream asks an event whether it is complete instead of waiting for it."""
    driver = wg.device("opencl:0").driver
    mark = cl.enqueue_marker(driver.default_stream.queue)
    driver.default_stream.synchronize()
    assert mark.command_execution_status == 0


def test_errors_have_one_base() -> None:
    assert issubclass(cl.LogicError, cl.Error)
    assert issubclass(cl.RuntimeError, cl.Error)
