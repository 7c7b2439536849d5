"""The measured roofline of each device (Williams et al., Roofline, CACM 52, 2009), without data sheets.

A device has two bandwidths. That of its memory is the best rate of its `roofline` rows, which are copies larger than
the caches. Without such rows it is the best rate of the rows that move 32 MiB and more, and without those, of any row
whose operands fit no cache.
That of its caches falls with the size of the data: for a row it is the best rate of the rows with at least as many
bytes whose operands fit a cache (`cache` rows are copies that do), or that were faster than memory. The peak is the
best rate of any row with flops. Peers on the same hardware count too: if torch reaches a rate there, it is possible.

A row is compared with one of these limits, which its `Share` names, so that no share exceeds 1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal, get_args

from .doubts import load_doubts, sample_doubts
from .rows import Entry

__all__ = ["LIMITS", "ROTATED_BYTES", "Best", "Limit", "Roof", "Share", "is_below_roof", "rates", "roofs", "share"]

ROTATED_BYTES = 8 << 20  # operands on the host rotate from this size on, so that no cache has them (`cases.rotated`)
_LARGE_BYTES = 32 << 20
_NOT_ROOFED = ("transfer", "launch")  # groups that are not limited by a device's memory or arithmetic
Limit = Literal["memory", "cache", "above memory", "compute"]
"""What limits a row: the bandwidth of memory, that of a cache, or the arithmetic. `above memory`: the operands do not
fit a cache, but the row was faster than memory, because some of its data were in one, or because memory was measured
under load. It is compared with the cache's bandwidth, too."""
LIMITS: tuple[Limit, ...] = get_args(Limit)
_SUFFIXES: dict[Limit, str] = {"memory": "", "cache": " c", "above memory": " >", "compute": ""}


@dataclass(frozen=True, slots=True)
class Best:
    """A rate per second, the row that reached it, `softmax 4096x1024 (torch)`, and why its time is uncertain."""

    rate: float
    row: str
    doubts: tuple[str, ...] = ()


@dataclass(slots=True)
class Roof:
    """One device's bandwidths (bytes per second) and peaks (operations per second by kind, `fp32`). None: unmeasured.

    bandwidth: of memory. cached: the rates of all rows that fit a cache or were faster than memory, with their bytes.
    """

    bandwidth: Best | None = None
    cached: list[tuple[int, Best]] = field(default_factory=list)
    peaks: dict[str, Best] = field(default_factory=dict)

    def cache(self, nbytes: int = 0) -> Best | None:
        """Return the best rate of rows with at least `nbytes` in a cache; None if it was not measured."""
        return max((best for size, best in self.cached if size >= nbytes), key=lambda b: b.rate, default=None)


@dataclass(frozen=True, slots=True)
class Share:
    """The share of the roofline that a row reaches, and the limit that it is a share of."""

    value: float
    limit: Limit

    def __str__(self) -> str:
        """`87%`; of a cache's bandwidth `87% c`, if the row was faster than memory `87% >`."""
        return f"{self.value:.0%}{_SUFFIXES[self.limit]}"


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


def share(entry: Entry, roof: Roof | None) -> Share | None:
    """Return the share of the roofline that a row reaches at its minimum time; None if either is unknown.

    A row with arithmetic intensity I = flops / bytes can reach min(peak, I * bandwidth).
    """
    bytes_per_second, flops_per_second = rates(entry)
    if roof is None or not is_below_roof(entry):
        return None
    peak = roof.peaks.get(entry.kind)
    shares = []
    if bytes_per_second and (bandwidth_share := _bandwidth_share(entry, bytes_per_second, roof)):
        shares.append(bandwidth_share)
    if flops_per_second and peak:
        shares.append(Share(flops_per_second / peak.rate, "compute"))
    return max(shares, key=lambda s: s.value, default=None)


def _bandwidth_share(entry: Entry, rate: float, roof: Roof) -> Share | None:
    memory_rate = roof.bandwidth.rate if roof.bandwidth else 0.0
    cache = roof.cache(entry.bytes)
    if cache is not None and cache.rate > memory_rate and _fits_cache(entry):
        return Share(rate / cache.rate, "cache")
    if cache is not None and rate > memory_rate:
        return Share(rate / cache.rate, "above memory")
    return Share(rate / memory_rate, "memory") if memory_rate else None


def _fits_cache(entry: Entry) -> bool:
    """Return True if all that a row reads and writes stays in a cache from one call to the next."""
    if entry.group in ("roofline", "cache"):
        return entry.group == "cache"
    return 0 < entry.bytes <= min(entry.cache, ROTATED_BYTES)


def _roof(entries: list[Entry]) -> Roof:
    roof = Roof()
    copies = [entry for entry in entries if entry.group == "roofline"]
    large = [entry for entry in entries if entry.bytes >= _LARGE_BYTES]
    for candidates in (copies, large, [entry for entry in entries if not _fits_cache(entry)]):
        if roof.bandwidth is None:
            roof.bandwidth = max(_bandwidths(candidates), key=lambda b: b.rate, default=None)
    memory_rate = roof.bandwidth.rate if roof.bandwidth else 0.0
    roof.cached = [
        (entry.bytes, best)
        for entry in entries
        for best in _contenders(entry, entry.bytes)
        if _fits_cache(entry) or best.rate > memory_rate
    ]
    for kind in sorted({entry.kind for entry in entries}):
        peak = max(_peaks(e for e in entries if e.kind == kind), key=lambda b: b.rate, default=None)
        if peak:
            roof.peaks[kind] = peak
    return roof


def _bandwidths(entries: Iterable[Entry]) -> Iterator[Best]:
    for entry in entries:
        yield from _contenders(entry, entry.bytes)


def _peaks(entries: Iterable[Entry]) -> Iterator[Best]:
    for entry in entries:
        yield from _contenders(entry, entry.flops)


def _contenders(entry: Entry, count: int) -> Iterator[Best]:
    """Yield the rate of each contender on the device's hardware, for rows with a count."""
    contenders = {entry.device: entry.time} | {name: entry.peers[name] for name in entry.same_hardware}
    for name, time in contenders.items():
        if count and time:
            doubts = (*load_doubts(entry.load, entry.cores), *sample_doubts(time))
            yield Best(count / time["least"], f"{entry.name} ({name})", doubts)
