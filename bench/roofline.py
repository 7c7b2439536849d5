"""The measured roofline of each device (Williams et al., Roofline, CACM 52, 2009), without data sheets.

A device's bandwidth is the best rate of its `roofline` rows, which are copies larger than the caches. Without such rows
it is the best rate of the rows that move 32 MiB and more, and without those, of any row. The peak is the best rate of
any row with flops. Peers on the same hardware count too: if torch reaches a rate there, it is possible. Rows that stay
in the caches may exceed the roofline.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .rows import Entry

__all__ = ["Best", "Roof", "is_below_roof", "rates", "roofs", "share"]

_LARGE_BYTES = 32 << 20
_NOT_ROOFED = ("transfer", "launch")  # groups that are not limited by a device's memory or arithmetic


@dataclass(frozen=True, slots=True)
class Best:
    """A rate per second, and the row that reached it: `softmax 4096x1024 (torch)`."""

    rate: float
    row: str


@dataclass(slots=True)
class Roof:
    """One device's bandwidth (bytes per second) and peaks (operations per second by kind, `fp32`). None: unmeasured."""

    bandwidth: Best | None = None
    peaks: dict[str, Best] = field(default_factory=dict)


def is_below_roof(entry: Entry) -> bool:
    """Return True if the roofline limits a row."""
    return entry.part == "kernel" and entry.time is not None and entry.group not in _NOT_ROOFED


def rates(entry: Entry) -> tuple[float | None, float | None]:
    """Return (bytes per second, operations per second) at the minimum time; None where the row has no count."""
    if entry.time is None:
        return None, None
    least = entry.time["least"]
    return entry.bytes / least if entry.bytes else None, entry.flops / least if entry.flops else None


def roofs(entries: Iterable[Entry]) -> dict[str, Roof]:
    """Return the measured roofline of each device, by hardware name."""
    by_hardware: dict[str, list[Entry]] = {}
    for entry in entries:
        if is_below_roof(entry):
            by_hardware.setdefault(entry.hardware, []).append(entry)
    return {name: _roof(group) for name, group in by_hardware.items()}


def share(entry: Entry, roof: Roof | None) -> float | None:
    """Return the share of the roofline that a row reaches at its minimum time; None if either is unknown.

    A row with arithmetic intensity I = flops / bytes can reach min(peak, I * bandwidth).
    """
    bytes_per_second, flops_per_second = rates(entry)
    if roof is None or not is_below_roof(entry):
        return None
    peak = roof.peaks.get(entry.kind)
    shares = []
    if bytes_per_second and roof.bandwidth:
        shares.append(bytes_per_second / roof.bandwidth.rate)
    if flops_per_second and peak:
        shares.append(flops_per_second / peak.rate)
    return max(shares) if shares else None


def _roof(entries: list[Entry]) -> Roof:
    roof = Roof()
    copies = [entry for entry in entries if entry.group == "roofline"]
    for candidates in (copies, [entry for entry in entries if entry.bytes >= _LARGE_BYTES], entries):
        if roof.bandwidth is None:
            roof.bandwidth = max(_best(candidates, "bytes"), key=lambda b: b.rate, default=None)
    for kind in sorted({entry.kind for entry in entries}):
        peak = max(_best([e for e in entries if e.kind == kind], "flops"), key=lambda b: b.rate, default=None)
        if peak:
            roof.peaks[kind] = peak
    return roof


def _best(entries: list[Entry], field_name: str) -> Iterator[Best]:
    for entry in entries:
        count = getattr(entry, field_name)
        contenders = {entry.device: entry.time} | {n: entry.peers[n] for n in entry.same_hardware}
        for name, time in contenders.items():
            if count and time:
                yield Best(count / time["least"], f"{entry.name} ({name})")
