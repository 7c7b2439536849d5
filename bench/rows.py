"""Rows of reports: one `Entry` for each row and device, whatever suite, file and machine it comes from.

A report is {format, suite, machine, host: rows, kernels: rows}, with `curves` and `timelines` for training steps.

A row of `kernels` has `group`, `name`, `bytes`, `flops`, `precision`, `clock`, `dtype` (of the computation), `against`
(the reference of the check), `target` and `notes`; and what a call processes as `items`, with their `unit`, if it has a
throughput. By device or peer it has:

    errors   relative to the largest value
    times    seconds: `least` (minimum), `median`, `p20`, `p80`, `rounds` (each round's minimum), `host` (to queue a
             call), `mean`, `deviation` (standard deviation); counts: `samples`, `late`
    ratios   to our first device's times
    share    of the measured roofline
    facts    see `Entry`

A row with a `problem` has no times. In a report merged from several processes every row names its `device`, and each of
`machine.devices` has the `places` (devices) of its own peers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from .colours import printable as _text

__all__ = ["FORMAT", "Entry", "Section", "entries", "number", "sections", "suite_of", "throughput", "throughput_text"]

Row = dict[str, Any]
FORMAT = 1  # version of report files; increased when an older reader would misread a report
_KIND_OF_WORD = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16",
                 "float16": "fp16", "fp64": "fp64", "float64": "fp64"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a report on one of our devices.

    part: `kernel` or `host`.
    kind: the arithmetic, `fp32`, or `fp32 high` for a matmul precision below `highest`.
    time: seconds (`least`, `median`, `p20`, `p80`, `rounds`, `mean`, `deviation`) and `samples`; None if the row has a
        problem.
    peers: the same for the row's other contenders. same_hardware: the contenders that ran on this device's hardware.
    aims: the project's minimum ratios by peer. missed: the aims that were not reached.
    copy: our bandwidth / a copy's bandwidth, of minima and of medians.
    limits: upper limits in seconds for a host cost's minimum and median.
    error: relative to the largest value. dtype: as in the row. against: the reference of the check.
    facts: further measurements on this device: `schedule` (kernel names), `launches`, `cold_ms` and `warm_ms` (compile
        times), `peak_bytes`, `driver_allocations`, `accuracy` (`abs`, `rel`, `ulp`), `host_us` (minimum to queue a
        call).
    items, unit: what a call processes, for example 64 and `images`.
    """

    suite: str
    part: str
    group: str
    name: str
    device: str
    hardware: str
    date: str
    bytes: int
    flops: int
    kind: str
    time: Row | None
    peers: dict[str, Row]
    same_hardware: frozenset[str]
    aims: dict[str, float]
    missed: tuple[str, ...]
    copy: tuple[float, float] | None
    limits: tuple[float, float] | None
    error: float | None
    clock: str
    notes: tuple[str, ...]
    problem: str | None
    dtype: str = ""
    against: str = ""
    facts: Row = field(default_factory=dict)
    items: int = 0
    unit: str = ""

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """The key that identifies the same row in another report: suite, part, group, name, device."""
        return self.suite, self.part, self.group, self.name, self.device

    def ratio(self, peer: str) -> tuple[float, float] | None:
        """Return a peer's time / our time, of minima and of medians; None if either is missing."""
        other = self.peers.get(peer)
        if other is None or self.time is None:
            return None
        return other["least"] / self.time["least"], other["median"] / self.time["median"]

    def throughput(self, peer: str = "") -> tuple[float, float] | None:
        """Return mean and standard deviation of items per second, of this device or a peer; None if there is none."""
        time = self.peers.get(peer) if peer else self.time
        return throughput(self.items, time) if time is not None else None


