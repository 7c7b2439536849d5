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

__all__ = ["bind", "function", "launcher", "limit", "operator", "present", "use"]

_FUNCTIONS = (
    "clSetKernelArg", "clEnqueueNDRangeKernel", "clGetEventInfo", "clWaitForEvents", "clReleaseEvent",
    "clGetMemObjectInfo",
)  # fmt: skip

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


def function(kernel: str, address: int = 0) -> Any:
    """A kernel, by its name in the program, as a function to call (csrc/direct.c). address: where that is, if known."""
    return _native.Function(kernel, address)


def limit(helpers: int) -> None:
    """Have kernels that are called shared with at most that many threads from now on."""
    if present:
        _native.limit(helpers)


def launcher(
    kernel: Any,
    step: Step,
    run: Callable[..., None],
    counter: Any,
    where: int,
    function: Any = None,
    helpers: int = 0,
    divides: bool = False,
    releases: bool = False,
) -> Callable[..., None]:
    """`run`, a launch of `step` on a queue of the kind `where` (see `backends.queues`), as C does it; `run` itself
    where it does not.

    function: the kernel as `function` makes it, by which it is launched from the second time on. helpers: how many
    threads then share its work-groups with the calling one (csrc/team.c). divides: its work-groups do not ask how many
    there are. releases: other Python threads go on meanwhile.
    """
    if not present:
        return run
    try:
        made = _native.Launcher(
            kernel, kernel.int_ptr, step.geometry, step.global_size, step.local_size, step.buffers, step.integers,
            step.scalars, PACK[step.instance.element], run, counter, where, function, helpers,
            step.work, divides, releases,
        )  # fmt: skip
    except ValueError:  # of very many arguments
        return run
    return made  # type: ignore[no-any-return]
