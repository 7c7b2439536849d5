"""The C implementation of `dispatch` and of launches, if it was compiled at installation; else the same in Python.

`WEFTGRAD_NATIVE=0` disables it. The C code is in `csrc`.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .backends.arguments import PACK
from .backends.protocol import Step

if TYPE_CHECKING:
    from .records import OpRecord

_native: Any
try:
    from . import _native  # type: ignore[attr-defined,no-redef]
except ImportError:  # it was not compiled at installation
    _native = None

__all__ = [
    "bind", "call", "call_into", "call_kernel", "empty", "host_launcher", "kernel", "launcher", "limit_helpers",
    "operator", "present", "processor_features", "record_stacks", "route_through_python", "set_opencl_library",
]  # fmt: skip

_FUNCTIONS = ("clSetKernelArg", "clEnqueueNDRangeKernel")

present = _native is not None and os.environ.get("WEFTGRAD_NATIVE") != "0"


def bind(classes: Mapping[str, type], local: Any, node_numbers: Any, functions: Sequence[Callable[..., Any]]) -> None:
    """Tell the C code the classes whose slots it reads and writes, and the functions that handle all other calls.

    Args:
        classes: The classes by name.
        local: The thread-local object whose `state` is a thread's `State`.
        node_numbers: Iterator over the numbers of nodes.
        functions: `dispatch`'s Python versions of call, call_into and empty.

    Raises:
        ImportError: The C code was compiled for other classes.
    """
    try:
        _native.bind(classes, local, node_numbers, *functions)
    except (AttributeError, TypeError) as error:
        raise ImportError(
            f"{_native.__file__} was compiled from other sources than these ({error}): install weftgrad anew, or set "
            "WEFTGRAD_NATIVE=0"
        ) from error


def operator(record: OpRecord, method: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    """Return the C version of `method`, a binary operator of Tensor that calls `record`, or `method` itself."""
    return _native.Operator(record, method, reflected) if present else method


def set_opencl_library(path: str) -> None:
    """Let C launch with the OpenCL functions of the library at `path`, or of the libraries it is linked with."""
    if present:
        library = ctypes.CDLL(path)
        _native.set_opencl_functions(
            *(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS)
        )


def kernel(name: str) -> Any:
    """Return a kernel of `cpu` for C launchers; its `address` is set once it is compiled (csrc/call.c)."""
    return _native.Kernel(name)


# `dispatch`'s call, call_into and empty in C, once `bind` was called (csrc/dispatch.c, csrc/into.c).
call: Callable[..., Any] = getattr(_native, "call", None)  # type: ignore[assignment]
call_into: Callable[..., Any] = getattr(_native, "call_into", None)  # type: ignore[assignment]
empty: Callable[..., Any] = getattr(_native, "empty", None)  # type: ignore[assignment]

# Call a `kernel` with arguments that Python has packed (csrc/call.c). It is no Python function, so that no signal
# handler runs between the caller's note of the call and the call.
call_kernel: Callable[..., None] = getattr(_native, "call_kernel", None)  # type: ignore[assignment]


def record_stacks(function: Callable[[], str] | None) -> None:
    """Let C call `function` for the `trace` of each node that it creates from now on; None: no longer."""
    if present:
        _native.record_stacks(function)


def route_through_python(on: bool) -> None:
    """Let launches on `cpu` go through Python from now on, or not."""
    if present:
        _native.route_through_python(on)


def processor_features() -> tuple[str, ...]:
    """Return the processor's features by their names in /proc/cpuinfo; empty without C, and on other than x86."""
    return tuple(_native.processor_features()) if _native is not None else ()


def limit_helpers(helpers: int) -> None:
    """Limit the helper threads that share a kernel's work-items with the calling thread."""
    if present:
        _native.limit_helpers(helpers)


def launcher(kernel: Any, step: Step, run: Callable[..., None], counter: Any) -> Callable[..., None]:
    """Return a C launcher of `step` on an OpenCL device, or `run` if C cannot launch it.

    Args:
        kernel: pyopencl's kernel object.
        step: The launch.
        run: The Python launcher.
        counter: Counts the launches of the queue.
    """
    if not present:
        return run
    try:
        native_launcher = _native.Launcher(
            kernel, kernel.int_ptr, step.geometry, step.global_size, step.local_size, step.buffers, step.integers,
            step.scalars, PACK[step.instance.element], run, counter,
        )  # fmt: skip
    except ValueError:  # of very many arguments
        return run
    return native_launcher


def host_launcher(
    kernel: Any,
    step: Step,
    size: tuple[int, int, int],
    run: Callable[..., None],
    counter: Any,
    helpers: int,
    releases: bool,
) -> Callable[..., None]:
    """Return a C launcher of `step` on `cpu`, or `run` if C cannot launch it.

    Args:
        kernel: An object made by `kernel`.
        step: The launch.
        size: Number of work-items in each dimension.
        run: The Python launcher.
        counter: Counts the launches.
        helpers: Number of threads that share the work-items with the calling thread (csrc/team.c).
        releases: Release the GIL during the launch.
    """
    if not present:
        return run
    try:
        native_launcher = _native.HostLauncher(
            kernel, step.geometry, size, step.buffers, step.integers, step.scalars, PACK[step.instance.element], run,
            counter, helpers, step.work, releases,
        )  # fmt: skip
    except ValueError:  # of very many arguments
        return run
    return native_launcher
