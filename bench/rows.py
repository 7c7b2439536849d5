"""Reports read back: an entry for each row and device, whichever suite, file and machine it came from.

A report is {format, suite, machine, host: rows, kernels: rows}, with curves and timelines where a suite has them. A row
of kernels has `group`, `name`, `bytes`, `flops`, `precision`, `clock`, `dtype` (of what is computed), `against` (what
results were checked with), `target`, `notes`, and by device or peer: `errors`, `times` (seconds: `least`, `median`,
`p20`, `p80`, `rounds`, which are the least of each, `host`, which is what the host took to queue a call; `samples`,
`late`), `ratios`, `share` (of the measured roof) and `facts` (see `Entry`). A row with a `problem` has no times. In a
report that was put together from several processes every row names its `device`, and each of `machine.devices` has the
`places` of its own peers.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..runtime.errors import ArgumentError
from .colours import printable as _text

__all__ = ["FORMAT", "Entry", "Section", "entries", "load", "number", "sections", "suite_of"]

Row = dict[str, Any]
FORMAT = 1  # of reports' files; a number that goes up when an older reader would show something wrong
_KINDS = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16",
          "fp64": "fp64", "float64": "fp64"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a report on one of our devices.

    part: `kernel` or `host`. kind: what the arithmetic is done in, `fp32`, or `fp32 high` for a precision that is not
    the highest. time: seconds (`least`, `median`, `p20`, `p80`, `rounds`) and `samples`; None where the row has a
    problem.
    peers: the same of the others in the row. beside: those of them that ran on this device's hardware. aims: the least
    ratios that the project set itself, by peer; missed: those it did not reach. copy: bandwidth by a copy's, of minima
    and of medians. limits: seconds that the least and the median of a host cost should keep to. error: relative to
    the largest value. dtype: as the row says it. against: what results were checked with. facts: what was found out
    about the row on this device beside its time, as far as the report has it: `schedule` (kernels, a list), `launches`,
    `cold_ms` and `warm_ms` of compiling, `peak_bytes`, `driver_allocations`, `accuracy` (`abs`, `rel`, `ulp`),
    `host_us` (the least that the host took to queue a call).
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
    beside: frozenset[str]
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

    @property
    def key(self) -> tuple[str, str, str, str, str]:
        """What the same row has in another report: suite, part, group, name, device."""
        return self.suite, self.part, self.group, self.name, self.device

    def ratio(self, peer: str) -> tuple[float, float] | None:
        """A peer's time by ours: of minima and of medians."""
        other = self.peers.get(peer)
        if other is None or self.time is None:
            return None
        return other["least"] / self.time["least"], other["median"] / self.time["median"]


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
        """The others, in the order in which rows name them."""
        return list(dict.fromkeys(name for entry in self.entries for name in entry.peers))

    @property
    def title(self) -> str:
        """`NVIDIA H200 (cuda:0): ops`."""
        what = f"{self.suite}, host costs" if self.part == "host" else self.suite
        return f"{self.hardware} ({self.device}): {what}"


def load(path: Path) -> Row:
    """A report that `weftgrad bench --output` wrote. ArgumentError says what is wrong with a file that is none."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ArgumentError(f"bench: {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ArgumentError(f"bench: {path} is not JSON: it is no text in UTF-8") from None
    if not text.strip():
        raise ArgumentError(f"bench: {path} is empty: nothing was measured into it; run it again with --output")
    try:
        report = json.loads(text)
    except ValueError as error:
        cut = getattr(error, "pos", 0) >= len(text.rstrip())
        remedy = "; it ends too early: copy or measure it again" if cut else ""
        raise ArgumentError(f"bench: {path} is not JSON: {error}{remedy}") from None
    except RecursionError:
        raise ArgumentError(f"bench: {path} is no report of `weftgrad bench --output`: nested too deeply") from None
    if isinstance(report, dict) and isinstance(report.get("format"), int) and report["format"] > FORMAT:
        raise ArgumentError(
            f"bench: {path} is of format {report['format']}, of a newer weftgrad, and this one reads up to {FORMAT}: "
            "pip install --upgrade weftgrad"
        )
    try:
        _prove(report)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ArithmeticError) as error:
        raise ArgumentError(
            f"bench: {path} is no report of `weftgrad bench --output`: {type(error).__name__} {error}"
        ) from None
    return dict(report)


def _prove(report: Row) -> None:
    """Read everything that is shown of a report, so that a file in which something is amiss is refused as a whole."""
    from . import page, steps, tables, terminal
    from .colours import plain

    found = entries([report])
    page.machine_facts(report)
    for section in sections(found):
        page.table(section, None)
        terminal.lines(section, None, plain)
    for _ in tables.records(found):
        pass
    steps.curves(report)
    steps.timelines(report)


def suite_of(report: Row) -> str:
    """The suite's name. Reports that do not say it are told apart by the groups that only one suite has."""
    if "suite" in report:
        return _text(report["suite"])
    groups = {row["group"] for row in report["kernels"]}
    if groups & {"data", "optimizer"}:
        return "train"
    return "ops" if groups & {"pooling", "scan", "sort", "attention", "shape"} else "core"


def entries(reports: Iterable[Row]) -> list[Entry]:
    """Of all rows of all reports; where several have the same row on the same hardware, of the latest."""
    found: dict[tuple[str, ...], Entry] = {}
    for report in sorted(reports, key=lambda r: str(r["machine"]["date"])):
        for entry in _entries(report):
            found[(entry.hardware, *entry.key)] = entry
    return list(found.values())


