"""The exceptions that the package raises.

    WeftgradError                     Exception
    ├── DeviceError                   RuntimeError
    │   ├── DriverNotFound            ImportError        the message says what to install
    │   ├── UnknownDevice             ValueError         a device string that names no device
    │   ├── OutOfMemoryError          MemoryError        requested, in_use, cached, limit, device
    │   ├── ForkError                                    a launch in a child made by os.fork()
    │   ├── LaunchError                                  the driver refused to run a kernel
    │   ├── CaptureError                                 an operation that a captured graph cannot contain
    │   ├── SharedMemoryError         OSError            shared memory could not be allocated
    │   └── CompileError                                 a kernel did not compile
    ├── ExchangeError                 BufferError, RuntimeError      memory that another library cannot share
    ├── ShapeError                    ValueError, RuntimeError
    │   ├── AttentionShapeError       AssertionError     operands of multi-head attention that do not fit
    │   └── IndexShapeError           IndexError         an index tensor of a wrong shape, or an empty dimension
    ├── DTypeError                    TypeError, RuntimeError
    │   ├── UnsupportedDType          NotImplementedError    a dtype for which the op has no kernel
    │   └── IndexKindError            ArgumentError, IndexError      a type that cannot index
    ├── ArgumentError                 TypeError, ValueError, RuntimeError
    │   ├── DomainError                                  a value for which an op is not defined
    │   ├── NotPicklable              pickle.PicklingError
    │   └── UnhandledFunction                            every `__torch_function__` returned NotImplemented
    ├── LinAlgError                   RuntimeError       a matrix that is singular, or not positive-definite
    ├── IndexOutOfRange               IndexError, RuntimeError
    ├── GradientError                 RuntimeError
    │   ├── VersionError                                 a saved tensor was written in place
    │   ├── FreedGraphError                              backward through a graph a second time
    │   └── AnomalyError                                 a gradient contains NaN, in anomaly mode
    ├── ScalerError                   RuntimeError, ValueError, AssertionError    a GradScaler used in the wrong order
    ├── NotSupported                  NotImplementedError
    ├── WorkerError                   RuntimeError       a worker process ended before its work was done
    │   └── WorkerTimeout             TimeoutError
    └── SpecError                     ValueError         an op's YAML is wrong

The second column lists the other base classes: builtin exceptions, and `ArgumentError` for `IndexKindError`. So code
written for PyTorch (which raises `RuntimeError` for a shape) or for NumPy (which raises `ValueError`) catches what it
expects. `except WeftgradError` catches all of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable

__all__ = [
    "AnomalyError",
    "ArgumentError",
    "AttentionShapeError",
    "CaptureError",
    "CompileError",
    "DTypeError",
    "DeviceError",
    "DomainError",
    "DriverNotFound",
    "ExchangeError",
    "ForkError",
    "FreedGraphError",
    "GradientError",
    "IndexKindError",
    "IndexOutOfRange",
    "IndexShapeError",
    "LaunchError",
    "LinAlgError",
    "NotPicklable",
    "NotSupported",
    "OutOfMemoryError",
    "ScalerError",
    "ShapeError",
    "SharedMemoryError",
    "SpecError",
    "UnhandledFunction",
    "UnknownDevice",
    "UnsupportedDType",
    "VersionError",
    "WeftgradError",
    "WorkerError",
    "WorkerTimeout",
    "format_bytes",
]


def format_bytes(nbytes: int) -> str:
    """Format a size with three significant digits from 1 KiB on: `512 B`, `1.50 KiB`, `20.0 MiB`, `1.25 GiB`."""
    size = float(nbytes)
    if abs(size) < 1024:
        return f"{nbytes} B"
    for unit in ("KiB", "MiB", "GiB", "TiB"):
        size /= 1024
        if abs(size) < 1000 or unit == "TiB":
            break
    digits = 2 if abs(size) < 9.995 else 1 if abs(size) < 99.95 else 0
    return f"{size:.{digits}f} {unit}"


class WeftgradError(Exception):
    """The base class of all errors of the package."""


class DeviceError(WeftgradError, RuntimeError):
    """Something between this process and a device went wrong."""


class DriverNotFound(DeviceError, ImportError):
    """There is no driver for the device; the message names the package to install."""


class UnknownDevice(DeviceError, ValueError):
    """A device string that cannot be parsed, or an index past the last device."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device's memory, or the limit set on it, is exhausted. Each argument is also an attribute.

    Args:
        requested: Bytes of the failed allocation.
        in_use: Bytes of live tensors on the device.
        cached: Bytes that the device's pools hold in free pieces, which could not serve the request.
        limit: The pools' limit in bytes; None if only the driver's own limit applies.
        device: Name of the device.

    Example:
        >>> wg.OutOfMemoryError(4096, 1024, 0, 2048, 'cpu').requested
        4096
    """

    def __init__(self, requested: int, in_use: int, cached: int, limit: int | None, device: str) -> None:
        self.requested = requested
        self.in_use = in_use
        self.cached = cached
        self.limit = limit
        self.device = device
        super().__init__(requested, in_use, cached, limit, device)

    def __str__(self) -> str:
        location = f" on {self.device}" if self.device else ""
        if self.limit is None:
            limit_text = "no limit set: the driver refused"
        else:
            limit_text = f"limit {format_bytes(self.limit)}"
        message = (
            f"out of memory{location}: {format_bytes(self.requested)} requested, {format_bytes(self.in_use)} in use, "
            f"{format_bytes(self.cached)} cached, {limit_text}. "
        )
        if self.limit is not None and self.requested > self.limit:
            return message + "The request alone is over the limit: raise it (set_memory_limit) or use a smaller tensor."
        remedy = "Drop references to tensors no longer needed, use a smaller batch, or run without gradients (no_grad)"
        return message + remedy + ("." if self.limit is None else ", or raise the limit (set_memory_limit).")

    def __reduce__(self) -> tuple[Callable[..., OutOfMemoryError], tuple[int, int, int, int | None, str]]:
        return type(self), (self.requested, self.in_use, self.cached, self.limit, self.device)


class ForkError(DeviceError):
    """A launch in a forked child: drivers do not survive a fork, and would hang. Start workers with `spawn`."""


class LaunchError(DeviceError):
    """The driver refused to run a kernel."""


class CaptureError(DeviceError):
    """An operation that a graph cannot contain, such as waiting or reading on the host, during a capture."""


class SharedMemoryError(DeviceError, OSError):
    """Memory shared by processes could not be allocated or mapped. The message has the size and the system's reason.

    Args:
        message: The whole message, also in the attribute `strerror`.
        number: The system's error number, also in the attribute `errno`; 0 if it is not known.
    """

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message, number)
        self.errno = number
        self.strerror = message

    def __str__(self) -> str:
        return str(self.args[0])


class CompileError(DeviceError):
    """A kernel did not compile; the message contains the compiler's log."""


