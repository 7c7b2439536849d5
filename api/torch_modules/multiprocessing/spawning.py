"""`spawn`: run one function in several new processes, and raise their errors in this one."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import connection, get_context, process
from multiprocessing.process import BaseProcess
from time import monotonic
from typing import TYPE_CHECKING

from ..runtime.errors import WorkerError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.context import BaseContext

__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext",
    "process_class", "spawn", "start_processes",
]  # fmt: skip

_MAX_TRACEBACK_BYTES = 32 * 1024  # in UTF-8. A pipe buffers 64 KiB: sending must not wait for `join` to read


class ProcessException(WorkerError):
    """A process failed. `error_index` is its index, `error_pid` its process id.

    Args:
        msg: Message.
        error_index: Index of the process.
        error_pid: Its process id.

    Example:
        >>> from weftgrad.multiprocessing import ProcessException
        >>> ProcessException('process 1 failed', 1, 4711).error_index
        1
    """

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process raised an exception; the message contains its traceback.

    Args:
        msg: Message.
        error_index: Index of the process.
        error_pid: Its process id.

    Example:
        >>> from weftgrad.multiprocessing import ProcessRaisedException
        >>> str(ProcessRaisedException('process 0 raised an error', 0, 4711))
        'process 0 raised an error'
    """


class ProcessExitedException(ProcessException):
    """A process ended by a signal (`signal_name`) or with an `exit_code` other than 0.

    Args:
        msg: Message.
        error_index: Index of the process.
        error_pid: Its process id.
        exit_code: Exit code; negative for a signal.
        signal_name: Name of the signal, such as `SIGKILL`, or None.

    Example:
        >>> from weftgrad.multiprocessing import ProcessExitedException
        >>> ProcessExitedException('process 0 was killed', 0, 4711, -9, 'SIGKILL').signal_name
        'SIGKILL'
    """

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., object], index: int, args: tuple[object, ...], sender: Connection[str, str]) -> None:
    """Run `fn(index, *args)` in a new process, and send the traceback of an exception through `sender`.

    A thread ends this process if its parent dies, daemon or not.
    """
    parent = process.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def terminate_with_parent() -> None:
            connection.wait([sentinel])
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=terminate_with_parent, name="weftgrad-parent", daemon=True).start()
    try:
        fn(index, *args)
    except KeyboardInterrupt:  # Ctrl-C reaches the parent too, which reports it
        sys.exit(130)
    except Exception:
        encoded = traceback.format_exc().encode(errors="backslashreplace")[-_MAX_TRACEBACK_BYTES:]
        sender.send(encoded.decode(errors="ignore"))
        sys.exit(1)


