"""The C implementation of `dispatch` and of launches, which is optional: Python code does the same, more slowly.

It is compiled at installation from `csrc`. If it is missing, or if `WEFTGRAD_NATIVE=0`, then `present` is False,
`launcher`, `host_template` and `operator` return their Python argument, and switches do nothing.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from .backends.arguments import PACK, launch_in_order
from .backends.protocol import Step

if TYPE_CHECKING:
    from ._native import Program
    from .autograd.backward_state import BackwardState
    from .autograd.node import Node
    from .backends.protocol import Driver
    from .backends.queues import Counter
    from .call_types import Call, CallInto, Empty, Launcher, Statics
    from .device import Meta
    from .plans import Plan
    from .records import OpRecord

try:
    from . import _native
except ImportError:  # it was not compiled at installation
    _is_compiled = False
else:
    _is_compiled = True

__all__ = [
    "advance", "bind", "bind_families", "call", "call_into", "call_kernel", "empty", "fill_plan", "host_template",
    "host_templates_of", "kernel", "launcher", "limit_helpers", "operator", "present", "processor_features", "program",
    "record_stacks", "route_through_python", "sequence", "set_mpi_library", "set_opencl_library", "set_reaching_nodes",
]  # fmt: skip

_OPENCL_FUNCTIONS = ("clSetKernelArg", "clEnqueueNDRangeKernel")  # in the order of `_native.set_opencl_functions`

present = _is_compiled and os.environ.get("WEFTGRAD_NATIVE") != "0"


class _OpenCLKernel(Protocol):
    """pyopencl's kernel object: `int_ptr` is the address of its `cl_kernel`."""

    @property
    def int_ptr(self) -> int: ...


def bind(
    classes: Mapping[str, type], local: object, node_numbers: Iterator[int], call: object, call_into: object,
    empty: object, overriding: set[type],
) -> None:  # fmt: skip
    """Give the C code the classes whose slots it reads and writes, and the Python functions for calls that it leaves.

    Args:
        classes: The classes by name.
        local: The thread-local object whose `state` is a thread's `State`.
        node_numbers: Iterator that yields the next autograd node's number.
        call: The Python version of `dispatch.call`.
        call_into: The Python version of `dispatch.call_into`.
        empty: The Python version of `dispatch.empty`.
        overriding: The classes of tensors that take over calls (`overriding.classes`).

    Raises:
        ImportError: The C code was compiled for other classes.
    """
    try:
        _native.bind(classes, local, node_numbers, call, call_into, empty, overriding)
    except (AttributeError, TypeError) as error:
        raise ImportError(
            f"{_native.__file__} was compiled from other sources than these ({error}): install weftgrad anew, or set "
            "WEFTGRAD_NATIVE=0"
        ) from error


def operator(record: OpRecord, method: Callable[..., object], reflected: bool) -> Callable[..., object]:
    """Return the C version of `method`, a binary operator of Tensor that calls `record`, or `method` itself."""
    return _native.Operator(record, method, reflected) if present else method


def set_opencl_library(path: str) -> None:
    """Give the C launcher the OpenCL functions of the library at `path`, which may be in a library that it links."""
    if present:
        library = ctypes.CDLL(path)
        _native.set_opencl_functions(
            *(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _OPENCL_FUNCTIONS)
        )


def set_mpi_library(path: str) -> Callable[[bytes, int, int, int, int, int], int] | None:
    """Give the C code the MPI functions of the library at `path`, which may be in a library that it links.

    Returns:
        The function that exchanges the messages of small process groups (csrc/messages.c); None without C.
    """
    exchange: Callable[[bytes, int, int, int, int, int], int] | None = None
    if present and (exchange := _function("exchange_messages")) is not None:
        library = ctypes.CDLL(path)
        start, test = (ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in ("MPI_Start", "MPI_Test"))
        _native.set_mpi_functions(start or 0, test or 0)
    return exchange


def kernel(name: str) -> _native.Kernel:
    """Return a `_native.Kernel` of `cpu` for C launchers; its `address` is set once it is compiled (csrc/call.c)."""
    return _native.Kernel(name)


def _function(name: str) -> Any:
    """Return a function of the C code; None without it, or if older sources were compiled (`bind` raises then)."""
    return getattr(_native, name, None) if _is_compiled else None


# `dispatch`'s call, call_into and empty in C (csrc/dispatch.c, csrc/into.c). They need `bind` first; None without C.
call: Call = _function("call")
call_into: CallInto = _function("call_into")
empty: Empty = _function("empty")

