"""Rows of reports: one `Entry` for each row and device, whatever suite, file and machine it comes from.

A report is {format, suite, machine, host: rows, kernels: rows}, with `curves` and `timelines` for training steps.

A row of `kernels` has `group`, `name`, `bytes`, `flops`, `precision`, `clock`, `dtype` (of the computation), `against`
(the reference of the check), `target` and `notes`; and what a call processes as `items`, with their `unit`, if it has a
throughput. By device or peer it has:

    errors   relative to the largest value
    times    seconds: `least` (minimum), `median`, `p20`, `p80`, `rounds` (each round's minimum), `host` (to queue a
             call), `mean`, `deviation` (standard deviation), `largest`; counts: `samples`, `late`
    ratios   to our first device's times
    share    of the measured roofline
    limit    what the share is of: `memory`, `cache`, `above memory` or `compute`, as in `roofline`
    facts    see `Entry`

`load` is the number of cores that other programs used while the row was measured (`machine_load`), and the machine's
`load_before` the same before the run. A row with a `problem` has no times. In a report merged from several processes
every row names its `device`, and each of `machine.devices` has the `places` (devices) of its own peers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from .colours import printable as _text
from .doubts import load_doubts, ratio_range, sample_doubts
from .number_text import number

if TYPE_CHECKING:
    from .report_types import Facts, HostRow, KernelRow, Machine, Report, Times

__all__ = ["FORMAT", "Entry", "NumberFact", "Section", "device_labels", "entries", "hardware_names", "machine_key",
           "number", "sections", "suite_of", "throughput", "throughput_text"]  # fmt: skip

NumberFact = Literal["launches", "cold_ms", "warm_ms", "peak_bytes", "driver_allocations", "host_us"]
FORMAT = 1  # version of report files; increased when an older reader would misread a report
_KIND_OF_WORD = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16",
                 "float16": "fp16", "fp64": "fp64", "float64": "fp64"}  # fmt: skip


def _no_facts() -> Facts:
    return {}


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a report on one of our devices.

    Attributes:
        suite: The suite's name.
        part: `kernel` or `host`.
        group: Group of rows, such as `reduction`.
        name: The row's name.
        device: Our device, such as `cpu`.
        hardware: Name of the device's hardware; see `hardware_names`.
        date: When the report was measured.
        bytes: Bytes that a call must move.
        flops: Operations that a call must compute.
        kind: The arithmetic, `fp32`, or `fp32 high` for a matmul precision below `highest`.
        time: Seconds (`least`, `median`, `p20`, `p80`, `rounds`, `mean`, `deviation`) and `samples`; None if the row
            has a problem.
        peers: The same for the libraries that the row is compared with.
        same_hardware: The libraries that ran on this device's hardware.
        aims: The project's minimum ratios, by peer.
        missed: The aims that were not reached.
        copy: Our bandwidth / a copy's bandwidth, of minima and of medians.
        limits: Upper limits in seconds for a host cost's minimum and median.
        error: The largest error relative to the largest value.
        clock: What was timed: `device` or `wall`.
        notes: Remarks of the measurement.
        problem: Why the row was not measured; None if it was.
        dtype: The dtype of the computation.
        against: The reference of the check.
        facts: Further measurements on this device: `schedule` (kernel names), `launches`, `cold_ms` and `warm_ms`
            (compile times), `peak_bytes`, `driver_allocations`, `accuracy` (`abs`, `rel`, `ulp`), `host_us` (minimum to
            queue a call).
        items: How many items a call processes, such as 64.
        unit: The items' name, such as `images`.
        resident: For this device and each peer, the bytes by which a process grows that computes only this row.
        load: The cores that other programs used while the row was measured; None if unknown.
        cache: Bytes of the last cache before the device's memory; 0 if unknown.
        host: System and cores of the machine. It tells reports of several machines apart.
        cores: Cores of the machine; None if unknown.
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
    time: Times | None
    peers: dict[str, Times]
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
    facts: Facts = field(default_factory=_no_facts)
    items: int = 0
    unit: str = ""
    resident: dict[str, int] = field(default_factory=dict)
    load: float | None = None
    cache: int = 0
    host: str = ""
    cores: int | None = None

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why the times are uncertain: load on the machine, samples that disagree; empty if they are not."""
        if self.time is None:
            return ()
        return (*load_doubts(self.load, self.cores), *sample_doubts(self.time))

    def peer_doubts(self, peer: str) -> tuple[str, ...]:
        """Return why a peer's time, and so the ratio to it, is uncertain, apart from `doubts`; empty if it is not."""
        other = self.peers.get(peer)
        return () if other is None or self.time is None else sample_doubts(other, peer)

    @property
    def remarks(self) -> str:
        """The row's problem, or its notes and doubts, those of its peers included."""
        of_peers = [doubt for peer in self.peers for doubt in self.peer_doubts(peer)]
        return self.problem or "; ".join((*self.notes, *self.doubts, *of_peers))

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

    def ratio_range(self, peer: str) -> tuple[float, float] | None:
        """Return the least and the largest ratio to a peer that the samples support; None if there is no ratio."""
        other = self.peers.get(peer)
        return None if other is None or self.time is None else ratio_range(self.time, other)

    def accuracy(self, measure: Literal["abs", "rel", "ulp"]) -> float | None:
        """Return the largest error by one of the three measures; None if the report has none."""
        errors = self.facts.get("accuracy")
        value = errors.get(measure) if errors else None
        return None if value is None else float(value)

    def number(self, fact: NumberFact) -> float | None:
        """Return a fact that is a number; None if the report does not have it."""
        value = self.facts.get(fact)
        return None if value is None else float(value)

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


