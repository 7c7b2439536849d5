"""How many threads a kernel on `cpu` uses, under PyTorch's names.

The number holds where kernels are called as functions (PoCL 3.0 and 3.1, with the extension in C). An OpenCL driver
that runs kernels by workers of its own has as many as it was started with.
"""

from __future__ import annotations

from .runtime import native
from .runtime.backends.processor import cores
from .runtime.errors import ArgumentError

__all__ = ["get_num_interop_threads", "get_num_threads", "set_num_interop_threads", "set_num_threads"]

_set: dict[str, int] = {}


def _positive(function: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{function}: takes a positive int, not {number!r}")
    return number


def set_num_threads(number: int) -> None:
    """Have at most `number` threads compute one kernel on `cpu`, the calling one among them, from now on.

    Raises `ArgumentError` for what is no positive int. More than there are cores are not used.
    """
    _set["within"] = _positive("set_num_threads", number)
    native.limit(min(number - 1, 0xFFFF))


def get_num_threads() -> int:
    """How many threads compute one kernel on `cpu`: what was set, or one a core that the process may use."""
    return _set.get("within", cores())


def set_num_interop_threads(number: int) -> None:
    """PyTorch's number of threads that run ops beside each other: accepted, and told; ops run one after another.

    Raises `ArgumentError` for what is no positive int.
    """
    _set["across"] = _positive("set_num_interop_threads", number)


def get_num_interop_threads() -> int:
    """What was set, or 1."""
    return _set.get("across", 1)
