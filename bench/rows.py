"""Reports read back: an entry for each row and device, whichever suite, file and machine it came from."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..runtime.errors import ArgumentError

__all__ = ["Entry", "Section", "entries", "load", "number", "sections", "suite_of"]

Row = dict[str, Any]
_KINDS = {"fp32": "fp32", "float32": "fp32", "bf16": "bf16", "bfloat16": "bf16", "fp16": "fp16", "float16": "fp16",
          "fp64": "fp64", "float64": "fp64"}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Entry:
    """One row of a report on one of our devices.

    part: `kernel` or `host`. kind: what the arithmetic is done in, `fp32`, or `fp32 high` for a precision that is not
    the highest. time: seconds (`least`, `median`, `p20`, `p80`) and `samples`; None where the row has a problem.
    peers: the same of the others in the row. beside: those of them that ran on this device's hardware. aims: the least
    ratios that the project set itself, by peer; missed: those it did not reach. copy: bandwidth by a copy's, of minima
    and of medians. limits: seconds that the least and the median of a host cost should keep to. error: relative to
    the largest value.
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
        report = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ArgumentError(f"bench: {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ArgumentError(f"bench: {path} is not JSON: {error}") from None
    try:
        list(entries([report]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as error:
        raise ArgumentError(
            f"bench: {path} is no report of `weftgrad bench --output`: {type(error).__name__} {error}"
        ) from None
    return dict(report)


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
    first = next(iter(own))
    shared = {"suite": suite, "date": _text(machine["date"])}
    for row in report["host"]:
        broken = "problem" in row
        peers = {} if broken else {_text(n): _timing(t) for n, t in row["peers"].items()}
        low, middle = (float(t) * 1e-6 for t in row.get("target_us", (0, 0)))
        yield Entry(**shared, part="host", group="host", name=_text(row["name"]), device=first, hardware=own[first],
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
        for device, hardware in own.items():
            mine = times.get(device)
            if mine is None and (device != first or "problem" not in row):
                continue
            aims = row.get("target") or {}
            copy = row.get("ratios", {}).get("copy")
            yield Entry(
                **facts, device=device, hardware=hardware, time=mine,
                peers={n: t for n, t in times.items() if n != device},
                beside=frozenset(n for n in times if _is_beside(n, device, machine)),
                aims={_text(n): float(a) for n, a in aims.items()} if device == first else {},
                missed=tuple(map(_text, row.get("missed", ()))) if device == first else (),
                copy=(float(copy[0]), float(copy[1])) if copy and device == first else None,
                error=row.get("errors", {}).get(device),
                problem=_text(row.get("problem", "not measured")) if mine is None else None,
            )  # fmt: skip


def _text(value: Any) -> str:
    """For a terminal and a page: what moves a cursor or hides is shown as a replacement character."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in str(value))


def _is_beside(name: str, device: str, machine: Row) -> bool:
    """Whether torch or numpy ran on what is `device`: their times show what it can do as well as ours."""
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
    if not (least > 0 and median > 0):
        raise ValueError(f"a time of {least} s")
    return {"least": least, "median": median, "p20": float(found.get("p20", median)),
            "p80": float(found.get("p80", median)), "samples": int(found.get("samples", 1)),
            "late": int(found.get("late", 0))}  # fmt: skip
