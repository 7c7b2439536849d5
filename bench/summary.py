"""Summary of a run: geometric means over the rows that passed on every device, and what marks beside numbers mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence

from .roofline import roofs, share
from .rows import Entry, device_labels, load_doubts, sample_doubts

__all__ = ["legend", "lines", "mean"]

_DEVICE_GROUPS = ("roofline", "cache", "peak", "transfer", "launch", "process")  # rows that measure the device, not ops


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def lines(entries: Sequence[Entry]) -> list[str]:
    """Return the lines of the summary.

    For each device the ratios to its peers, then each device's time relative to the first device's: by minimum times,
    and by rounds that alternated.

    Only rows that passed on every device count; a peer's mean is over the rows that it has. The same row is the same
    op, shape and dtype everywhere.
    """
    kernels = [e for e in entries if e.part == "kernel" and e.group not in _DEVICE_GROUPS]
    labels = device_labels(kernels)
    devices = list(dict.fromkeys((e.hardware, e.device) for e in kernels))
    by_row: dict[tuple[str, str, str], dict[tuple[str, str], Entry]] = {}
    for entry in kernels:
        by_row.setdefault((entry.suite, entry.group, entry.name), {})[entry.hardware, entry.device] = entry
    complete_rows = [row for row in by_row.values() if len(row) == len(devices) and all(e.time for e in row.values())]
    if len(complete_rows) < 2:
        return []
    scope = "on every device" if len(devices) > 1 else "checks"
    left_out = len(by_row) - len(complete_rows)
    text = [f"\ngeometric means over the {len(complete_rows)} rows that passed {scope}, of least times"
             + (f" ({left_out} left out)" if left_out else "") + ":"]  # fmt: skip
    ours = {device for _, device in devices}
    for device in devices:
        peers = dict.fromkeys(name for row in complete_rows for name in row[device].peers if name not in ours)
        parts = []
        for peer in peers:
            ratios = [ratio[0] for row in complete_rows if (ratio := row[device].ratio(peer))]
            parts.append(
                f"{peer} {mean(ratios):.2f}" + (f" ({len(ratios)} rows)" if len(ratios) < len(complete_rows) else "")
            )
        if parts:
            text.append(f"  {labels[device]}: others' time by ours: {', '.join(parts)}")
    for device in devices[1:]:
        ratio_to_first = mean(_min_seconds(row[device]) / _min_seconds(row[devices[0]]) for row in complete_rows)
        pairs = [
            pair for row in complete_rows if (pair := _median_round_ratio(row[device], row[devices[0]])) is not None
        ]
        by_rounds = (
            f" ({mean(pairs):.2f} by medians of rounds, which took turns)" if len(pairs) == len(complete_rows) else ""
        )
        text.append(f"  {labels[device]} takes {ratio_to_first:.2f} of the time of {labels[devices[0]]}{by_rounds}")
    return text if len(text) > 1 else []


def legend(entries: Sequence[Entry]) -> list[str]:
    """Return a line for each kind of mark that a table of these entries has."""
    roof_by_hardware = roofs(entries)
    shares = [share(entry, roof_by_hardware.get(entry.hardware)) for entry in entries]
    limits = {row_share.limit for row_share in shares if row_share}
    text = []
    if "cache" in limits:
        text.append("c: operands fit a cache, so the share is of a cache's bandwidth")
    if "above memory" in limits:
        text.append(">: faster than the copies in memory, by a cache's help, so the share is of a cache's bandwidth")
    timed = [entry for entry in entries if entry.time]
    loaded = sum(bool(load_doubts(entry.load, entry.cores)) for entry in timed)
    disagreeing = sum(bool(entry.time and sample_doubts(entry.time)) for entry in timed)
    if loaded or disagreeing:
        text.append(f"~: uncertain; of {len(timed)} rows {loaded} were measured under load, of {disagreeing} the "
                    "samples disagree")  # fmt: skip
    return text


def _median_round_ratio(entry: Entry, other: Entry) -> float | None:
    """Return the median over rounds of a row's time / its time on the other device in the same round.

    None unless the rounds alternated: both devices in one run, on the same hardware.
    """
    if not entry.time or not other.time or (entry.hardware, entry.date) != (other.hardware, other.date):
        return None
    rounds = [entry.time["rounds"], other.time["rounds"]]
    if len(rounds[0]) != len(rounds[1]) or len(rounds[0]) < 3:
        return None
    return statistics.median(a / b for a, b in zip(*rounds, strict=True))


def _min_seconds(entry: Entry) -> float:
    return float(entry.time["least"]) if entry.time else math.inf
