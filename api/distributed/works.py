"""Collectives and messages in flight: how they move on, how they are waited for, and what ends the wait.

A `Work` consists of the exchange of the headers (`exchanges`), and of steps: a generator that starts MPI requests,
yields them, and continues when they are complete. MPI moves data only inside of its functions. Whoever waits
tests the requests in a loop; while nobody waits, a thread tests those that `async_op=True` has left (`progress`).

A loop that waits looks for failures of other ranks and for the timeout, so a wait ends by an error, and never hangs.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import traceback
from collections import deque
from collections.abc import Callable, Generator
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeAlias

from .errors import CollectiveMismatch, DistBackendError
from .headers import describe
from .progress import make_progress, paused_thread
from .world import World, timeout_error

if TYPE_CHECKING:
    from ..runtime.tensor import Tensor
    from .exchanges import Exchange, GatheredHeaders

__all__ = ["Future", "Steps", "Work"]

Steps: TypeAlias = Generator[list[Any], None, None]
"""A generator that yields lists of `mpi4py.MPI.Request`, and continues when all of a list are complete. Other objects
with a method `Test` may be among them."""

_POLLS_BEFORE_YIELD = 100
_TESTS_IN_POLL = 16
_POLLS_BETWEEN_EXCHANGES = 16
_POLLS_BETWEEN_CHECKS = 64
_SECONDS_BEFORE_SLEEP = 1.0
_SECONDS_OF_FLIGHT = 0.5  # after a rank has ended, how long its last messages may still arrive
_MISMATCH_SECONDS = 1.0  # after an error of MPI, how long the headers may take that explain it

_abandoned: list[Any] = []
"""Requests and buffers of calls that have failed: MPI may still write to them."""


class Future:
    """The result of an asynchronous collective, under the name of `torch.futures.Future`.

    Example:
        >>> future = wg.distributed.Future()
        >>> doubled = future.then(lambda f: 2 * f.value())
        >>> future.set_result(3)
        >>> doubled.wait()
        6
    """

    def __init__(self) -> None:
        self._value: Any = None
        self._error: BaseException | None = None
        self._done = False
        self._changed = threading.Condition()
        self._callbacks: list[Callable[[], None]] = []
        self._wait: Callable[[], object] | None = None

    def done(self) -> bool:
        """Return whether the result is there."""
        return self._done

    def wait(self) -> Any:
        """Wait for the result, and return it."""
        if self._wait is not None:
            self._wait()  # also if the result is there: the stream of this thread may have to wait for its data
        with self._changed:
            while not self._done:
                self._changed.wait()
        return self.value()

    def value(self) -> Any:
        """Return the result; raise the error if there is one.

        Raises:
            DistBackendError: There is no result yet.
        """
        if self._error is not None:
            raise self._error
        if not self._done:
            raise DistBackendError("Future.value: there is no result yet; call wait()")
        return self._value

    def set_result(self, value: Any) -> None:
        """Set the result, and call the callbacks."""
        self._settle(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Set the error that `wait` and `value` raise, and call the callbacks."""
        self._settle(None, error)

    def then(self, callback: Callable[[Future], Any]) -> Future:
        """Return a future of `callback(self)`, which is called when the result is there."""
        child = Future()
        child._wait = self._wait_without_error

        def run() -> None:
            try:
                value = callback(self)
            except BaseException as error:
                child.set_exception(error)
                if not isinstance(error, Exception):
                    raise
            else:
                child.set_result(value)

        self._add(run)
        return child

    def add_done_callback(self, callback: Callable[[Future], Any]) -> None:
        """Call `callback(self)` when the result is there. An error that it raises is printed, and not raised."""
        self._add(lambda: callback(self))

    def _add(self, run: Callable[[], None]) -> None:
        with self._changed:
            if not self._done:
                self._callbacks.append(run)
                return
        _call_back(run)

    def _settle(self, value: Any, error: BaseException | None) -> None:
        with self._changed:
            self._value, self._error, self._done = value, error, True
            callbacks, self._callbacks = self._callbacks, []
            self._changed.notify_all()
        for run in callbacks:
            _call_back(run)

    def _wait_without_error(self) -> None:
        """Wait for the result or the error; a callback of `then` may handle the error."""
        with contextlib.suppress(Exception):
            self.wait()


def _call_back(run: Callable[[], None]) -> None:
    """Call a callback of a future; print its error, because it may run in any thread, before others' callbacks."""
    try:
        run()
    except Exception:
        traceback.print_exc()