class ExchangeError(WeftgradError, BufferError, RuntimeError):
    """Memory cannot be handed to another library, or taken from it, as the arguments demand."""


class ShapeError(WeftgradError, ValueError, RuntimeError):
    """Shapes that do not fit together, or a shape that an op does not accept."""


class AttentionShapeError(ShapeError, AssertionError):
    """Operands or masks of multi-head attention that do not fit together. PyTorch raises `AssertionError` for them."""


class DTypeError(WeftgradError, TypeError, RuntimeError):
    """A dtype that an op does not accept, or dtypes that do not promote."""


class UnsupportedDType(DTypeError, NotImplementedError):
    """A dtype for which the op has no kernel. PyTorch's message is `"avg_pool2d" not implemented for 'Bool'`."""


class ArgumentError(WeftgradError, TypeError, ValueError, RuntimeError):
    """An argument of the wrong type or value. PyTorch raises one of the three builtins, depending on the function."""


class DomainError(ArgumentError):
    """A value of the right type for which the op is not defined."""


class UnhandledFunction(ArgumentError):
    """A call that `__torch_function__` of no argument handles: all returned NotImplemented."""


class LinAlgError(WeftgradError, RuntimeError):
    """A matrix that cannot be factored or inverted: it is singular, or not positive-definite."""


class IndexOutOfRange(WeftgradError, IndexError, RuntimeError):
    """A dimension or an index out of range, or too many indices. PyTorch raises either builtin, by the function."""


class IndexKindError(DTypeError, ArgumentError, IndexError):
    """An index in brackets has a type or a dtype that cannot index."""


class IndexShapeError(ShapeError, IndexError):
    """Index tensors of a wrong shape, or a reduction such as `amax` over a dimension of size 0."""


class GradientError(WeftgradError, RuntimeError):
    """A gradient that cannot be computed."""


class VersionError(GradientError):
    """A tensor saved for backward was written in place afterwards; the message names the op and both versions."""


class FreedGraphError(GradientError):
    """Backward through a graph whose saved tensors were freed: pass `retain_graph=True` to the first backward."""


class AnomalyError(GradientError):
    """Anomaly mode found NaN in a gradient; the message names the forward op."""


class ScalerError(WeftgradError, RuntimeError, ValueError, AssertionError):
    """A `GradScaler` method called in the wrong order, or with a wrong argument. PyTorch raises one of the three."""


class NotSupported(WeftgradError, NotImplementedError):
    """A feature that this package, or this backend, does not support."""


class NotPicklable(ArgumentError, pickle.PicklingError):
    """An object cannot be sent to another process: an open file, a lambda, a class inside a function."""


class WorkerError(WeftgradError, RuntimeError):
    """A worker process was killed, or ended before its work was done."""


class WorkerTimeout(WorkerError, TimeoutError):
    """A worker did not answer in time."""


class SpecError(WeftgradError, ValueError):
    """An op's specification is wrong; the message says where.

    `codegen` cannot import this module, and raises a `SpecError` of its own. `wg.ops.load` converts it to this class.
    """
