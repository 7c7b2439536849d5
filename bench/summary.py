"""Summary of a run: geometric means over the rows that passed on every device, and what marks beside numbers mean."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence

from .doubts import load_doubts, ratio_range, sample_doubts
from .roofline import roofs, share
from .rows import Entry, device_labels

__all__ = ["is_op_row", "legend", "lines", "mean"]

_Row = dict[tuple[str, str], Entry]
"""The entries of a row by hardware and device."""

_DEVICE_GROUPS = ("roofline", "cache", "peak", "transfer", "launch", "process")  # rows that measure the device, not ops


def mean(values: Iterable[float]) -> float:
    """Return the geometric mean of positive numbers."""
    logs = [math.log(value) for value in values]
    return math.exp(sum(logs) / len(logs))


def lines(entries: Sequence[Entry]) -> list[str]:
    """Return the lines of the summary.

    For each device the ratios to its peers, then each device's time relative to the first device's. Behind each mean
    stands the range of the means of what the rows' samples support (`doubts.ratio_range`).

    Only rows that passed on every device count; a peer's mean is over the rows that it has. The same row is the same
    op, shape and dtype everywhere. Rows that are marked as uncertain are left out, as `_certain_rows` says.
    """
    kernels = [e for e in entries if is_op_row(e)]
    labels = device_labels(kernels)
    devices = list(dict.fromkeys((e.hardware, e.device) for e in kernels))
    by_row: dict[tuple[str, str, str], _Row] = {}
    for entry in kernels:
        by_row.setdefault((entry.suite, entry.group, entry.name), {})[entry.hardware, entry.device] = entry
    complete_rows = [row for row in by_row.values() if len(row) == len(devices) and all(e.time for e in row.values())]
    if len(complete_rows) < 2:
        return []
    ours = {device for _, device in devices}
    peers = {
        device: list(dict.fromkeys(n for row in complete_rows for n in row[device].peers if n not in ours))
        for device in devices
    }
    if len(devices) == 1 and not peers[devices[0]]:
        return []
    rows, remark = _certain_rows(complete_rows, peers)
    text = [_head(len(rows), len(by_row) - len(complete_rows), remark, len(devices))]
    for device in devices:
        parts = []
        for peer in peers[device]:
            entries_with_peer = [row[device] for row in rows if row[device].ratio(peer)]
            ratios = [ratio[0] for entry in entries_with_peer if (ratio := entry.ratio(peer))]
            ranges = [limits for entry in entries_with_peer if (limits := entry.ratio_range(peer))]
            if ratios:
                count = f", {len(ratios)} rows" if len(ratios) < len(rows) else ""
                parts.append(f"{peer} {mean(ratios):.2f} ({_range_text(ranges)}{count})")
        if parts:
            text.append(f"  {labels[device]}: others' time by ours: {', '.join(parts)}")
    for device in devices[1:]:
        times = [(other.time, own.time) for row in rows
                 if (other := row[devices[0]]).time and (own := row[device]).time]  # fmt: skip
        ratio_to_first = mean(own["least"] / other["least"] for other, own in times)
        has_paired_rounds = all(_share_rounds(row[device], row[devices[0]]) for row in rows)
        in_brackets = [_range_text([ratio_range(other, own) for other, own in times])] if has_paired_rounds else []
        pairs = [pair for row in rows if (pair := _median_round_ratio(row[device], row[devices[0]])) is not None]
        if len(pairs) == len(rows):
            in_brackets.append(f"{mean(pairs):.2f} by medians of rounds, which took turns")
        text.append(f"  {labels[device]} takes {ratio_to_first:.2f} of the time of {labels[devices[0]]}"
                    + (f" ({'; '.join(in_brackets)})" if in_brackets else ""))  # fmt: skip
    return text


def is_op_row(entry: Entry) -> bool:
    """Return True if a row measures an op or a model, not the device itself."""
    return entry.part == "kernel" and entry.group not in _DEVICE_GROUPS


def _head(row_count: int, incomplete: int, remark: str, device_count: int) -> str:
    scope = "on every device" if device_count > 1 else "checks"
    text = f"\ngeometric means over {row_count} rows that passed {scope}, of least times"
    notes = [remark] if remark else []
    if incomplete:
        notes.append(f"{incomplete} that did not pass {scope} left out")
    return text + (f" ({'; '.join(notes)})" if notes else "") + ":"


def _certain_rows(rows: Sequence[_Row], peers: Mapping[tuple[str, str], Sequence[str]]) -> tuple[Sequence[_Row], str]:
    """Return the rows without marks, and a remark about those that are left out.

    On a machine that is busy all the time most rows are marked, and means over the few others would be of a handful
    that differ from run to run. If fewer than half of the rows have no mark, those whose samples agree count, which
    load slowed evenly; if these are fewer than half, too, all rows count, and the remark says that the means are
    uncertain.
    """

    def disagrees(row: _Row) -> bool:
        return any((entry.time and sample_doubts(entry.time)) or any(map(entry.peer_doubts, peers[device]))
                   for device, entry in row.items())  # fmt: skip

    agreeing = [row for row in rows if not disagrees(row)]
    unmarked = [row for row in agreeing if not any(entry.doubts for entry in row.values())]
    for candidates, cause in (
        (unmarked, "marked ~ left out"),
        (agreeing, "whose samples disagree left out; most rows were measured under load, so the means are uncertain"),
    ):
        if 2 * len(candidates) >= len(rows) and len(candidates) > 1:
            left_out = len(rows) - len(candidates)
            return candidates, f"{left_out} {cause}" if left_out or candidates is agreeing else ""
    return rows, f"uncertain: {len(rows) - len(agreeing)} are marked ~ because samples disagree, too many to leave out"


def _range_text(ranges: Sequence[tuple[float, float]]) -> str:
    """Return the geometric means of the lower and of the upper ends: `0.91 to 1.20`."""
    return f"{mean(low for low, _ in ranges):.2f} to {mean(high for _, high in ranges):.2f}"


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
    disagreeing = sum(bool(entry.time and sample_doubts(entry.time)) or any(map(entry.peer_doubts, entry.peers))
                      for entry in timed)  # fmt: skip
    if loaded or disagreeing:
        text.append(f"~: uncertain; of {len(timed)} rows {loaded} were measured under load, of {disagreeing} the "
                    "samples disagree")  # fmt: skip
    return text


def _share_rounds(entry: Entry, other: Entry) -> bool:
    """Return True if the rounds of two devices alternated: both are of one run, on the same hardware."""
    return (entry.hardware, entry.date) == (other.hardware, other.date)


def _median_round_ratio(entry: Entry, other: Entry) -> float | None:
    """Return the median over rounds of a row's time / its time on the other device in the same round.

    None unless the rounds alternated and there are three or more.
    """
    if not entry.time or not other.time or not _share_rounds(entry, other):
        return None
    rounds = [entry.time["rounds"], other.time["rounds"]]
    if len(rounds[0]) != len(rounds[1]) or len(rounds[0]) < 3:
        return None
    return statistics.median(a / b for a, b in zip(*rounds, strict=True))
