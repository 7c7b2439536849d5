"""Every exception the package raises on purpose.

    WeftgradError                     Exception
    ├── DeviceError                   RuntimeError
    │   ├── DriverNotFound            ImportError        what to install is in the message
    │   ├── UnknownDevice             ValueError         a device string that names nothing here
    │   ├── OutOfMemoryError          MemoryError        requested, in_use, cached, limit, device
    │   ├── ForkError                                    a launch in a child made by os.fork()
    │   ├── LaunchError                                  the driver refused to run a kernel
    │   ├── CaptureError                                 not possible while a graph is captured
    │   ├── SharedMemoryError         OSError            memory for several processes could not be had
    │   └── CompileError                                 a kernel's text did not compile
    ├── ShapeError                    ValueError, RuntimeError
    │   └── AttentionShapeError       AssertionError     operands of multi-head attention that do not fit
    ├── DTypeError                    TypeError, RuntimeError
    │   └── UnsupportedDType          NotImplementedError    a dtype for which the op has no kernel
    ├── ArgumentError                 TypeError, ValueError, RuntimeError
    ├── IndexOutOfRange               IndexError, RuntimeError
    ├── IndexKindError                DTypeError, ArgumentError, IndexError      an index that is none
    ├── IndexShapeError               ShapeError, IndexError                     no indices, or nothing to choose from
    ├── DomainError                   ArgumentError                              a value that an op is not defined for
    ├── GradientError                 RuntimeError
    │   ├── VersionError                                 a saved tensor was written in place
    │   ├── FreedGraphError                              backward through a graph a second time
    │   └── AnomalyError                                 a gradient is not finite, in anomaly mode
    ├── ScalerError                   RuntimeError, ValueError, AssertionError    a GradScaler used out of turn
    ├── NotPicklable                  ArgumentError, pickle.PicklingError
    ├── NotSupported                  NotImplementedError
    ├── WorkerError                   RuntimeError       a process that was started for work ended before it was done
    │   └── WorkerTimeout             TimeoutError
    └── SpecError                     ValueError         an op's YAML is wrong

The right column is the builtin each one is as well, so that code written for PyTorch (which raises `RuntimeError` for
a shape) or for NumPy (which raises `ValueError`) catches what it expects. `except WeftgradError` catches all of them.
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
    "ForkError",
    "FreedGraphError",
    "GradientError",
    "IndexKindError",
    "IndexOutOfRange",
    "IndexShapeError",
    "LaunchError",
    "NotPicklable",
    "NotSupported",
    "OutOfMemoryError",
    "ScalerError",
    "ShapeError",
    "SharedMemoryError",
    "SpecError",
    "UnknownDevice",
    "UnsupportedDType",
    "VersionError",
    "WeftgradError",
    "WorkerError",
    "WorkerTimeout",
    "format_bytes",
]


def format_bytes(nbytes: int) -> str:
    """A size for people: `512 B`, `1.50 KiB`, `20.0 MiB`, `1.25 GiB`; three digits."""
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
    """The base of every error raised on purpose."""


class DeviceError(WeftgradError, RuntimeError):
    """Something between this process and a device went wrong."""


class DriverNotFound(DeviceError, ImportError):
    """No driver for the device; the message names the package that brings one."""


class UnknownDevice(DeviceError, ValueError):
    """A device string that cannot be read, or an index past the last device."""


class OutOfMemoryError(DeviceError, MemoryError):
    """The device's memory, or the limit set on it, does not hold one more allocation.

    All fields are bytes. requested: what was asked for. in_use: held by live tensors on the device. cached: held by its
    pools and free, in pieces that could not serve the request. limit: the pools' limit, `None` if only the driver's own
    applies. device: its name.
    """

    def __init__(self, requested: int, in_use: int, cached: int, limit: int | None, device: str) -> None:
        self.requested = requested
        self.in_use = in_use
        self.cached = cached
        self.limit = limit
        self.device = device
        super().__init__(requested, in_use, cached, limit, device)

    def __str__(self) -> str:
        at = f" on {self.device}" if self.device else ""
        if self.limit is None:
            bound = "no limit set: the driver refused"
        else:
            bound = f"limit {format_bytes(self.limit)}"
        message = (
            f"out of memory{at}: {format_bytes(self.requested)} requested, {format_bytes(self.in_use)} in use, "
            f"{format_bytes(self.cached)} cached, {bound}. "
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
    """Something that a graph cannot hold was asked for while one is captured: waiting, or reading on the host."""


class SharedMemoryError(DeviceError, OSError):
    """Memory that several processes see could not be had; the message says how much, and what the system said.

    errno: the system's number, 0 where the error was raised in another process.
    """

    def __init__(self, message: str, number: int = 0) -> None:
        super().__init__(message, number)
        self.errno = number
        self.strerror = message

    def __str__(self) -> str:
        return str(self.args[0])


class CompileError(DeviceError):
    """A kernel's text did not compile; the message carries the compiler's log."""


class ShapeError(WeftgradError, ValueError, RuntimeError):
    """Shapes that do not fit together, or a shape an op does not take."""


class AttentionShapeError(ShapeError, AssertionError):
    """Operands or masks of multi-head attention that do not fit together, which PyTorch asserts."""


class DTypeError(WeftgradError, TypeError, RuntimeError):
    """A dtype an op does not take, or dtypes that do not promote."""


class UnsupportedDType(DTypeError, NotImplementedError):
    """A dtype that no kernel of the op is for: PyTorch's `"avg_pool2d" not implemented for 'Bool'`."""


class ArgumentError(WeftgradError, TypeError, ValueError, RuntimeError):
    """An argument of the wrong type or value. PyTorch raises one of the three builtins or another, by function."""


class DomainError(ArgumentError):
    """A value of the right type that the op is not defined for."""


class IndexOutOfRange(WeftgradError, IndexError, RuntimeError):
    """A dimension or an index past the end. PyTorch raises one of the two builtins or the other, by function."""


class IndexKindError(DTypeError, ArgumentError, IndexError):
    """What stands in brackets is no index: of another type, or of a dtype that holds no positions."""


class IndexShapeError(ShapeError, IndexError):
    """Index tensors whose shapes do not broadcast, or the extreme of a dimension without elements."""


class GradientError(WeftgradError, RuntimeError):
    """Differentiation that cannot be done as asked."""


class VersionError(GradientError):
    """A tensor saved for backward was written in place since; the message names the op and both versions."""


class FreedGraphError(GradientError):
    """Backward through a graph whose saved tensors are gone: pass `retain_graph=True` the first time."""


class AnomalyError(GradientError):
    """Anomaly mode found a gradient that is not finite; the message names the forward op."""


class ScalerError(WeftgradError, RuntimeError, ValueError, AssertionError):
    """A `GradScaler` called out of turn, or with what it does not take. PyTorch raises one of the three, by check."""


class NotSupported(WeftgradError, NotImplementedError):
    """A known feature that this package, or this backend, does not have."""


class NotPicklable(ArgumentError, pickle.PicklingError):
    """What another process is to have cannot be sent there: an open file, a lambda, a class inside a function."""


class WorkerError(WeftgradError, RuntimeError):
    """A process that was started for work was killed, or ended before it was done."""


class WorkerTimeout(WorkerError, TimeoutError):
    """A worker did not answer in time."""


class SpecError(WeftgradError, ValueError):
    """An op's specification is wrong; the message says where."""
