"""Measured times of a statement, and how to print times: `Measurement` and `TaskSpec` of `utils.benchmark`."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, fields

import numpy as np

__all__ = ["Measurement", "TaskSpec", "select_unit", "trim_sigfig", "unit_to_english"]

_MAX_SIGNIFICANT_FIGURES = 4
_MIN_CONFIDENCE_INTERVAL_S = 25e-9
_LARGE_SPREAD, _GROSS_SPREAD = 0.1, 0.25  # of the interquartile range, relative to the median


@dataclass(repr=False, frozen=True)
class TaskSpec:
    """What a `Timer` measures. The arguments are those of `Timer`.

    Example:
        >>> wg.utils.benchmark.TaskSpec("x + y", "pass", label="add", sub_label="float32").title
        'add: float32'
    """

    stmt: str
    setup: str
    global_setup: str = ""
    label: str | None = None
    sub_label: str | None = None
    description: str | None = None
    env: str | None = None
    num_threads: int = 1

    @property
    def title(self) -> str:
        """The label, or the statement, with the sub-label."""
        if self.label is None and "\n" in self.stmt:
            sub_label = f" ({self.sub_label})" if self.sub_label else ""
            return f"stmt:{sub_label}\n{textwrap.indent(self.stmt, '  ')}"
        return (self.stmt if self.label is None else self.label) + (f": {self.sub_label}" if self.sub_label else "")

    def setup_str(self) -> str:
        """Return a description of the setup, empty if there is none.

        Returns:
            One line, or more if the setup has several.

        Example:
            >>> wg.utils.benchmark.TaskSpec("x + 1", "x = 1").setup_str()
            'setup: x = 1'
        """
        if self.setup in ("", "pass"):
            return ""
        return f"setup:\n{textwrap.indent(self.setup, '  ')}" if "\n" in self.setup else f"setup: {self.setup}"

    def summarize(self) -> str:
        r"""Return title, description and setup, one below the other.

        Returns:
            The text, as it stands in the `repr` of a `Measurement`.

        Example:
            >>> wg.utils.benchmark.TaskSpec("x + 1", "x = 1", description="n=1").summarize()
            'x + 1\nn=1\nsetup: x = 1'
        """
        sections = [self.title, self.description or "", self.setup_str()]
        return "\n".join(f"{section}\n" if "\n" in section else section for section in sections if section)


_SPEC_FIELDS = frozenset(field.name for field in fields(TaskSpec))


@dataclass(repr=False)
class Measurement:
    """Times of a statement. Attributes of its `TaskSpec`, such as `label`, are attributes of the measurement, too.

    Args:
        number_per_run: How often the statement ran in each measured time.
        raw_times: The measured times in seconds.
        task_spec: What was measured.
        metadata: Anything that a program wants to keep with the times.

    Example:
        >>> spec = wg.utils.benchmark.TaskSpec("x + y", "pass")
        >>> m = wg.utils.benchmark.Measurement(10, [5.0, 10.0, 20.0], spec)
        >>> m.median, m.times
        (1.0, [0.5, 1.0, 2.0])
    """

    number_per_run: int
    raw_times: list[float]
    task_spec: TaskSpec
    metadata: dict[object, object] | None = None

    def __getattr__(self, name: str) -> object:
        if name in _SPEC_FIELDS:
            return getattr(self.task_spec, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    @property
    def times(self) -> list[float]:
        """Seconds for one run of the statement, one number for each measured time."""
        return [time / self.number_per_run for time in self.raw_times]

    @property
    def median(self) -> float:
        """The median of `times`, in seconds."""
        return float(np.median(self.times))

    @property
    def mean(self) -> float:
        """The mean of `times`, in seconds."""
        return float(np.mean(self.times))

    @property
    def iqr(self) -> float:
        """The interquartile range of `times`, in seconds."""
        low, high = self._quartiles()
        return high - low

    def _quartiles(self) -> tuple[float, float]:
        low, high = np.quantile(self.times, [0.25, 0.75])
        return float(low), float(high)

    @property
    def significant_figures(self) -> int:
        """How many figures of the median are reliable, estimated from the times between the quartiles."""
        count = len(self.raw_times)
        between_quartiles = sorted(self.times)[count // 4 : math.ceil(3 * count / 4)]
        interval = 1.645 * float(np.std(between_quartiles)) / math.sqrt(len(between_quartiles))
        figures = math.floor(math.log10(self.median / max(interval, _MIN_CONFIDENCE_INTERVAL_S)))
        return min(max(figures, 1), _MAX_SIGNIFICANT_FIGURES)

    @property
    def has_warnings(self) -> bool:
        """Whether the times vary much."""
        return not self.meets_confidence()

    def meets_confidence(self, threshold: float = _LARGE_SPREAD) -> bool:
        """Return whether the interquartile range is small.

        Args:
            threshold: The largest range, relative to the median.

        Returns:
            Python bool.

        Example:
            >>> spec = wg.utils.benchmark.TaskSpec("x + y", "pass")
            >>> wg.utils.benchmark.Measurement(10, [1e-5, 2e-5, 4e-5], spec).meets_confidence()
            False
        """
        return self.iqr / self.median < threshold

    @property
    def title(self) -> str:
        """The label, or the statement, with the sub-label."""
        return self.task_spec.title

    @property
    def as_row_name(self) -> str:
        """The name of the row in a table of `Compare`."""
        return self.task_spec.sub_label or self.task_spec.stmt or "[Unknown]"

    def __repr__(self) -> str:
        count, threads = len(self.raw_times), self.task_spec.num_threads
        unit, scale = select_unit(self.median)
        lines = [object.__repr__(self), self.task_spec.summarize()]
        lines.append(f"  {'Median: ' if count > 1 else ''}{self.median / scale:.2f} {unit}")
        if count >= 4:
            low, high = self._quartiles()
            lines.append(f"  IQR:    {self.iqr / scale:.2f} {unit} ({low / scale:.2f} to {high / scale:.2f})")
        runs = f"{self.number_per_run} runs {'per measurement,' if count > 1 else ','}"
        lines.append(
            f"  {count} measurement{'s' if count > 1 else ''}, {runs} {threads} thread{'s' if threads > 1 else ''}"
        )
        if not self.meets_confidence():
            is_gross = not self.meets_confidence(_GROSS_SPREAD)
            lines += [
                f"  WARNING: Interquartile range is {self.iqr / self.median * 100:.1f}% of the median measurement.",
                "           This suggests significant environmental influence." if is_gross
                else "           This could indicate system fluctuation.",
            ]  # fmt: skip
        return "\n".join(lines)

    @staticmethod
    def merge(measurements: Iterable[Measurement]) -> list[Measurement]:
        """Return one measurement for each task, with the times of all its measurements.

        Args:
            measurements: Measurements of one or more tasks.

        Returns:
            Measurements with `number_per_run=1` and without metadata.

        Example:
            >>> benchmark = wg.utils.benchmark
            >>> m = benchmark.Measurement(10, [5.0], benchmark.TaskSpec("x + y", "pass"))
            >>> [merged.times for merged in benchmark.Measurement.merge([m, m])]
            [[0.5, 0.5]]
        """
        times_by_task: dict[TaskSpec, list[float]] = {}
        for measurement in measurements:
            times_by_task.setdefault(measurement.task_spec, []).extend(measurement.times)
        return [Measurement(1, times, task) for task, times in times_by_task.items()]


def select_unit(t: float) -> tuple[str, float]:
    """Return the unit in which a time is between 1 and 1000, and its length in seconds.

    Args:
        t: Seconds, above 0.

    Returns:
        "ns", "us", "ms" or "s", and the number of seconds.

    Example:
        >>> wg.utils.benchmark.select_unit(0.05)
        ('ms', 0.001)
    """
    unit = {-3: "ns", -2: "us", -1: "ms"}.get(int(math.log10(t) // 3), "s")
    return unit, {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1}[unit]


def unit_to_english(u: str) -> str:
    """Return the name of a unit.

    Args:
        u: "ns", "us", "ms" or "s".

    Returns:
        The name in the singular.

    Example:
        >>> wg.utils.benchmark.unit_to_english("us")
        'microsecond'
    """
    return {"ns": "nanosecond", "us": "microsecond", "ms": "millisecond", "s": "second"}[u]


def trim_sigfig(x: float, n: int) -> float:
    """Round a number to significant figures.

    Args:
        x: The number.
        n: How many figures.

    Returns:
        The rounded number.

    Example:
        >>> wg.utils.benchmark.trim_sigfig(3141.59, 2)
        3100.0
    """
    scale = 10.0 ** (math.ceil(math.log10(abs(x))) - n)
    return round(x / scale) * scale