@dataclass(frozen=True, slots=True)
class Section:
    """The entries that share a table: those of one suite and part on one device."""

    hardware: str
    device: str
    suite: str
    part: str
    entries: list[Entry]

    @property
    def peers(self) -> list[str]:
        """The other contenders, in the order in which rows name them."""
        return list(dict.fromkeys(name for entry in self.entries for name in entry.peers))

    @property
    def title(self) -> str:
        """`NVIDIA H200 (cuda:0): ops`."""
        suite = f"{self.suite}, host costs" if self.part == "host" else self.suite
        return f"{self.hardware} ({self.device}): {suite}"


def suite_of(report: Row) -> str:
    """Return the suite's name. Old reports have none; it is inferred from groups that only one suite has."""
    if "suite" in report:
        return _text(report["suite"])
    groups = {row["group"] for row in report["kernels"]}
    if groups & {"data", "optimizer"}:
        return "train"
    return "ops" if groups & {"pooling", "scan", "sort", "attention", "shape"} else "core"


def entries(reports: Iterable[Row]) -> list[Entry]:
    """Return the entries of all reports. If several reports have the same row on the same hardware, the latest wins."""
    by_key: dict[tuple[str, ...], Entry] = {}
    for report in sorted(reports, key=lambda r: str(r["machine"]["date"])):
        for entry in _entries(report):
            by_key[(entry.hardware, *entry.key)] = entry
    return list(by_key.values())


def sections(all_entries: Sequence[Entry]) -> list[Section]:
    """Group entries into sections by device and suite, in their order; host costs come before kernels."""
    by_key: dict[tuple[str, ...], Section] = {}
    for entry in sorted(all_entries, key=lambda e: e.part != "host"):
        key = (entry.hardware, entry.device, entry.suite, entry.part)
        by_key.setdefault(key, Section(*key, [])).entries.append(entry)
    order = list(dict.fromkeys((e.hardware, e.device, e.suite) for e in all_entries))
    return sorted(by_key.values(), key=lambda s: order.index((s.hardware, s.device, s.suite)))


def number(value: float) -> str:
    """Format a number with three significant digits, without an exponent: 0.0123, 4.57, 1230."""
    if value != value or abs(value) == float("inf"):
        return str(value)
    integer_digits = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if integer_digits or abs(value) >= 0.1:
        return f"{value:.{max(0, 3 - integer_digits)}f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or not value else f"{value:.1e}"


def throughput(items: int, time: Row) -> tuple[float, float] | None:
    """Return mean and standard deviation of items per second, from those of a call's seconds; None if unknown.

    The deviation is that of the seconds, propagated to first order: `items / mean * deviation / mean`.
    """
    mean = float(time.get("mean", 0.0))
    return (items / mean, items * float(time["deviation"]) / mean**2) if items and mean else None


def throughput_text(rate: tuple[float, float] | None, unit: str) -> str:
    """Format a throughput, `12.3 ± 0.4 images/s`; empty if there is none."""
    return "" if rate is None else f"{number(rate[0])} ± {number(rate[1])} {unit}/s"