def sections(found: Sequence[Entry]) -> list[Section]:
    """Entries by device and suite, in their order; host costs ahead of kernels."""
    made: dict[tuple[str, ...], Section] = {}
    for entry in sorted(found, key=lambda e: e.part != "host"):
        key = (entry.hardware, entry.device, entry.suite, entry.part)
        made.setdefault(key, Section(*key, [])).entries.append(entry)
    order = list(dict.fromkeys((e.hardware, e.device, e.suite) for e in found))
    return sorted(made.values(), key=lambda s: order.index((s.hardware, s.device, s.suite)))


def number(value: float) -> str:
    """Three digits that count, without an exponent: 0.0123, 4.57, 1230."""
    if value != value or abs(value) == float("inf"):
        return str(value)
    whole = len(str(int(abs(value)))) if abs(value) >= 1 else 0
    if whole or abs(value) >= 0.1:
        return f"{value:.{max(0, 3 - whole)}f}"
    return f"{value:.3g}" if abs(value) >= 1e-4 or not value else f"{value:.1e}"


def _entries(report: Row) -> Iterator[Entry]:
    machine, suite = report["machine"], suite_of(report)
    own = {_text(d["device"]): _text(d["name"]) for d in machine["devices"]}
    first = list(own)[0]  # noqa: RUF015  (IndexError where there is none)
    shared: Row = {"suite": suite, "date": _text(machine["date"])}
    for row in report["host"]:
        broken = "problem" in row
        device = _text(row.get("device", first))
        peers = {} if broken else {_text(n): _timing(t) for n, t in row["peers"].items()}
        low, middle = (float(t) * 1e-6 for t in row.get("target_us", (0, 0)))
        yield Entry(**shared, part="host", group="host", name=_text(row["name"]), device=device, hardware=own[device],
                    bytes=0, flops=0, kind="", time=None if broken else _timing(row), peers=peers, beside=frozenset(),
                    aims={}, missed=() if broken or row["met"] else ("limit",), copy=None,
                    limits=None if broken else (low, middle), error=None, clock="wall", notes=(),
                    problem=_text(row["problem"]) if broken else None)  # fmt: skip
    for row in report["kernels"]:
        times = {_text(n): _timing(t) for n, t in row.get("times", {}).items()}
        facts: Row = shared | {
            "part": "kernel", "group": _text(row["group"]), "name": _text(row["name"]), "kind": _kind(row),
            "bytes": int(row["bytes"]), "flops": int(row["flops"]), "clock": str(row.get("clock", "device")),
            "notes": tuple(map(_text, row.get("notes", ()))), "limits": None,
        }  # fmt: skip
        main = _text(row.get("device", first))  # a row of a report put together from several names its one device
        for device, hardware in own.items():
            mine = times.get(device)
            if mine is None and (device != main or "problem" not in row):
                continue
            aims = row.get("target") or {}
            copy = row.get("ratios", {}).get("copy")
            yield Entry(
                **facts, device=device, hardware=hardware, time=mine,
                peers={n: t for n, t in times.items() if n != device},
                beside=frozenset(n for n in times if _is_beside(n, device, machine)),
                aims={_text(n): float(a) for n, a in aims.items()} if device == main else {},
                missed=tuple(map(_text, row.get("missed", ()))) if device == main else (),
                copy=(float(copy[0]), float(copy[1])) if copy and device == main else None,
                error=None if (error := row.get("errors", {}).get(device)) is None else float(error),
                dtype=_text(row.get("dtype", "")), against=_text(row.get("against", "")),
                facts=_facts(row, device, mine),
                problem=_text(row.get("problem", "not measured")) if mine is None else None,
            )  # fmt: skip


def _facts(row: Row, device: str, mine: Row | None) -> Row:
    """What the row says about a device; the host's times are among the samples."""
    found = dict(row.get("facts", {}).get(device, {}))
    if mine is not None and mine["host"]:
        found["host_us"] = mine["host"] * 1e6
    return found


def _is_beside(name: str, device: str, machine: Row) -> bool:
    """Whether torch or numpy ran on what is `device`: their times show what it can do as well as ours."""
    for each in machine["devices"]:
        if _text(each["device"]) == device and "places" in each:
            place = each["places"].get(name)
            return bool(place == "cpu" if each.get("kind") == "CPU" else place and place != "cpu")
    if name == "numpy":
        return device == "cpu"
    return name == "torch" and machine.get("torch") in (device, device.partition(":")[0])


def _kind(row: Row) -> str:
    """What is multiplied and added: by the row's `dtype`, else by a word of its name, else float32."""
    words = [str(row.get("dtype", "")), *re.split(r"[\s,]+", _text(row["name"]))]
    kind = next((_KINDS[word] for word in words if word in _KINDS), "fp32")
    precision = str(row.get("precision", "highest"))
    return f"{kind} {precision}" if kind == "fp32" and precision != "highest" else kind


def _timing(found: Row) -> Row:
    least, median = float(found["least"]), float(found["median"])
    p20, p80 = float(found.get("p20", median)), float(found.get("p80", median))
    rounds = [float(seconds) for seconds in found.get("rounds", ())]
    for seconds in (least, median, p20, p80, *rounds):
        if not 0 < seconds < float("inf"):  # nor NaN
            raise ValueError(f"a time of {seconds} s")
    return {"least": least, "median": median, "p20": p20, "p80": p80, "samples": int(found.get("samples", 1)),
            "late": int(found.get("late", 0)), "host": float(found.get("host", 0.0)),
            "rounds": rounds}  # fmt: skip