class Work:
    """A collective or message that has been started. `async_op=True` returns one.

    Args:
        world: The world.
        members: The global ranks of the group.
        timeout: Seconds that it may take.
        header: This rank's header.
        exchange: The exchange of the members' headers; None for a message.
        steps: What is to be done.
        queue: The group's works that must be done one after the other; None if this one need not wait for others.
        outputs: The tensors that `result` and the future return.
        requests: MPI requests that run already, in place of steps.
    """

    def __init__(
        self,
        world: World,
        members: tuple[int, ...],
        timeout: float,
        header: bytes,
        exchange: Exchange | GatheredHeaders | None,
        steps: Steps | None,
        queue: deque[Work] | None = None,
        outputs: list[Tensor] | None = None,
        requests: list[Any] | None = None,
    ):
        self._world = world
        self._members = members
        self._timeout = timeout
        self._header = header
        self._exchange = exchange
        self._steps = steps
        self._requests = requests
        self._queue = queue
        self._outputs = outputs or []
        self._future: Future | None = None
        # of a collective by NCCL: lets the caller's stream wait for it
        self._join_stream: Callable[[], None] | None = getattr(requests[0], "join", None) if requests else None
        self._inputs: list[Tensor] | None = None
        self._find_source: Callable[[], int] | None = None
        self.accepts_any_source = False
        self._done = False
        self._polls = 0
        self._error: BaseException | None = None
        self._start_time = time.monotonic()
        if queue is not None:
            queue.append(self)
        elif steps is not None:
            self._requests = next(steps, None)

    # what users call

    def wait(self, timeout: timedelta | float | None = None) -> bool:
        """Wait until the work is complete.

        Args:
            timeout: Seconds or a `timedelta` that this call may take; default: the group's timeout, counted from the
                start of the work.

        Returns:
            True.

        Raises:
            CollectiveMismatch: The ranks have called different collectives, or with different shapes or dtypes.
            CollectiveTimeout: It has not completed in time.
            RankFailure: Another rank has failed.
        """
        if not self._done:
            if timeout is None:
                begin, seconds = self._start_time, self._timeout
            else:
                begin = time.monotonic()
                seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
            _poll(self, begin, seconds)
        if self._error is not None:
            raise self._error
        if self._join_stream is not None:
            self._join_stream()
        return True

    def is_completed(self) -> bool:
        """Return whether the work is done. Does not wait, and moves it on."""
        if not self._done:
            self._advance_safely()
        return self._done

    def is_success(self) -> bool:
        """Return whether the work is done and has not failed."""
        return self._done and self._error is None

    def exception(self) -> BaseException | None:
        """Return the error with which the work has ended, or None."""
        return self._error

    def result(self) -> list[Tensor]:
        """Return the tensors that the work has written."""
        return self._outputs

    def source_rank(self) -> int:
        """Return the global rank of the sender of a received message; -1 for other works."""
        return self._find_source() if self._find_source is not None else -1

    def synchronize(self) -> None:
        """Wait until the work is complete."""
        self.wait()

    def get_future(self) -> Future:
        """Return a `Future` of the list of tensors that the work writes."""
        with self._world.lock:
            if self._future is None:
                self._future = Future()
                self._future._wait = self.wait
                if self._done:
                    self._settle_future()
        return self._future

    # moving on

    @property
    def is_finished(self) -> bool:
        """Whether the work is done; unlike `is_completed`, it does not move the work on."""
        return self._done

    def _advance(self, tests: int = 1) -> bool:
        """Test the requests and continue if they are complete; return whether the work is done. Needs the lock.

        Args:
            tests: Unsuccessful tests after which to give up.
        """
        if self._done:
            return True
        if self._exchange is not None:
            # It is far behind the data, if there are steps: ask seldom.
            self._polls += 1
            if (self._steps is None or self._polls % _POLLS_BETWEEN_EXCHANGES == 0) and self._exchange.Test():
                self._exchange = None
        queue = self._queue
        if queue is not None:
            while queue[0] is not self:
                if not queue[0]._advance_safely():
                    return False
        steps = self._steps
        if steps is not None:
            requests = self._requests
            while True:
                if requests is None:
                    requests = next(steps, None)
                    if requests is None:
                        self._steps = None
                        break
                    self._requests = requests
                while requests:
                    if requests[-1].Test():
                        requests.pop()
                    elif tests > 1:
                        tests -= 1
                    else:
                        return False
                requests = None
            self._requests = None
        elif self._requests is not None:
            while not self._requests[0].Test():
                tests -= 1
                if tests <= 0:
                    return False
            self._requests = None
        if self._exchange is not None and not self._exchange.Test():
            return False
        self._exchange = None
        self._finish(None)
        return True

    def _advance_safely(self) -> bool:
        """Advance, and keep an error for `wait`."""
        with self._world.lock:
            try:
                return self._advance()
            except Exception as error:
                self._fail(error)
                return True
            except BaseException as error:
                self._end(error)
                raise

    def _finish(self, error: BaseException | None) -> None:
        self._done, self._error = True, error
        queue = self._queue
        if queue is not None:
            self._queue = None
            if queue and queue[0] is self:
                queue.popleft()
            elif self in queue:
                queue.remove(self)
        if self._future is not None:
            self._settle_future()

    def _settle_future(self) -> None:
        assert self._future is not None
        if self._error is not None:
            self._future.set_exception(self._error)
        else:
            if self._join_stream is not None:
                self._join_stream()  # the callbacks' stream waits for the data
            self._future.set_result(self._outputs)

    def _fail(self, error: BaseException) -> None:
        """End the work with an error, and tell the other ranks."""
        if self._done:
            return
        if isinstance(error, self._world.mpi.Exception):
            error = self._explain_mpi_error(error)
        _abandoned.append((self._requests, self._exchange, self._steps, self._outputs))
        self._finish(error)
        self._world.fail(str(error))

    def _end(self, error: BaseException) -> None:
        """End the work after an error or an interrupt: its steps have stopped in the middle."""
        if not isinstance(error, Exception):
            error = DistBackendError(f"{describe(self._header)}: interrupted by {type(error).__name__}")
        self._fail(error)

    def _explain_mpi_error(self, error: BaseException) -> BaseException:
        """Return the mismatch that an error of MPI comes from, if the headers show one, or an error with its text."""
        deadline = time.monotonic() + _MISMATCH_SECONDS
        while self._exchange is not None and time.monotonic() < deadline:
            try:
                if self._exchange.Test():
                    self._exchange = None
            except CollectiveMismatch as mismatch:
                return mismatch
            except Exception:
                break
        return DistBackendError(f"{describe(self._header)}: MPI failed: {error}")


