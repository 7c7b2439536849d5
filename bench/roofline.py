"""What devices were seen to do at most: the roofline that rows are a share of. From measurements, no data sheet.

A device's bandwidth is that of its best `roofline` row (copies larger than caches). A report without such rows has
the best rate of the rows that move 32 MiB and more instead, and only without those of any row. The peak is the best
rate of any row with flops. Peers on the same hardware count: what torch reaches there is possible there. Rows that
stay in caches may be above the roof. Williams et al., Roofline, CACM 52 (2009).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from .rows import Entry

__all__ = ["Best", "Roof", "below", "rates", "roofs", "share"]

_LARGE = 32 << 20  # bytes
_BESIDE = ("transfer", "launch")  # groups that measure something else than memory and arithmetic of a device


@dataclass(frozen=True, slots=True)
class Best:
    """A rate, a second, and where it was measured: `softmax 4096x1024 (torch)`."""

    rate: float
    row: str


@dataclass(slots=True)
class Roof:
    """Of one piece of hardware: bytes a second, and operations a second by kind (`fp32`). None: not measured."""

    bandwidth: Best | None = None
    peaks: dict[str, Best] = field(default_factory=dict)


def below(entry: Entry) -> bool:
    """Whether a row has a place below a roof of memory and arithmetic."""
    return entry.part == "kernel" and entry.time is not None and entry.group not in _BESIDE


def rates(entry: Entry) -> tuple[float | None, float | None]:
    """Bytes and operations a second at the least time; None where the row does not say how many it has."""
    if entry.time is None:
        return None, None
    least = entry.time["least"]
    return entry.bytes / least if entry.bytes else None, entry.flops / least if entry.flops else None


def roofs(entries: Iterable[Entry]) -> dict[str, Roof]:
    """The roof of each piece of hardware."""
    by_hardware: dict[str, list[Entry]] = {}
    for entry in entries:
        if below(entry):
            by_hardware.setdefault(entry.hardware, []).append(entry)
    return {name: _roof(found) for name, found in by_hardware.items()}


def share(entry: Entry, roof: Roof | None) -> float | None:
    """The part of what the roof allows that the row reaches, by minima; None where one of them does not tell.

    A row with bytes and flops has the intensity I = flops / bytes, and the roof allows min(peak, I * bandwidth).
    """
    moved, done = rates(entry)
    if roof is None or not below(entry):
        return None
    peak = roof.peaks.get(entry.kind)
    found = []
    if moved and roof.bandwidth:
        found.append(moved / roof.bandwidth.rate)
    if done and peak:
        found.append(done / peak.rate)
    return max(found) if found else None


def _roof(found: list[Entry]) -> Roof:
    roof = Roof()
    copies = [entry for entry in found if entry.group == "roofline"]
    for chosen in (copies, [entry for entry in found if entry.bytes >= _LARGE], found):
        if roof.bandwidth is None:
            roof.bandwidth = max(_best(chosen, "bytes"), key=lambda b: b.rate, default=None)
    for kind in sorted({entry.kind for entry in found}):
        peak = max(_best([e for e in found if e.kind == kind], "flops"), key=lambda b: b.rate, default=None)
        if peak:
            roof.peaks[kind] = peak
    return roof


def _best(found: list[Entry], what: str) -> Iterator[Best]:
    for entry in found:
        amount = getattr(entry, what)
        contenders = {entry.device: entry.time} | {n: entry.peers[n] for n in entry.beside}
        for name, time in contenders.items():
            if amount and time:
                yield Best(amount / time["least"], f"{entry.name} ({name})")
