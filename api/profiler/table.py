"""Format a profile's sums as the table that `key_averages().table()` returns. Times are in microseconds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError

if TYPE_CHECKING:
    from .events import FunctionEventAvg

__all__ = ["SORTS", "format_time", "render", "total_times"]

SORTS = (
    "count", "cpu_time", "cpu_time_total", "self_cpu_time_total", "device_time", "device_time_total",
    "self_device_time_total", "cpu_memory_usage", "self_cpu_memory_usage", "device_memory_usage",
    "self_device_memory_usage",
)  # fmt: skip
_UNITS = {"s": 1e6, "ms": 1e3, "us": 1.0}


def render(
    rows: Sequence[FunctionEventAvg], sort_by: str | None, limit: int, name_width: int, shapes_width: int,
    source_width: int, header: str | None, unit: str | None,
) -> str:  # fmt: skip
    """Return the table: headings, one line per row, and totals. Columns that are empty in every row are left out.

    Args:
        rows: Sums over the events of an op, or of an op with certain shapes or a certain stack.
        sort_by: Attribute to sort by, largest first; one of `SORTS`, or with PyTorch's prefix `cuda_`.
        limit: Maximum number of rows; negative for all. The totals are those of all rows.
        name_width: Maximum width of the column of names.
        shapes_width: Maximum width of the column of shapes.
        source_width: Maximum width of the column of source locations.
        header: A line above the table.
        unit: `s`, `ms` or `us` for all times; None chooses a unit for each.

    Raises:
        ArgumentError: `sort_by` or `unit` is unknown.
    """
    if sort_by is not None:
        attribute = sort_by.replace("cuda_", "device_").replace("xpu_", "device_")
        if attribute not in SORTS:
            raise ArgumentError(f"table: sort_by is one of {', '.join(SORTS)}, not {sort_by!r}")
        rows = sorted(rows, key=lambda row: getattr(row, attribute), reverse=True)
    if unit is not None and unit not in _UNITS:
        raise ArgumentError(f"table: time_unit is s, ms or us, not {unit!r}")
    host, device = total_times(rows)
    visible_rows = rows[:limit] if limit >= 0 else rows

    def time(value: float) -> str:
        return format_time(value) if unit is None else f"{value / _UNITS[unit]:.3f}{unit}"

    def percentage(value: float, total: float) -> str:
        return f"{value / total:.2%}" if total else "--"

    columns: list[tuple[str, Callable[[FunctionEventAvg], str]]] = [
        ("Name", lambda r: _cut(r.key, name_width)),
        ("Self CPU %", lambda r: percentage(r.self_cpu_time_total, host)),
        ("Self CPU", lambda r: time(r.self_cpu_time_total)),
        ("CPU total %", lambda r: percentage(r.cpu_time_total, host)),
        ("CPU total", lambda r: time(r.cpu_time_total)),
        ("CPU time avg", lambda r: time(r.cpu_time)),
    ]
    if device:
        columns += [
            ("Self Device", lambda r: time(r.self_device_time_total)),
            ("Self Device %", lambda r: percentage(r.self_device_time_total, device)),
            ("Device total", lambda r: time(r.device_time_total)),
            ("Device time avg", lambda r: time(r.device_time)),
        ]
    for memory_kind, title in (("cpu", "CPU Mem"), ("device", "Device Mem")):
        if any(getattr(row, f"{memory_kind}_memory_usage") for row in rows):
            columns += [
                (title, _memory_formatter(f"{memory_kind}_memory_usage")),
                (f"Self {title}", _memory_formatter(f"self_{memory_kind}_memory_usage")),
            ]  # fmt: skip
    columns.append(("# of Calls", lambda r: str(r.count)))
    if any(row.input_shapes for row in rows):
        columns.append(("Input Shapes", lambda r: _cut(str(list(r.input_shapes)), shapes_width)))
    if any(row.stack for row in rows):
        columns.append(("Source Location", lambda r: _cut(r.stack[0] if r.stack else "", source_width, end=True)))
    cells = [[text(row) for _, text in columns] for row in visible_rows]
    widths = [max([len(title), *(len(row_cells[i]) for row_cells in cells)]) for i, (title, _) in enumerate(columns)]
    rule = "  ".join("-" * width for width in widths)

    def align(texts: Sequence[str]) -> str:
        name, *values = texts
        return "  ".join([name.ljust(widths[0]), *(v.rjust(w) for v, w in zip(values, widths[1:], strict=True))])

    lines = [rule, align([title for title, _ in columns]), rule, *map(align, cells), rule]
    lines.append(f"Self CPU time total: {time(host)}")
    if device:
        lines.append(f"Self Device time total: {time(device)}")
    return "\n".join([*([header] if header else []), *(text.rstrip() for text in lines)]) + "\n"


def _cut(text: str, max_length: int, end: bool = False) -> str:
    """Shorten a text with an ellipsis; `end` says that its end stays, not its beginning."""
    if len(text) <= max_length or max_length <= 3:
        return text
    return "..." + text[3 - max_length :] if end else text[: max_length - 3] + "..."


def _memory_formatter(name: str) -> Callable[[FunctionEventAvg], str]:
    """Return a function that formats a row's attribute `name`, a number of bytes."""
    return lambda row: _format_bytes(getattr(row, name))


def _format_bytes(count: int) -> str:
    """Return a number of bytes with its unit: `1.50 MB`, `12 B`."""
    for unit, size in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10)):
        if abs(count) >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def format_time(microseconds: float) -> str:
    """Return a time with its unit: `1.234s`, `1.234ms`, `1.234us`."""
    for unit, size in (("s", 1e6), ("ms", 1e3)):
        if abs(microseconds) >= size:
            return f"{microseconds / size:.3f}{unit}"
    return f"{microseconds:.3f}us"


def total_times(rows: Sequence[FunctionEventAvg]) -> tuple[float, float]:
    """Return the host and the device microseconds of all rows.

    Device time is summed over the rows of kernels: rows of ops contain the time of their kernels again.
    """
    host = sum(row.self_cpu_time_total for row in rows)
    kernels = [row for row in rows if row.is_kernel]
    return host, sum(row.self_device_time_total for row in kernels)
