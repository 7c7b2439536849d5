"""What a run comes to: geometric means over the rows that passed on every device, and nothing that ranks more."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from .rows import Entry

__all__ = ["lines", "mean"]

_LIMITS = ("roofline", "peak", "transfer", "launch", "process")  # groups that say what a device is, not what ops are


def mean(values: Iterable[float]) -> float:
    """The geometric mean of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def lines(entries: Sequence[Entry]) -> list[str]:
    """By device: its peers' times by its own. Then the devices' times beside the first one's, in the same rows: by
    least times, and by rounds that took turns.

    Only rows that passed on every device count, and only those that a peer has on this device. The same row is the same
    op, shape and dtype everywhere.
    """
    kernels = [e for e in entries if e.part == "kernel" and e.group not in _LIMITS]
    devices = list(dict.fromkeys((e.hardware, e.device) for e in kernels))
    by_row: dict[tuple[str, str, str], dict[tuple[str, str], Entry]] = {}
    for entry in kernels:
        by_row.setdefault((entry.suite, entry.group, entry.name), {})[entry.hardware, entry.device] = entry
    common = [row for row in by_row.values() if len(row) == len(devices) and all(e.time for e in row.values())]
    if len(common) < 2:
        return []
    where = "on every device" if len(devices) > 1 else "checks"
    left_out = len(by_row) - len(common)
    found = [f"\ngeometric means over the {len(common)} rows that passed {where}, of least times"
             + (f" ({left_out} left out)" if left_out else "") + ":"]  # fmt: skip
    ours = {device for _, device in devices}
    for device in devices:
        peers = dict.fromkeys(name for row in common for name in row[device].peers if name not in ours)
        parts = []
        for peer in peers:
            ratios = [ratio[0] for row in common if (ratio := row[device].ratio(peer))]
            parts.append(f"{peer} {mean(ratios):.2f}" + (f" ({len(ratios)} rows)" if len(ratios) < len(common) else ""))
        if parts:
            found.append(f"  {device[1]}: others' time by ours: {', '.join(parts)}")
    for device in devices[1:]:
        beside = mean(_least(row[device]) / _least(row[devices[0]]) for row in common)
        pairs = [pair for row in common if (pair := _paired(row[device], row[devices[0]])) is not None]
        also = f" ({mean(pairs):.2f} by medians of rounds, which took turns)" if len(pairs) == len(common) else ""
        found.append(f"  {device[1]} takes {beside:.2f} of the time of {devices[0][1]}{also}")
    return found if len(found) > 1 else []


def _paired(one: Entry, other: Entry) -> float | None:
    """The median of what a row took by what it took on the other device in the same round, where rounds took turns: in
    one run, on hardware of one kind. None elsewhere."""
    if not one.time or not other.time or (one.hardware, one.date) != (other.hardware, other.date):
        return None
    rounds = [one.time["rounds"], other.time["rounds"]]
    if len(rounds[0]) != len(rounds[1]) or len(rounds[0]) < 3:
        return None
    return statistics.median(a / b for a, b in zip(*rounds, strict=True))


def _least(entry: Entry) -> float:
    return float(entry.time["least"]) if entry.time else math.inf