def suite_of(report: Report) -> str:
    """Return the suite's name. Old reports have none; it is inferred from groups that only one suite has."""
    if "suite" in report:
        return _text(report["suite"])
    groups = {row["group"] for row in report["kernels"]}
    if groups & {"data", "optimizer"}:
        return "train"
    return "ops" if groups & {"pooling", "scan", "sort", "attention", "shape"} else "core"


def entries(reports: Iterable[Report]) -> list[Entry]:
    """Return the entries of all reports. If several reports have the same row on the same hardware, the latest wins."""
    by_key: dict[tuple[str, ...], Entry] = {}
    all_reports = list(reports)
    names = hardware_names(all_reports)
    for index in sorted(range(len(all_reports)), key=lambda i: str(all_reports[i]["machine"]["date"])):
        for entry in _entries(all_reports[index], names[index]):
            by_key[(entry.hardware, *entry.key)] = entry
    return list(by_key.values())


def hardware_names(reports: Sequence[Report]) -> list[dict[str, str]]:
    """Return the hardware's name of each report's devices, by device.

    Machines that differ may have processors of one name, such as `AMD EPYC`. They get a number, `AMD EPYC, machine 2`,
    in the order of the reports; `page.machines` shows what differs.
    """
    machines_by_name: dict[str, list[tuple[str, ...]]] = {}
    for report in reports:
        for device in report["machine"]["devices"]:
            machines = machines_by_name.setdefault(_text(device["name"]), [])
            if (key := machine_key(report["machine"])) not in machines:
                machines.append(key)
    names = []
    for report in reports:
        key, by_device = machine_key(report["machine"]), dict[str, str]()
        for device in report["machine"]["devices"]:
            name = _text(device["name"])
            machines = machines_by_name[name]
            by_device[_text(device["device"])] = (
                f"{name}, machine {machines.index(key) + 1}" if len(machines) > 1 else name
            )
        names.append(by_device)
    return names


def machine_key(machine: Machine) -> tuple[str, ...]:
    """Return what tells one machine from another: system, cores, cache and the processor's family, model, stepping."""
    return tuple(str(machine.get(fact, "")) for fact in ("system", "cores", "cache", "processor"))


