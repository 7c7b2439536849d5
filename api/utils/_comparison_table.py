"""Tables of measured times: `Compare` of `utils.benchmark`."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from ..runtime.errors import ArgumentError
from ._measurement import Measurement, select_unit, trim_sigfig, unit_to_english

__all__ = ["Compare"]

_BOLD, _END = "\033[1m", "\033[0m"
_BEST, _GOOD, _BAD, _VERY_BAD = "\033[92m", "\033[34m", "\033[2m\033[91m", "\033[31m"

_RowKey = tuple[int, str, str]  # number of threads, environment, name


class Compare:
    """A table of measurements: a table for each label, rows by sub-label or statement, columns by description.

    Args:
        results: The measurements. Those of equal tasks are merged.

    Raises:
        ArgumentError: If a result is not a `Measurement`.

    Example:
        >>> from weftgrad.utils.benchmark import Compare, Measurement, TaskSpec
        >>> tasks = [TaskSpec("x + y", "pass", "", "add", dtype, "n=1") for dtype in ("float32", "int64")]
        >>> print(Compare([Measurement(1, [2e-6], tasks[0]), Measurement(1, [4e-6], tasks[1])]))
        [------- add -------]
                       |  n=1
        1 threads: ----------
              float32  |  2.0
              int64    |  4.0
        <BLANKLINE>
        Times are in microseconds (us).
        <BLANKLINE>
    """

    def __init__(self, results: Iterable[Measurement]):
        self._results: list[Measurement] = []
        self._trims = False
        self._colors: str | None = None
        self._highlights = False
        self.extend_results(results)

    def extend_results(self, results: Iterable[Measurement]) -> None:
        """Add measurements.

        Args:
            results: The measurements.

        Raises:
            ArgumentError: If a result is not a `Measurement`.

        Example:
            >>> table = wg.utils.benchmark.Compare([])
            >>> table.extend_results([wg.utils.benchmark.Timer("1 + 1").timeit(10)])
        """
        measurements = list(results)
        for measurement in measurements:
            if not isinstance(measurement, Measurement):
                raise ArgumentError(f"benchmark.Compare: takes Measurements, not {type(measurement).__name__}")
        self._results += measurements

    def trim_significant_figures(self) -> None:
        """Print only figures that are reliable.

        Example:
            >>> wg.utils.benchmark.Compare([]).trim_significant_figures()
        """
        self._trims = True

    def colorize(self, rowwise: bool = False) -> None:
        """Color times by their ratio to the best one.

        Args:
            rowwise: Whether to compare with the best time of the row, in place of the column.

        Example:
            >>> wg.utils.benchmark.Compare([]).colorize()
        """
        self._colors = "rowwise" if rowwise else "columnwise"

    def highlight_warnings(self) -> None:
        """Print the spread beside times that vary much.

        Example:
            >>> wg.utils.benchmark.Compare([]).highlight_warnings()
        """
        self._highlights = True

    def print(self) -> None:
        """Print the tables.

        Example:
            >>> wg.utils.benchmark.Compare([]).print()
            <BLANKLINE>
        """
        print(str(self))

    def __str__(self) -> str:
        groups: dict[str | None, list[Measurement]] = {}
        for measurement in Measurement.merge(self._results):
            groups.setdefault(measurement.task_spec.label, []).append(measurement)
        return "\n".join(self._render(label, group) for label, group in groups.items())

    def _render(self, label: str | None, results: list[Measurement]) -> str:
        unit, scale = select_unit(min(m.median for m in results))
        row_keys = sorted(dict.fromkeys(map(_row_key, results)), key=lambda key: key[:2])
        column_keys = list(dict.fromkeys(m.task_spec.description for m in results))
        cells = {(_row_key(m), m.task_spec.description): m for m in results}
        columns = [[cells.get((row, column)) for row in row_keys] for column in column_keys]
        texts = [self._column_texts(column, scale) for column in columns]
        text_rows = [
            [name, *row] for name, *row in zip(_row_names(row_keys), *texts, strict=True)
        ]  # fmt: skip
        header = ["", *(key or "" for key in column_keys)]
        widths = [max(map(len, column)) for column in zip(header, *text_rows, strict=True)]
        lines = ["  |  ".join(text.center(width) for text, width in zip(header, widths, strict=True))]
        total_width = len(lines[0])
        for i, text_row in enumerate(text_rows):
            threads = row_keys[i][0]
            if i == 0 or threads != row_keys[i - 1][0]:
                lines.append(f"{threads} threads: ".ljust(total_width, "-"))
            row = [column[i] for column in columns]
            segments = [text_row[0].ljust(widths[0])]
            for j, measurement in enumerate(row):
                same_threads = [m for m, key in zip(columns[j], row_keys, strict=True) if key[0] == threads]
                best = _best_median(row if self._colors == "rowwise" else same_threads)
                segment = text_row[j + 1].center(widths[j + 1])
                is_colored = self._colors is not None and measurement is not None
                segments.append(_color(segment, measurement.median, best) if is_colored and measurement else segment)
            lines.append("  |  ".join(segments))
        title = f" {label or ''} ".center(total_width - 2, "-")
        footer = f"\nTimes are in {unit_to_english(unit)}s ({unit}).\n"
        if self._highlights and any(m.has_warnings for m in results):
            footer += "(! XX%) Measurement has high variance, where XX is the IQR / median * 100.\n"
        return "\n".join([f"[{title}]", *lines, footer])

    def _column_texts(self, column: Sequence[Measurement | None], scale: float) -> list[str]:
        """Return the texts of a column's times, right-aligned; those of missing times are blank."""
        measurements = [m for m in column if m is not None]
        highlights = self._highlights and any(m.has_warnings for m in measurements)
        integer_digits = [math.ceil(math.log10(m.median / scale)) for m in measurements]
        decimals = 1
        if self._trims:
            figures = [m.significant_figures for m in measurements]
            decimals = min(max(count - digits, 0) for count, digits in zip(figures, integer_digits, strict=True))
        width = max(integer_digits) + decimals + (1 if decimals else 0)

        def format_time(seconds: float, spread: str) -> str:
            return f"{seconds:>{width}.{decimals}f}" + (f"{spread:>7}" if highlights else "")

        texts = []
        for m in column:
            if m is None:
                texts.append(" " * len(format_time(1.0, "")))
                continue
            value = m.median / scale
            spread = f" (! {m.iqr / m.median * 100:.0f}%)" if m.has_warnings else ""
            texts.append(format_time(trim_sigfig(value, m.significant_figures) if self._trims else value, spread))
        return texts