def _poll(work: Work, begin: float, seconds: float) -> None:
    """Test a work until it is done, a rank has failed, or `seconds` since `begin` are over; the work stores errors."""
    with paused_thread():
        _poll_without_thread(work, begin, seconds)


def _poll_without_thread(work: Work, begin: float, seconds: float) -> None:
    world = work._world
    lock = world.lock
    polls = 0
    while True:
        with lock:
            try:
                if work._advance(_TESTS_IN_POLL):
                    return
            except Exception as error:
                work._fail(error)
                return
            except BaseException as error:
                work._end(error)
                raise
        polls += 1
        if polls < _POLLS_BEFORE_YIELD:
            continue
        make_progress()
        os.sched_yield()
        if polls % _POLLS_BETWEEN_CHECKS:
            continue
        if (reason := _find_reason_to_stop(work, begin, seconds)) is not None:
            with lock:
                work._fail(reason)
            return
        if time.monotonic() - work._start_time > _SECONDS_BEFORE_SLEEP:
            time.sleep(1e-3)  # a rank that is this late needs the processor more than this loop does


def _find_reason_to_stop(work: Work, begin: float, seconds: float) -> BaseException | None:
    """Return the error that ends the wait for a work, or None if the wait goes on."""
    world = work._world
    call = describe(work._header)
    if world.failure is not None:
        try:
            world.raise_failure(call)
        except DistBackendError as error:
            return error
    watcher = world.watcher
    if watcher is not None and watcher.ended:
        cutoff = time.monotonic() - _SECONDS_OF_FLIGHT
        departed = [rank for rank in work._members if watcher.ended.get(rank, cutoff) < cutoff]
        if departed and not (work.accepts_any_source and len(departed) < len(work._members)):
            names = ", ".join(map(str, departed))
            return DistBackendError(f"{call}: rank {names} has ended its program without calling it")
    if time.monotonic() - begin > seconds:
        return timeout_error(call, seconds, world.explain_absence(list(work._members), call))
    return None
