"""The path of every op in C, where it was compiled when the package was installed; else that in Python, which it twins.

`WEFTGRAD_NATIVE=0` leaves the C aside.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from .backends.arguments import PACK, Base
from .backends.protocol import Step

_native: Any
try:
    from . import _native  # type: ignore[attr-defined,no-redef]
except ImportError:  # no compiler was there
    _native = None

__all__ = [
    "bind", "call_kernel", "detour", "host_launcher", "kernel", "launcher", "limit", "operator", "present",
    "processor_features", "use",
]  # fmt: skip

_FUNCTIONS = ("clSetKernelArg", "clEnqueueNDRangeKernel")

present = _native is not None and os.environ.get("WEFTGRAD_NATIVE") != "0"


def bind(plan: type, *functions: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """`dispatch`'s call, call_into and empty as C does them, or themselves. Storages then go back to their pools by C,
    too."""
    if not present:
        return functions
    from .autograd import node
    from .backends.arguments import Scratch
    from .backends.host import HostSegment
    from .backends.queues import Counter, QueueStream
    from .context import State, _local
    from .device import Device, Meta
    from .pool import Block, Pool, Segment
    from .storage import Storage
    from .tensor import Extra, Tensor

    types: tuple[type, ...] = (
        Base, Block, Counter, Device, Extra, HostSegment, Meta, Pool, QueueStream, Scratch, Segment, State, Storage,
        Tensor,
        node.Node, node.Recipe, node.Saved, plan,
    )  # fmt: skip
    try:
        _native.bind({each.__name__: each for each in types}, _local, node._numbers, *functions)
    except (AttributeError, TypeError) as error:
        raise ImportError(
            f"{_native.__file__} was compiled from other sources than these ({error}): install weftgrad anew, or set "
            "WEFTGRAD_NATIVE=0"
        ) from error
    return _native.call, _native.call_into, _native.empty


def operator(record: Any, method: Callable[..., Any], reflected: bool) -> Callable[..., Any]:
    """`method`, a binary operator of Tensor that is a call of `record`, as C does it; itself where it does not."""
    return _native.Operator(record, method, reflected) if present else method


def use(path: str) -> None:
    """Launch by OpenCL's functions as they are found in the library at `path`, or in those that it was linked with."""
    if present:
        library = ctypes.CDLL(path)
        _native.use(*(ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in _FUNCTIONS))


def kernel(name: str) -> Any:
    """A kernel of `cpu` as launchers in C know it; its `address` is set once it is compiled (csrc/call.c)."""
    return _native.Kernel(name)


# Call a `kernel`, on arguments that Python has laid out (csrc/call.c). No Python function stands in between, so that no
# signal is handled between what a caller notes before the call and the call.
call_kernel: Callable[..., None] = getattr(_native, "call_kernel", None)  # type: ignore[assignment]


def detour(on: bool) -> None:
    """Have launches on `cpu` go by Python from now on, or not."""
    if present:
        _native.detour(on)


def processor_features() -> tuple[str, ...]:
    """The processor's features by their names in /proc/cpuinfo; empty without the C path and on others than x86."""
    return tuple(_native.processor_features()) if _native is not None else ()


def limit(helpers: int) -> None:
    """Have kernels that are called shared with at most that many threads from now on."""
    if present:
        _native.limit(helpers)


def launcher(kernel: Any, step: Step, run: Callable[..., None], counter: Any) -> Callable[..., None]:
    """`run`, a launch of `step` on an OpenCL device, as C does it; `run` itself where C does not.

    kernel: pyopencl's kernel object.
    """
    if not present:
        return run
    try:
        made = _native.Launcher(
            kernel, kernel.int_ptr, step.geometry, step.global_size, step.local_size, step.buffers, step.integers,
            step.scalars, PACK[step.instance.element], run, counter,
        )  # fmt: skip
    except ValueError:  # of very many arguments
        return run
    return made  # type: ignore[no-any-return]


def host_launcher(
    kernel: Any,
    step: Step,
    size: tuple[int, int, int],
    run: Callable[..., None],
    counter: Any,
    helpers: int,
    releases: bool,
) -> Callable[..., None]:
    """`run`, a launch of `step` on `cpu`, as C does it; `run` itself where C does not.

    kernel: as `kernel` makes it. size: work-items. helpers: how many threads share them with the calling one
    (csrc/team.c). releases: other Python threads go on meanwhile.
    """
    if not present:
        return run
    try:
        made = _native.HostLauncher(
            kernel, step.geometry, size, step.buffers, step.integers, step.scalars, PACK[step.instance.element], run,
            counter, helpers, step.work, releases,
        )  # fmt: skip
    except ValueError:  # of very many arguments
        return run
    return made  # type: ignore[no-any-return]