# Take the next node of a run of backward, and do what its `step` does (csrc/backward.c).
advance: Callable[[BackwardState], None] = _function("advance")
set_reaching_nodes: Callable[[BackwardState, list[Node]], None] = _function("set_reaching_nodes")

# Call a `kernel` with arguments that Python has packed (csrc/call.c). The caller notes a call before it begins. As this
# is no Python function, no signal handler can run between the note and the call.
call_kernel: Callable[..., None] = _function("call_kernel")


def record_stacks(function: Callable[[], str] | None) -> None:
    """Let C call `function` for the `trace` of each node that it creates from now on; None: no longer."""
    if present:
        _native.record_stacks(function)


def route_through_python(on: bool) -> None:
    """Switch launches on `cpu` to their Python launcher, or back to C."""
    if present:
        _native.route_through_python(on)


def processor_features() -> tuple[str, ...]:
    """Return the processor's features by their names in /proc/cpuinfo; empty without C, and on other than x86.

    `WEFTGRAD_NATIVE=0` does not matter here: the answer is the same fact however calls run.
    """
    return tuple(_native.processor_features()) if _is_compiled else ()


def limit_helpers(helpers: int) -> None:
    """Limit the helper threads that share a kernel's work-items with the calling thread."""
    if present:
        _native.limit_helpers(helpers)


def launcher(kernel: _OpenCLKernel, step: Step, run: Launcher, counter: Counter) -> Launcher:
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
    except ValueError:  # the step has more arguments than C has room for
        return run
    return native_launcher


def host_template(
    kernel: object,
    step: Step,
    make_fallback: Callable[[bytes, tuple[int, int, int], int], Launcher],
    counter: Counter,
    helpers: int,
    max_locked_work: int,
) -> Callable[[bytes, tuple[int, int, int], int], Launcher]:
    """Return a function `launcher(geometry, size, work)` of steps on `cpu` that differ in these only.

    Args:
        kernel: An object made by `kernel`.
        step: One of the steps.
        make_fallback: The same function for Python launchers; returned if C cannot launch the step.
        counter: Counts the launches.
        helpers: Number of threads that share the work-items with the calling thread (csrc/team.c).
        max_locked_work: With more work, the GIL is released while the kernel runs.
    """
    if not present:
        return make_fallback
    try:
        native_template = _native.HostTemplate(
            kernel, step.buffers, step.integers, step.scalars, PACK[step.instance.element], make_fallback, counter,
            helpers, max_locked_work,
        )  # fmt: skip
    except ValueError:  # the step has more arguments than C has room for
        return make_fallback
    return native_template


def sequence(driver: Driver, runs: Sequence[Launcher], scratch: Sequence[int]) -> Launcher:
    """Return the launcher of several steps of a device whose launches C knows, as `arguments.launch_in_order` does."""
    if not present or (len(runs) == 1 and not scratch):
        return launch_in_order(driver, runs, scratch)
    return _native.Sequence(driver.device, driver, tuple(runs), tuple(scratch))


def host_templates_of(run: Launcher | None) -> list[_native.HostTemplate]:
    """Return the template of each C launcher on `cpu` in the launcher of a plan; none if there are other launchers."""
    if not present:
        return []
    launchers = run.launchers if isinstance(run, _native.Sequence) else (run,)
    templates = [launcher.template for launcher in launchers if isinstance(launcher, _native.HostLauncher)]
    return templates if len(templates) == len(launchers) else []


def program(
    layouts: int, sizes: int, constants: tuple[int | float, ...], loads: bytes, instructions: bytes, parts: bytes,
    lists: bytes, objects: tuple[object, ...], classes: tuple[type, ...], driver: Driver,
) -> Program:  # fmt: skip
    """Return the program of a plan family (`plan_programs`, csrc/program.c).

    Raises:
        ValueError: The program is too long.
    """
    return _native.Program(layouts, sizes, constants, loads, instructions, parts, lists, objects, classes, driver)


def fill_plan(
    record: OpRecord,
    operands: list[Meta | type | None],
    statics: Statics,
    grad_mask: int,
    into: tuple[Meta, ...] | None,
) -> Plan | None:
    """Return the plan of a call from a plan family; None without one, and without C (csrc/families.c)."""
    return _native.fill_plan(record, operands, statics, grad_mask, into) if present else None


def bind_families(*arguments: object) -> None:
    """Give C what it needs to plan calls by plan families: the arguments of csrc/families.c's function."""
    if present:
        _native.bind_families(*arguments)
