"""The standard library's `multiprocessing`, with tensors in shared memory.

    import weftgrad.multiprocessing as mp

Every name of the standard module is available here. A `cpu` tensor that is sent through a queue, a pipe or a process's
arguments is not copied: its storage moves into shared memory, and both processes see each other's writes. `sharing`
explains how, and how long the memory lives. `x.share_memory_()` moves the storage ahead of time; call it before several
threads use the tensor. Parameters stay parameters and `requires_grad` is preserved; gradients are not sent.

The default start method is `forkserver`, not `fork`, because OpenCL and CUDA do not work in a forked process: the first
launch there raises `ForkError`. `set_start_method` changes the method for this module only. `fork` is fine for
processes that run no kernel. A new process imports the main module, so a script must start processes under
`if __name__ == "__main__":`.
"""

from __future__ import annotations

import multiprocessing as _standard
from importlib import import_module as _import_module
from multiprocessing import *  # noqa: F403
from multiprocessing import context as _context
from multiprocessing import forkserver as _forkserver
from multiprocessing import process as _process
from types import ModuleType

from ..runtime.errors import ArgumentError as _ArgumentError
from .reductions import install as _install
from .spawning import (
    ProcessContext,
    ProcessException,
    ProcessExitedException,
    ProcessRaisedException,
    SpawnContext,
    spawn,
    start_processes,
)

__all__ = [
    *_standard.__all__,
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "get_all_sharing_strategies", "get_sharing_strategy", "set_sharing_strategy", "spawn", "start_processes",
]  # fmt: skip

_install()
_server = _forkserver._forkserver
# Unless a program has changed the default, let the fork server import weftgrad once for all processes.
if getattr(_server, "_preload_modules", None) == ["__main__"]:
    _server.set_forkserver_preload(["__main__", "weftgrad.utils.data.worker"])
_STRATEGIES = {"file_descriptor", "file_system"}


class Process(_process.BaseProcess):  # type: ignore[no-redef]
    """A process that starts by the method set with this module's `set_start_method`.

    Args:
        group: Must be None.
        target: Function to call in the process.
        name: Name of the process.
        args: Positional arguments of `target`.
        kwargs: Keyword arguments of `target`.
        daemon: Whether the process is terminated when this one exits; None: if this one is a daemon.

    Example:
        >>> wg.multiprocessing.Process(target=print).exitcode is None
        True
    """

    _start_method = None

    @staticmethod
    def _Popen(process_obj: _process.BaseProcess) -> object:
        return _default.get_context().Process._Popen(process_obj)


class _Default(_context.DefaultContext):
    """The context of this module: `set_start_method` changes it, and not the standard library's."""

    Process = Process


_default = _Default(_standard.get_context("forkserver"))
# The standard module's functions are methods of its own context; these are the same methods of ours.
globals().update({name: getattr(_default, name) for name in _standard.__all__ if hasattr(_default, name)})


def get_sharing_strategy() -> str:
    """Return `file_descriptor`, the only sharing strategy.

    Returns:
        Text.

    Example:
        >>> wg.multiprocessing.get_sharing_strategy()
        'file_descriptor'
    """
    return "file_descriptor"


def get_all_sharing_strategies() -> set[str]:
    """Return the names that `set_sharing_strategy` accepts.

    Returns:
        Set of names.

    Example:
        >>> sorted(wg.multiprocessing.get_all_sharing_strategies())
        ['file_descriptor', 'file_system']
    """
    return set(_STRATEGIES)


def set_sharing_strategy(new_strategy: str) -> None:
    """Accept a strategy of PyTorch, and change nothing: memory is always shared by file descriptors, which cannot leak.

    Args:
        new_strategy: `file_descriptor` or `file_system`.

    Raises:
        ArgumentError: The strategy is unknown.

    Example:
        >>> wg.multiprocessing.set_sharing_strategy('file_system')
    """
    if new_strategy not in _STRATEGIES:
        raise _ArgumentError(f"set_sharing_strategy: {new_strategy!r} is not one of {sorted(_STRATEGIES)}")


def __getattr__(name: str) -> ModuleType:
    try:
        return _import_module(f"multiprocessing.{name}")  # pool, queues, connection, …
    except ModuleNotFoundError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
