"""The number of threads that a kernel on `cpu` uses, under PyTorch's names.

The number takes effect if kernels are called directly as C functions, which needs a clang and the C extension. An
OpenCL driver that runs kernels in worker threads of its own keeps the number that it was started with.
"""

from __future__ import annotations

from ..runtime import native
from ..runtime.backends.processor import cores
from ..runtime.errors import ArgumentError

__all__ = ["get_num_interop_threads", "get_num_threads", "set_num_interop_threads", "set_num_threads"]

_settings: dict[str, int] = {}  # numbers that the program has set: "intra_op" and "inter_op"


def _positive(function: str, number: int) -> int:
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise ArgumentError(f"{function}: takes a positive int, not {number!r}")
    return number


def set_num_threads(number: int) -> None:
    """Let at most `number` threads, including the calling one, compute a kernel on `cpu`.

    No more threads than cores are used.

    Args:
        number: At least 1.

    Raises:
        ArgumentError: Unless `number` is a positive int.

    Example:
        >>> number = wg.get_num_threads()
        >>> wg.set_num_threads(1)
        >>> wg.get_num_threads()
        1
        >>> wg.set_num_threads(number)
    """
    _settings["intra_op"] = _positive("set_num_threads", number)
    native.limit_helpers(min(number - 1, 0xFFFF))


def get_num_threads() -> int:
    """Return the number of threads for a kernel on `cpu`: the value set, or the number of cores available.

    Returns:
        Number of threads.

    Example:
        >>> number = wg.get_num_threads()
        >>> wg.set_num_threads(1)
        >>> wg.get_num_threads()
        1
        >>> wg.set_num_threads(number)
    """
    return _settings.get("intra_op", cores())


def set_num_interop_threads(number: int) -> None:
    """Store PyTorch's number of inter-op threads. It has no effect: ops run one after another.

    Args:
        number: At least 1.

    Raises:
        ArgumentError: Unless `number` is a positive int.

    Example:
        >>> wg.set_num_interop_threads(1)
    """
    _settings["inter_op"] = _positive("set_num_interop_threads", number)


def get_num_interop_threads() -> int:
    """Return the value set with `set_num_interop_threads`, or 1.

    Returns:
        Python int.

    Example:
        >>> wg.get_num_interop_threads()
        1
    """
    return _settings.get("inter_op", 1)