def sections(all_entries: Sequence[Entry]) -> list[Section]:
    """Group entries into sections by device and suite, in their order; host costs come before kernels."""
    by_key: dict[tuple[str, ...], Section] = {}
    for entry in sorted(all_entries, key=lambda e: e.part != "host"):
        key = (entry.hardware, entry.device, entry.suite, entry.part)
        by_key.setdefault(key, Section(*key, [])).entries.append(entry)
    order = list(dict.fromkeys((e.hardware, e.device, e.suite) for e in all_entries))
    return sorted(by_key.values(), key=lambda s: order.index((s.hardware, s.device, s.suite)))


def device_labels(all_entries: Iterable[Entry]) -> dict[tuple[str, str], str]:
    """Return a name for each device, by hardware and device: `cpu`, or `AMD EPYC (cpu)` among several machines."""
    devices = {(entry.hardware, entry.device): entry.host for entry in all_entries}
    if len(set(devices.values())) == 1 and len({device for _, device in devices}) == len(devices):
        return {key: key[1] for key in devices}
    return {(hardware, device): f"{hardware} ({device})" for hardware, device in devices}


def throughput(items: int, time: Times) -> tuple[float, float] | None:
    """Return mean and standard deviation of items per second, from those of a call's seconds; None if unknown.

    The deviation is that of the seconds, propagated to first order: `items / mean * deviation / mean`.
    """
    mean = float(time.get("mean", 0.0))
    return (items / mean, items * float(time["deviation"]) / mean**2) if items and mean else None


def throughput_text(rate: tuple[float, float] | None, unit: str) -> str:
    """Format a throughput, `12.3 ± 0.4 images/s`; empty if there is none."""
    return "" if rate is None else f"{number(rate[0])} ± {number(rate[1])} {unit}/s"


def _entries(report: Report, hardware: Mapping[str, str]) -> Iterator[Entry]:
    """Yield the entries of a report. hardware: the names of its devices' hardware, by device."""
    machine, suite = report["machine"], suite_of(report)
    if not hardware:
        raise IndexError("a machine without devices")
    first = next(iter(hardware))
    for row in report["host"]:
        device = _text(row.get("device", first))
        yield _host_entry(row, suite, machine, device, hardware[device])
    for kernel_row in report["kernels"]:
        # A row of a merged report names its only device.
        main = _text(kernel_row.get("device", first))
        for device in hardware:
            has_time = device in map(_text, kernel_row.get("times", {}))
            if has_time or (device == main and "problem" in kernel_row):
                yield _kernel_entry(kernel_row, suite, machine, device, hardware[device], device == main)


def _host_entry(row: HostRow, suite: str, machine: Machine, device: str, hardware: str) -> Entry:
    """Return the entry of a row of host costs."""
    time: Times | None = None
    peers: dict[str, Times] = {}
    missed: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None
    if "problem" not in row:
        time = _timing(row)
        peers = {_text(name): _timing(peer_time) for name, peer_time in row["peers"].items()}
        missed = () if row["met"] else ("limit",)
        min_limit, median_limit = (float(limit) * 1e-6 for limit in row["target_us"])
        limits = min_limit, median_limit
    return Entry(
        suite=suite, part="host", group="host", name=_text(row["name"]), device=device, hardware=hardware,
        date=_text(machine["date"]), bytes=0, flops=0, kind="", time=time, peers=peers, same_hardware=frozenset(),
        aims={}, missed=missed, copy=None, limits=limits, error=None, clock="wall", notes=(),
        problem=_text(row["problem"]) if "problem" in row else None, load=_load(row), host=_host_name(machine),
        cores=machine.get("cores"),
    )  # fmt: skip