class ProcessContext:
    """Processes that run one function.

    `join` waits until one ends, and raises the error of one that failed; repeat it until it returns True.

    Args:
        processes: The processes, started.
        errors: One connection per process, which delivers the traceback of its exception.

    Example:
        >>> from weftgrad.multiprocessing import ProcessContext
        >>> ProcessContext([], []).join()
        True
    """

    def __init__(self, processes: list[BaseProcess], errors: list[Connection[str, str]]):
        self.processes = processes
        self._errors = errors
        self.sentinels = {child.sentinel: i for i, child in enumerate(processes)}

    def pids(self) -> list[int]:
        """Return the process ids.

        Returns:
            List of ints.

        Example:
            >>> from weftgrad.multiprocessing import ProcessContext
            >>> ProcessContext([], []).pids()
            []
        """
        return [child.pid for child in self.processes if child.pid is not None]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait until at least one process ends, or for `timeout` seconds.

        If one fails, the others are terminated after `grace_period` seconds (None: at once). Those that still run
        `grace_period` seconds later (None: 30) are killed.

        Args:
            timeout: Seconds to wait; None: no limit.
            grace_period: Seconds until the others are terminated, and again until they are killed; None: 0 and 30.

        Returns:
            Whether all processes have ended.

        Raises:
            ProcessRaisedException: A process raised an exception; the message has its traceback.
            ProcessExitedException: A process ended by a signal or with a nonzero exit code.

        Example:
            >>> from weftgrad.multiprocessing import ProcessContext
            >>> ProcessContext([], []).join(timeout=1.0)
            True
        """
        if not self.sentinels:
            return True
        failed_index = None
        ready = connection.wait(list(self.sentinels), timeout)
        for sentinel in [s for s in self.sentinels if s in ready]:
            index = self.sentinels.pop(sentinel)
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed_index = index
                break
        if failed_index is None:
            return not self.sentinels
        if grace_period is not None:
            self._wait(grace_period)
        for child in self.processes:
            if child.is_alive():
                child.terminate()
        self._wait(30 if grace_period is None else grace_period)
        for child in self.processes:
            if child.is_alive():
                child.kill()
            child.join()
        self.sentinels.clear()
        raise self._error(failed_index)

    def _wait(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        for child in self.processes:
            child.join(max(0.0, deadline - monotonic()))

    def _error(self, index: int) -> ProcessException:
        pid, code = self.processes[index].pid, self.processes[index].exitcode
        assert pid is not None  # because it was started
        assert code is not None  # because it has ended
        try:
            traceback_text = self._errors[index].recv() if self._errors[index].poll() else None
        except EOFError:
            traceback_text = None
        if traceback_text is not None:
            return ProcessRaisedException(f"process {index} (pid {pid}) raised:\n\n{traceback_text}", index, pid)
        if code >= 0:
            message = f"process {index} (pid {pid}) ended with exit code {code}"
            return ProcessExitedException(message, index, pid, code)
        name = signal_name(-code)
        message = f"process {index} (pid {pid}) was ended by signal {name}"
        return ProcessExitedException(message, index, pid, code, name)


def process_class(context: BaseContext) -> type[BaseProcess]:
    """Return the class of the processes that a context of `multiprocessing` starts."""
    assert hasattr(context, "Process")  # all contexts have it, but the base class does not declare it
    return context.Process


def signal_name(number: int) -> str:
    """Return a signal's name, such as `SIGKILL`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"{number}"


SpawnContext = ProcessContext  # its former name, as in PyTorch


def start_processes(
    fn: Callable[..., object],
    args: tuple[object, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in process `i` of `nprocs`.

    Args:
        fn: A function at the top level of a module, so that a new process can import it.
        args: Further arguments. `cpu` tensors among them are shared with every process.
        nprocs: The number of processes.
        join: Wait until all have ended and return None; errors are raised as by `ProcessContext.join`.
        daemon: True: an exit of this process terminates them; False: it waits for them. If this process is killed,
            they end in any case.
        start_method: `spawn`, `fork` or `forkserver`, as in `multiprocessing`.

    Returns:
        None, or a `ProcessContext` if `join` is False.

    Raises:
        ProcessRaisedException: If `join`, and a process raised an exception.
        ProcessExitedException: If `join`, and a process ended by a signal or with a nonzero exit code.

    Example:
        >>> wg.multiprocessing.start_processes(print, nprocs=0)
    """
    context = get_context(start_method)
    processes, receivers = [], []
    for index in range(nprocs):
        receiver, sender = context.Pipe(duplex=False)
        child = process_class(context)(target=_run, args=(fn, index, args, sender), daemon=daemon)
        child.start()
        sender.close()
        processes.append(child)
        receivers.append(receiver)
    process_context = ProcessContext(processes, receivers)
    if not join:
        return process_context
    while not process_context.join():
        pass
    return None


def spawn(
    fn: Callable[..., object],
    args: tuple[object, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Call `start_processes` with the start method `spawn`.

    Args:
        fn: A function at the top level of a module, so that a new process can import it.
        args: Further arguments. `cpu` tensors among them are shared with every process.
        nprocs: The number of processes.
        join: Wait until all have ended and return None.
        daemon: True: an exit of this process terminates them; False: it waits for them. If this process is killed,
            they end in any case.
        start_method: `spawn`; another name only warns.

    Returns:
        None, or a `ProcessContext` if `join` is False.

    Raises:
        ProcessRaisedException: If `join`, and a process raised an exception.
        ProcessExitedException: If `join`, and a process ended by a signal or with a nonzero exit code.

    Example:
        >>> wg.multiprocessing.spawn(print, nprocs=0)
    """
    if start_method != "spawn":
        warnings.warn(
            f"spawn starts processes by 'spawn', not by {start_method!r}; for another method call start_processes()",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon)
