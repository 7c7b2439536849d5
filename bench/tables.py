"""Entries as flat records, one per contender, for CSV and JSON lines."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .colours import printable
from .roofline import rates, roofs, share
from .rows import Entry, suite_of
from .steps import curves

if TYPE_CHECKING:
    from .report_types import Report, Times

__all__ = ["FIELDS", "as_csv", "as_json_lines", "records"]

Value = str | float | bool | None
Record = Mapping[str, Value]
FIELDS = (
    "suite", "part", "group", "name", "device", "hardware", "contender", "ours", "least_s", "median_s", "p20_s",
    "p80_s", "samples", "late", "ratio_least", "ratio_median", "aim", "missed", "bytes", "flops", "gb_per_s",
    "gflop_per_s", "roofline", "kind", "dtype", "clock", "error", "error_abs", "error_rel", "error_ulp", "against",
    "host_s", "schedule", "launches", "cold_ms", "warm_ms", "peak_bytes", "driver_allocations", "problem", "notes",
    "date", "items", "unit", "items_per_s", "items_per_s_deviation", "limit", "load", "doubts",
    "resident_bytes", "ratio_low", "ratio_high", "mean_s", "largest_s",
)  # fmt: skip
"""Columns. part: `kernel` or `host`. contender: the site that ran; ratio_…: its time / the device's time, and the range
(ratio_low, ratio_high) that samples support; roofline: share of the measured roofline. error: relative to the largest
value; error_abs, error_rel (to the value itself), error_ulp: maximum over all values; against: the reference of the
check. host_s: seconds that the host took to queue a call. cold_ms, warm_ms: compile times without and with the cache.
peak_bytes: maximum in use during a call. items, unit: what a call processes, 64 images for example; items_per_s: mean,
and standard deviation. limit: what `roofline` is a share of. load: cores that other programs used while the row was
measured. doubts: why the times are uncertain. resident_bytes: by how much a process grows that does only this row.
mean_s, largest_s: mean and maximum of the samples."""


def records(entries: Sequence[Entry]) -> Iterator[Record]:
    """Yield a record for each entry's device, then one for each other contender of the row, with its ratio."""
    measured = roofs(entries)
    for entry in entries:
        bytes_rate, flops_rate = rates(entry)
        roofline_share = share(entry, measured.get(entry.hardware))
        fixed: Record = {
            **dict.fromkeys(FIELDS),
            "suite": entry.suite, "part": entry.part, "group": entry.group, "name": entry.name, "device": entry.device,
            "hardware": entry.hardware, "bytes": entry.bytes or None, "flops": entry.flops or None,
            "kind": entry.kind or None, "dtype": entry.dtype or None, "clock": entry.clock, "date": entry.date,
            "items": entry.items or None, "unit": entry.unit or None,
        }  # fmt: skip
        yield {
            **fixed, **_times(entry.time), **_throughput(entry), **_facts(entry),
            "contender": entry.device, "ours": True, "missed": bool(entry.missed),
            "aim": entry.limits[0] if entry.limits else None,
            "gb_per_s": bytes_rate and bytes_rate * 1e-9, "gflop_per_s": flops_rate and flops_rate * 1e-9,
            "roofline": roofline_share.value if roofline_share else None,
            "limit": roofline_share.limit if roofline_share else None, "load": entry.load,
            "doubts": "; ".join(entry.doubts) or None, "error": entry.error, "problem": entry.problem,
            "notes": "; ".join(entry.notes) or None, "resident_bytes": entry.resident.get(entry.device),
        }  # fmt: skip
        for peer, time in entry.peers.items():
            least, median = entry.ratio(peer) or (None, None)
            low, high = entry.ratio_range(peer) or (None, None)
            yield {
                **fixed, **_times(time), **_throughput(entry, peer),
                "contender": peer, "ours": False, "ratio_least": least, "ratio_median": median,
                "ratio_low": low, "ratio_high": high, "doubts": "; ".join(entry.peer_doubts(peer)) or None,
                "aim": entry.aims.get(peer), "missed": peer in entry.missed if peer in entry.aims else None,
                "resident_bytes": entry.resident.get(peer),
                "gb_per_s": entry.bytes / time["least"] * 1e-9 if entry.bytes else None,
                "gflop_per_s": entry.flops / time["least"] * 1e-9 if entry.flops else None,
            }  # fmt: skip


def as_csv(entries: Sequence[Entry]) -> str:
    """Return CSV with a header and a line per record. Text that a spreadsheet would read as a formula gets a `'`."""
    text = io.StringIO()
    writer = csv.DictWriter(text, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _cell(value) for name, value in record.items()} for record in records(entries))
    return text.getvalue()


def as_json_lines(reports: Sequence[Report], entries: Sequence[Entry]) -> str:
    """Return JSON lines: machines, records, steps and timelines.

    One line for each report's machine (`part` is `machine`), for each record, for each step of a memory curve
    (`memory`) and for each timeline (`timeline`).
    """
    heads = [{"part": "machine", "suite": suite_of(report), **report["machine"]} for report in reports]
    steps: list[Mapping[str, object]] = []
    for report in reports:
        for curve in curves(report):
            named = {"part": "memory", "name": curve.name, "device": curve.device}
            steps += [{**named, "step": i + 1, **step} for i, step in enumerate(curve.steps)]
        steps += [{"part": "timeline", **line} for line in report.get("timelines", ())]
    return "".join(json.dumps(line) + "\n" for line in [*heads, *records(entries), *steps])


def _facts(entry: Entry) -> Record:
    """Return the columns for an entry's facts."""
    facts = entry.facts
    return {
        "launches": facts.get("launches"), "cold_ms": facts.get("cold_ms"), "warm_ms": facts.get("warm_ms"),
        "peak_bytes": facts.get("peak_bytes"), "driver_allocations": facts.get("driver_allocations"),
        "error_abs": entry.accuracy("abs"), "error_rel": entry.accuracy("rel"), "error_ulp": entry.accuracy("ulp"),
        "schedule": ", ".join(map(printable, facts.get("schedule") or ())) or None, "against": entry.against or None,
    }  # fmt: skip


def _times(time: Times | None) -> Record:
    if time is None:
        return {}
    return {
        "least_s": time["least"], "median_s": time["median"], "p20_s": time["p20"], "p80_s": time["p80"],
        "samples": time["samples"], "late": time["late"], "host_s": time["host"] or None,
        "mean_s": time.get("mean") or None, "largest_s": time.get("largest") or None,
    }  # fmt: skip


def _throughput(entry: Entry, peer: str = "") -> Record:
    rate = entry.throughput(peer)
    return {} if rate is None else {"items_per_s": rate[0], "items_per_s_deviation": rate[1]}


def _cell(value: Value) -> Value:
    if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r"):
        return "'" + value
    return value