def _kernel_entry(row: KernelRow, suite: str, machine: Machine, device: str, hardware: str, is_main: bool) -> Entry:
    """Return the entry of a row of kernels for one device. is_main: the row's aims are those of this device."""
    times = {_text(name): _timing(time) for name, time in row.get("times", {}).items()}
    time = times.get(device)
    copy = row.get("ratios", {}).get("copy")
    error = row.get("errors", {}).get(device)
    return Entry(
        suite=suite, part="kernel", group=_text(row["group"]), name=_text(row["name"]), device=device,
        hardware=hardware, date=_text(machine["date"]), bytes=int(row["bytes"]), flops=int(row["flops"]),
        kind=_kind(row), time=time, peers={name: t for name, t in times.items() if name != device},
        same_hardware=frozenset(name for name in times if _ran_on_hardware(name, device, machine)),
        aims={_text(name): float(aim) for name, aim in (row.get("target") or {}).items()} if is_main else {},
        missed=tuple(map(_text, row.get("missed", ()))) if is_main else (),
        copy=(float(copy[0]), float(copy[1])) if copy and is_main else None, limits=None,
        error=None if error is None else float(error), clock=str(row.get("clock", "device")),
        notes=tuple(map(_text, row.get("notes", ()))),
        problem=_text(row.get("problem", "not measured")) if time is None else None, dtype=_text(row.get("dtype", "")),
        against=_text(row.get("against", "")), facts=_facts(row, device, time), items=int(row.get("items", 0)),
        unit=_text(row.get("unit", "")),
        resident={_text(name): int(size) for name, size in row.get("resident", {}).items()},
        load=_load(row), cache=_cache_bytes(machine, device),
        host=_host_name(machine), cores=machine.get("cores"),
    )  # fmt: skip


def _load(row: HostRow | KernelRow) -> float | None:
    load = row.get("load")
    return None if load is None else float(load)


def _cache_bytes(machine: Machine, device: str) -> int:
    """Return the bytes of the host's last-level cache if the device is a CPU."""
    kinds = {_text(d["device"]): d.get("kind", "CPU" if d["device"] == "cpu" else "") for d in machine["devices"]}
    return int(machine.get("cache", 0)) if kinds.get(device) == "CPU" else 0


def _host_name(machine: Machine) -> str:
    return f"{_text(machine.get('system', ''))}, {machine.get('cores')} cores"


def _facts(row: KernelRow, device: str, timing: Times | None) -> Facts:
    """Return the row's facts about a device, with `host_us` taken from its times."""
    facts = row.get("facts", {}).get(device, {})
    if timing is None or not timing["host"]:
        return facts
    return {**facts, "host_us": timing["host"] * 1e6}


def _ran_on_hardware(name: str, device: str, machine: Machine) -> bool:
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


def _kind(row: KernelRow) -> str:
    """Return the arithmetic's kind, from the row's `dtype`, else from a word of its name, else `fp32`."""
    words = [str(row.get("dtype", "")), *re.split(r"[\s,]+", _text(row["name"]))]
    kind = next((_KIND_OF_WORD[word] for word in words if word in _KIND_OF_WORD), "fp32")
    precision = str(row.get("precision", "highest"))
    return f"{kind} {precision}" if kind == "fp32" and precision != "highest" else kind


def _timing(row: Times | HostRow) -> Times:
    """Read times from a report. Raise ValueError unless they are positive and finite."""
    least, median = float(row["least"]), float(row["median"])
    p20, p80 = float(row.get("p20", median)), float(row.get("p80", median))
    rounds = [float(seconds) for seconds in row.get("rounds", ())]
    for seconds in (least, median, p20, p80, *rounds):
        if not 0 < seconds < float("inf"):  # nor NaN
            raise ValueError(f"a time of {seconds} s")
    return {"least": least, "median": median, "p20": p20, "p80": p80, "samples": int(row.get("samples", 1)),
            "late": int(row.get("late", 0)), "host": float(row.get("host", 0.0)),
            "mean": float(row.get("mean", 0.0)), "deviation": float(row.get("deviation", 0.0)),
            "largest": float(row.get("largest", 0.0)), "rounds": rounds}  # fmt: skip
