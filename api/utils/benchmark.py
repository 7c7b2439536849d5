"""Measure statements, as `torch.utils.benchmark` does: `Timer`, `Measurement`, and tables of them by `Compare`.

    timer = wg.utils.benchmark.Timer("x @ x", globals={"x": wg.rand(64, 64)})
    print(timer.blocked_autorange())

The clock is read when all devices in use have finished their work. There is no count of instructions by Callgrind.
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
        Python float. Only differences have a meaning.

    Example:
        >>> start = wg.utils.benchmark.timer()
        >>> wg.utils.benchmark.timer() >= start
        True
    """
    synchronize()
    return timeit.default_timer()


@contextmanager
def _threads(number: int) -> Iterator[None]:
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
        setup: Code that runs before the first statement of a measured time.
        global_setup: Must be empty: there are no statements in C++.
        timer: Returns the time in seconds. The default waits for all devices in use.
        globals: Global variables of the statement. `torch`, `weftgrad` and `wg` are this package unless they are given.
        label: Names the computation, in prints and as the title of a table of `Compare`.
        sub_label: Tells statements with one label apart: the name of a row.
        description: Tells measurements of one row apart: the name of a column.
        env: Tells environments apart.
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
        stmt, setup = _strip(stmt), _strip(setup)
        package = sys.modules[__name__.partition(".")[0]]
        namespace = {"torch": package, "weftgrad": package, "wg": package, **(globals or {})}
        self._timer = timeit.Timer(stmt, setup, timer, namespace)
        self._task_spec = TaskSpec(stmt, setup, global_setup, label, sub_label, description, env, num_threads)

    def _timeit(self, number: int) -> float:
        """Return the seconds that `number` runs take, at least 1 ns, so that it can be a divisor."""
        return max(self._timer.timeit(number), 1e-9)

    def timeit(self, number: int = 1_000_000) -> Measurement:
        """Run the statement `number` times, after a hundredth as many runs that are not measured.

        Args:
            number: How often.

        Returns:
            A measurement with one time.

        Example:
            >>> wg.utils.benchmark.Timer("1 + 1").timeit(100).number_per_run
            100
        """
        with _threads(self._task_spec.num_threads):
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
        """Measure blocks of runs, so long that reading the clock does not count, until enough time is measured.

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
            max_run_time: Stop after as many seconds in any case.
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
        """Return a number of runs beside which reading the clock takes a ten-thousandth of the time at most."""
        with _threads(self._task_spec.num_threads):
            overhead = float(np.median([self._timeit(0) for _ in range(5)]))
            number = 1
            while number * 10 <= _MAX_RUNS:
                seconds = self._timeit(number)
                is_long_enough = overhead <= 1e-4 * seconds and seconds >= min_run_time / 1000
                if is_long_enough or seconds > min_run_time:
                    break
                number *= 10
        return number

    def _measure_blocks(
        self, number: int, is_sufficient: Callable[[Measurement], bool], min_run_time: float,
        max_run_time: float | None, callback: Callable[[int, float], object] | None,
    ) -> Measurement:  # fmt: skip
        measurement = Measurement(number, [], self._task_spec)
        total = 0.0
        with _threads(self._task_spec.num_threads):
            while not measurement.raw_times or total < min_run_time or not is_sufficient(measurement):
                seconds = self._timeit(number)
                measurement.raw_times.append(seconds)
                total += seconds
                if callback is not None:
                    callback(number, seconds)
                if max_run_time and total > max_run_time:
                    break
        return measurement


def _strip(code: str) -> str:
    """Return code without common indentation, a first empty line, and space at the end."""
    return textwrap.dedent(code).removeprefix("\n").rstrip()
