"""Measure statements, as `torch.utils.benchmark` does: `Timer`, `Measurement`, and tables of them by `Compare`.

    timer = wg.utils.benchmark.Timer("x @ x", globals={"x": wg.rand(64, 64)})
    print(timer.blocked_autorange())

Before a timer reads the clock, it waits until all devices in use have finished their work. Counting instructions by
Callgrind is not supported.
"""

from __future__ import annotations

import sys
import textwrap
import timeit
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from ..execution.streams import synchronize
from ..execution.threads import get_num_threads, set_num_threads
from ..runtime.errors import ArgumentError, NotSupported
from ._comparison_table import Compare
from ._measurement import Measurement, TaskSpec, select_unit, trim_sigfig, unit_to_english

__all__ = ["Compare", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig", "unit_to_english"]

_MAX_RUNS = 2**31 - 1


def timer() -> float:
    """Wait for all devices in use, then return the time of the clock in seconds.

    Returns:
        Python float. Only the difference of two times has a meaning.

    Example:
        >>> start = wg.utils.benchmark.timer()
        >>> wg.utils.benchmark.timer() >= start
        True
    """
    synchronize()
    return timeit.default_timer()


@contextmanager
def _use_threads(number: int) -> Iterator[None]:
    """Use `number` threads for kernels on `cpu` in a `with` block."""
    previous = get_num_threads()
    set_num_threads(number)
    try:
        yield
    finally:
        set_num_threads(previous)


class Timer:
    """Measure a statement.

    Args:
        stmt: The statement; it may have several lines.
        setup: Code that runs before each measured time, and is not measured.
        global_setup: Must be empty, because it is for statements in C++, which are not supported.
        timer: Function that returns the time in seconds. The default waits for all devices in use.
        globals: Global variables of the statement. `torch`, `weftgrad` and `wg` are this package unless they are given.
        label: Name of the computation, in prints and as the title of a table of `Compare`.
        sub_label: Name of a row of the table, to distinguish statements with the same label.
        description: Name of a column of the table, to distinguish measurements in the same row.
        env: Name of the environment, to distinguish measurements in several environments.
        num_threads: Threads that compute a kernel on `cpu`, as in `set_num_threads`.
        language: Must be "python" or "py".

    Raises:
        ArgumentError: If `stmt` is not a string, or `global_setup` is not empty.
        NotSupported: For statements in C++.

    Example:
        >>> measurement = wg.utils.benchmark.Timer("x + 1", globals={"x": wg.ones(3)}).timeit(10)
        >>> measurement.number_per_run, len(measurement.times), measurement.median > 0
        (10, 1, True)
    """

    def __init__(
        self, stmt: str = "pass", setup: str = "pass", global_setup: str = "", timer: Callable[[], float] = timer,
        globals: Mapping[str, object] | None = None, label: str | None = None, sub_label: str | None = None,
        description: str | None = None, env: str | None = None, num_threads: int = 1, language: str = "python",
    ):  # fmt: skip
        if not isinstance(stmt, str):
            raise ArgumentError(f"benchmark.Timer: stmt is a string, not {type(stmt).__name__}")
        if language not in ("python", "py"):
            raise NotSupported(f"benchmark.Timer: measures statements in Python, not in {language}")
        if global_setup:
            raise ArgumentError("benchmark.Timer: global_setup is for C++: use setup")
        stmt, setup = _dedent(stmt), _dedent(setup)
        package = sys.modules[__name__.partition(".")[0]]
        namespace = {"torch": package, "weftgrad": package, "wg": package, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, namespace)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _timeit(self, number: int) -> float:
        """Return the seconds that `number` runs take. They are at least 1 ns, so that they can be a divisor."""
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the statement `number` times, after `number // 100` runs (at least 2) that are not measured.

        Args:
            number: Number of measured runs.

        Returns:
            A measurement with one time.

        Example:
            >>> wg.utils.benchmark.Timer("1 + 1").timeit(100).number_per_run
            100
        """
        with _use_threads(self._task_spec.num_threads):
            self._timeit(max(number // 100, 2))
            return Measurement(number, [self._timeit(number)], self._task_spec)

    def repeat(self, repeat: int = -1, number: int = -1) -> None:
        """Raise `NotSupported`, as in PyTorch: use `blocked_autorange`."""
        raise NotSupported("benchmark.Timer.repeat: use blocked_autorange")

    def autorange(self, callback: Callable[[int, float], object] | None = None) -> None:
        """Raise `NotSupported`, as in PyTorch: use `blocked_autorange`."""
        raise NotSupported("benchmark.Timer.autorange: use blocked_autorange")

    def blocked_autorange(
        self, callback: Callable[[int, float], object] | None = None, min_run_time: float = 0.2
    ) -> Measurement:
        """Measure blocks of runs until they have taken `min_run_time` together.

        A block has so many runs that the time to read the clock is negligible.

        Args:
            callback: Called with the number of runs and the seconds of each block.
            min_run_time: Seconds that all blocks take together, at least.

        Returns:
            A measurement with one time for each block.

        Example:
            >>> measurement = wg.utils.benchmark.Timer("1 + 1").blocked_autorange(min_run_time=0.01)
            >>> sum(measurement.raw_times) >= 0.01
            True
        """
        number = self._block_size(min_run_time)
        return self._measure_blocks(number, lambda measurement: True, min_run_time, None, callback)

    def adaptive_autorange(
        self, threshold: float = 0.1, *, min_run_time: float = 0.01, max_run_time: float = 10.0,
        callback: Callable[[int, float], object] | None = None,
    ) -> Measurement:  # fmt: skip
        """Measure blocks of runs until their times vary little.

        Args:
            threshold: Stop when the interquartile range, relative to the median, is below this number.
            min_run_time: Seconds that all blocks take together, at least.
            max_run_time: Stop after this many seconds, even if the times still vary.
            callback: Called with the number of runs and the seconds of each block.

        Returns:
            A measurement with one time for each block.

        Example:
            >>> measurement = wg.utils.benchmark.Timer("1 + 1").adaptive_autorange(max_run_time=0.1)
            >>> len(measurement.times) > 0
            True
        """

        def is_steady(measurement: Measurement) -> bool:
            return len(measurement.raw_times) > 3 and measurement.meets_confidence(threshold)

        return self._measure_blocks(self._block_size(0.05), is_steady, min_run_time, max_run_time, callback)

    def _block_size(self, min_run_time: float) -> int:
        """Return a number of runs for a block: a power of ten.

        Reading the clock takes at most a ten-thousandth of the block's time, and a block takes at least a thousandth of
        `min_run_time`. A block that takes longer than `min_run_time` suffices in any case.
        """
        with _use_threads(self._task_spec.num_threads):
            clock_seconds = float(np.median([self._timeit(0) for _ in range(5)]))
            number = 1
            while number * 10 <= _MAX_RUNS:
                seconds = self._timeit(number)
                is_long_enough = clock_seconds <= 1e-4 * seconds and seconds >= min_run_time / 1000
                if is_long_enough or seconds > min_run_time:
                    break
                number *= 10
        return number

    def _measure_blocks(
        self, number: int, is_sufficient: Callable[[Measurement], bool], min_run_time: float,
        max_run_time: float | None, callback: Callable[[int, float], object] | None,
    ) -> Measurement:  # fmt: skip
        """Measure blocks of `number` runs until `min_run_time` has passed and `is_sufficient` is true.

        Stop earlier when the blocks have taken more than `max_run_time` together.
        """
        measurement = Measurement(number, [], self._task_spec)
        total_seconds = 0.0
        with _use_threads(self._task_spec.num_threads):
            while not measurement.raw_times or total_seconds < min_run_time or not is_sufficient(measurement):
                seconds = self._timeit(number)
                measurement.raw_times.append(seconds)
                total_seconds += seconds
                if callback is not None:
                    callback(number, seconds)
                if max_run_time and total_seconds > max_run_time:
                    break
        return measurement


def _dedent(code: str) -> str:
    """Remove the common indentation of code, an empty first line, and white space at the end."""
    return textwrap.dedent(code).removeprefix("\n").rstrip()