def _entries(report: Row) -> Iterator[Entry]:
    machine, suite = report["machine"], suite_of(report)
    hardware_names = {_text(d["device"]): _text(d["name"]) for d in machine["devices"]}
    first = list(hardware_names)[0]  # noqa: RUF015  (IndexError where there is none)
    common: Row = {"suite": suite, "date": _text(machine["date"])}
    for row in report["host"]:
        broken = "problem" in row
        device = _text(row.get("device", first))
        peers = {} if broken else {_text(n): _timing(t) for n, t in row["peers"].items()}
        min_limit, median_limit = (float(t) * 1e-6 for t in row.get("target_us", (0, 0)))
        yield Entry(**common, part="host", group="host", name=_text(row["name"]), device=device,
                    hardware=hardware_names[device], bytes=0, flops=0, kind="",
                    time=None if broken else _timing(row), peers=peers, same_hardware=frozenset(), aims={},
                    missed=() if broken or row["met"] else ("limit",), copy=None,
                    limits=None if broken else (min_limit, median_limit), error=None, clock="wall", notes=(),
                    problem=_text(row["problem"]) if broken else None)  # fmt: skip
    for row in report["kernels"]:
        times = {_text(n): _timing(t) for n, t in row.get("times", {}).items()}
        facts: Row = common | {
            "part": "kernel", "group": _text(row["group"]), "name": _text(row["name"]), "kind": _kind(row),
            "bytes": int(row["bytes"]), "flops": int(row["flops"]), "clock": str(row.get("clock", "device")),
            "notes": tuple(map(_text, row.get("notes", ()))), "limits": None, "items": int(row.get("items", 0)),
            "unit": _text(row.get("unit", "")),
        }  # fmt: skip
        main = _text(row.get("device", first))  # a row of a report put together from several names its one device
        for device, hardware in hardware_names.items():
            timing = times.get(device)
            if timing is None and (device != main or "problem" not in row):
                continue
            aims = row.get("target") or {}
            copy = row.get("ratios", {}).get("copy")
            yield Entry(
                **facts, device=device, hardware=hardware, time=timing,
                peers={n: t for n, t in times.items() if n != device},
                same_hardware=frozenset(n for n in times if _ran_on_hardware(n, device, machine)),
                aims={_text(n): float(a) for n, a in aims.items()} if device == main else {},
                missed=tuple(map(_text, row.get("missed", ()))) if device == main else (),
                copy=(float(copy[0]), float(copy[1])) if copy and device == main else None,
                error=None if (error := row.get("errors", {}).get(device)) is None else float(error),
                dtype=_text(row.get("dtype", "")), against=_text(row.get("against", "")),
                facts=_facts(row, device, timing),
                problem=_text(row.get("problem", "not measured")) if timing is None else None,
            )  # fmt: skip


def _facts(row: Row, device: str, timing: Row | None) -> Row:
    """Return the row's facts about a device, with `host_us` taken from its times."""
    facts = dict(row.get("facts", {}).get(device, {}))
    if timing is not None and timing["host"]:
        facts["host_us"] = timing["host"] * 1e6
    return facts


def _ran_on_hardware(name: str, device: str, machine: Row) -> bool:
    """Return True if a peer ran on the hardware of `device`, so that its rates count for that device's roofline."""
    for device_facts in machine["devices"]:
        if _text(device_facts["device"]) == device and "places" in device_facts:
            peer_device = device_facts["places"].get(name)
            return bool(
                peer_device == "cpu" if device_facts.get("kind") == "CPU" else peer_device and peer_device != "cpu"
            )
    if name == "numpy":
        return device == "cpu"
    return name == "torch" and machine.get("torch") in (device, device.partition(":")[0])


def _kind(row: Row) -> str:
    """Return the arithmetic's kind, from the row's `dtype`, else from a word of its name, else `fp32`."""
    words = [str(row.get("dtype", "")), *re.split(r"[\s,]+", _text(row["name"]))]
    kind = next((_KIND_OF_WORD[word] for word in words if word in _KIND_OF_WORD), "fp32")
    precision = str(row.get("precision", "highest"))
    return f"{kind} {precision}" if kind == "fp32" and precision != "highest" else kind


def _timing(row: Row) -> Row:
    least, median = float(row["least"]), float(row["median"])
    p20, p80 = float(row.get("p20", median)), float(row.get("p80", median))
    rounds = [float(seconds) for seconds in row.get("rounds", ())]
    for seconds in (least, median, p20, p80, *rounds):
        if not 0 < seconds < float("inf"):  # nor NaN
            raise ValueError(f"a time of {seconds} s")
    return {"least": least, "median": median, "p20": p20, "p80": p80, "samples": int(row.get("samples", 1)),
            "late": int(row.get("late", 0)), "host": float(row.get("host", 0.0)),
            "mean": float(row.get("mean", 0.0)), "deviation": float(row.get("deviation", 0.0)),
            "rounds": rounds}  # fmt: skip