def _row_key(measurement: Measurement) -> _RowKey:
    return measurement.task_spec.num_threads, measurement.task_spec.env or "", measurement.as_row_name


def _row_names(row_keys: Sequence[_RowKey]) -> list[str]:
    """Return the names of rows, after the environment where it changes and where there are several."""
    envs = {env for _, env, _ in row_keys}
    width = (max(map(len, envs)) if len(envs) > 1 else 0) + 4
    names = []
    previous: tuple[int, str] | None = None
    for threads, env, name in row_keys:
        shows_env = len(envs) > 1 and (threads, env) != previous
        names.append("  " + (f"({env})" if shows_env else "").ljust(width) + name)
        previous = threads, env
    return names


def _best_median(measurements: Sequence[Measurement | None]) -> float:
    return min((m.median for m in measurements if m is not None), default=math.inf)


def _color(text: str, seconds: float, best: float) -> str:
    """Return the text with the terminal's codes for a color by the ratio of a time to the best time."""
    if seconds <= best * 1.01 or seconds <= best + 100e-9:
        return _BEST + _BOLD + text + _END * 2
    if seconds <= best * 1.1:
        return _GOOD + _BOLD + text + _END * 2
    if seconds >= best * 5:
        return _VERY_BAD + _BOLD + text + _END * 2
    return _BAD + text + _END * 2 if seconds >= best * 2 else text
