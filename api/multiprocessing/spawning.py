"""`spawn`: one function in several new processes, whose errors arrive here."""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable
from multiprocessing import connection, get_context, process
from time import monotonic
from typing import Any

from ..runtime.errors import WorkerError

__all__ = [
    "ProcessContext", "ProcessException", "ProcessExitedException", "ProcessRaisedException", "SpawnContext", "spawn",
    "start_processes",
]  # fmt: skip

_LONGEST = 32 * 1024  # characters of a traceback: what a pipe holds without a reader


class ProcessException(WorkerError):
    """A process failed: which one (`error_index`), and its `error_pid`."""

    def __init__(self, msg: str, error_index: int, error_pid: int):
        super().__init__(msg)
        self.msg = msg
        self.error_index = error_index
        self.error_pid = error_pid

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid)


class ProcessRaisedException(ProcessException):
    """A process raised; the message has its traceback."""


class ProcessExitedException(ProcessException):
    """A process ended by a signal (`signal_name`) or with an `exit_code` other than 0."""

    def __init__(self, msg: str, error_index: int, error_pid: int, exit_code: int, signal_name: str | None = None):
        super().__init__(msg, error_index, error_pid)
        self.exit_code = exit_code
        self.signal_name = signal_name

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.msg, self.error_index, self.error_pid, self.exit_code, self.signal_name)


def _run(fn: Callable[..., Any], index: int, args: tuple[Any, ...], errors: Any) -> None:
    """What a new process runs: `fn`, ended with the process that started it."""
    parent = process.parent_process()
    if parent is not None:
        sentinel = parent.sentinel

        def watch() -> None:
            connection.wait([sentinel])
            os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=watch, name="weftgrad-parent", daemon=True).start()
    try:
        fn(index, *args)
    except KeyboardInterrupt:  # the parent has it too, and tells
        sys.exit(130)
    except Exception:
        errors.send(traceback.format_exc()[-_LONGEST:])
        sys.exit(1)


class ProcessContext:
    """Processes that run one function; `join` waits for them and raises what the first to fail raised."""

    def __init__(self, processes: list[Any], errors: list[Any]):
        self.processes = processes
        self._errors = errors
        self.sentinels = {each.sentinel: i for i, each in enumerate(processes)}

    def pids(self) -> list[int]:
        """The processes' ids."""
        return [int(each.pid) for each in self.processes]

    def join(self, timeout: float | None = None, grace_period: float | None = None) -> bool:
        """Wait for processes to end; whether all have.

        When one fails the others have `grace_period` seconds to end by themselves, and then are terminated. Raises
        `ProcessRaisedException` with the traceback, or `ProcessExitedException` with the signal or the exit code.
        """
        if not self.sentinels:
            return True
        failed = None
        for sentinel in connection.wait(list(self.sentinels), timeout):
            index = self.sentinels.pop(sentinel)  # type: ignore[call-overload]
            self.processes[index].join()
            if self.processes[index].exitcode != 0:
                failed = index
                break
        if failed is None:
            return not self.sentinels
        if grace_period is not None:
            self._wait(grace_period)
        for each in self.processes:
            if each.is_alive():
                each.terminate()
        self._wait(30 if grace_period is None else grace_period)
        for each in self.processes:
            if each.is_alive():
                each.kill()
            each.join()
        self.sentinels.clear()
        raise self._error(failed)

    def _wait(self, seconds: float) -> None:
        end = monotonic() + seconds
        for each in self.processes:
            each.join(max(0.0, end - monotonic()))

    def _error(self, index: int) -> ProcessException:
        pid, code = self.processes[index].pid, self.processes[index].exitcode
        try:
            text = self._errors[index].recv() if self._errors[index].poll() else None
        except EOFError:
            text = None
        if text is not None:
            return ProcessRaisedException(f"process {index} (pid {pid}) raised:\n\n{text}", index, pid)
        if code >= 0:
            message = f"process {index} (pid {pid}) ended with exit code {code}"
            return ProcessExitedException(message, index, pid, code)
        name = signal_name(-code)
        message = f"process {index} (pid {pid}) was ended by signal {name}"
        return ProcessExitedException(message, index, pid, code, name)


def signal_name(number: int) -> str:
    """A signal's name: `SIGKILL`."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"{number}"


class SpawnContext(ProcessContext):
    """The former name of `ProcessContext`."""


def start_processes(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """Run `fn(i, *args)` in `nprocs` processes; `i` counts them.

    `fn` must be importable there: a function at the top level of a module. Tensors of `cpu` among `args` are shared
    with every process. With `join`, waits until all have ended and returns None; raises as `ProcessContext.join` does.
    """
    context: Any = get_context(start_method)
    processes, errors = [], []
    for index in range(nprocs):
        here, there = context.Pipe(duplex=False)
        made = context.Process(target=_run, args=(fn, index, args, there), daemon=daemon)
        made.start()
        there.close()
        processes.append(made)
        errors.append(here)
    started = ProcessContext(processes, errors)
    if not join:
        return started
    while not started.join():
        pass
    return None


def spawn(
    fn: Callable[..., Any],
    args: tuple[Any, ...] = (),
    nprocs: int = 1,
    join: bool = True,
    daemon: bool = False,
    start_method: str = "spawn",
) -> ProcessContext | None:
    """`start_processes` with the start method `spawn`."""
    if start_method != "spawn":
        warnings.warn(
            f"spawn starts processes by 'spawn', not by {start_method!r}; for another method call start_processes()",
            FutureWarning,
            stacklevel=2,
        )
    return start_processes(fn, args, nprocs, join, daemon)
