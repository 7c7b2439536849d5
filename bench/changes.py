"""Two reports compared: which rows became slower by more than their noise.

Minima decide, because what else runs on a machine only ever adds time; medians have to go half as far the same way, as
a single sample may be lucky. A change counts if it is above the row's threshold: the greater of what the caller sets
and what the samples of both files leave open. The minimum of n samples is known about as well as the samples next to
it are near, so the distance from it to the 20th percentile is taken for its spread; the distance between the 20th and
80th for the median's.

Peers of the same version that ran in the same row, interleaved, are the control: what slowed all of them down as well
was the machine. A row without peers is held against the middle change of all peers in the file.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ..runtime.errors import ArgumentError
from .rows import Entry, entries

__all__ = ["THRESHOLD", "Change", "Comparison", "compare"]

# Two runs of the same kernels, six minutes apart on a shared machine, had 5 minima in 46 that differed by 29 to 40 %.
THRESHOLD = 0.5
_PEERS = ("numpy", "torch", "cupy", "jax", "tinygrad")
_ENOUGH = 5  # changes of peers that show how the machine changed


@dataclass(frozen=True, slots=True)
class Change:
    """A row in two reports.

    least and median: the new time by the old one, of minima and medians; control: the part of that which peers had as
    well; threshold: the change of the minimum that counts, 0.5 for a half; open_median: the same of the median.
    verdict: `slower`, `faster`, `same`, `broken` (right before, now with a problem), `mended`, or `skipped` (measured
    before, and now left out for want of time or memory, which says nothing).
    """

    old: Entry
    new: Entry
    least: float
    median: float
    control: float
    threshold: float
    open_median: float
    verdict: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows that both reports have, in the new one's order, and the names of those that only one has.

    drift: the middle change of peers. moved: devices that are other hardware than in the old report.
    """

    changes: list[Change]
    missing: list[str]
    added: list[str]
    drift: float
    moved: list[str]

    @property
    def regressions(self) -> list[Change]:
        """Rows that became slower, or gave a right result before."""
        return [change for change in self.changes if change.verdict in ("slower", "broken")]


def compare(old: dict[str, Any], new: dict[str, Any], threshold: float = THRESHOLD) -> Comparison:
    """Match rows by suite, part, name and device. ArgumentError if the reports have none in common."""
    if not 0 < threshold < math.inf:
        raise ArgumentError(f"bench: --threshold must be above 0, as 0.5 for a half, not {threshold}")
    before, after = ({entry.key: entry for entry in entries([report])} for report in (old, new))
    common = [key for key in after if key in before]
    if not common:
        suites, devices = ({key[i] for key in (*before, *after)} for i in (0, 4))
        raise ArgumentError(
            f"bench: the reports have no row in common (suites {', '.join(sorted(suites))}; "
            f"devices {', '.join(sorted(devices))}): measure the same suite on the same device twice"
        )
    peers = _same_peers(old, new)
    moved = [change for key in common for change in _peer_changes(before[key], after[key], peers)]
    drift = statistics.median(moved) if len(moved) >= _ENOUGH else 1.0
    changes = [_change(before[key], after[key], peers, drift, threshold) for key in common]
    moved_to = dict.fromkeys(
        f"{c.new.device} was {c.old.hardware}, is {c.new.hardware}" for c in changes if c.old.hardware != c.new.hardware
    )
    return Comparison(changes, _names(before, after), _names(after, before), drift, list(moved_to))


def _names(these: dict[Any, Entry], those: dict[Any, Entry]) -> list[str]:
    return [f"{e.name} ({e.device})" for key, e in these.items() if key not in those]


def _same_peers(old: dict[str, Any], new: dict[str, Any]) -> frozenset[str]:
    """Libraries whose version and place did not change between the reports."""
    before, after = old["machine"], new["machine"]
    found = {name for name in _PEERS if before["versions"].get(name) == after["versions"].get(name)}
    if before.get("torch") != after.get("torch"):
        found.discard("torch")
    places = before.get("places") or {}, after.get("places") or {}
    moved = {name for name in places[0] if name in places[1] and places[0][name] != places[1][name]}
    return frozenset(found - moved)


def _peer_changes(old: Entry, new: Entry, peers: Iterable[str]) -> list[float]:
    return [new.peers[n]["least"] / old.peers[n]["least"] for n in peers if n in old.peers and n in new.peers]


def _change(old: Entry, new: Entry, peers: frozenset[str], drift: float, threshold: float) -> Change:
    if old.time is None or new.time is None:
        verdict = "same" if old.time is new.time else "broken" if new.time is None else "mended"
        if verdict == "broken" and (new.problem or "").startswith("skipped"):
            verdict = "skipped"
        return Change(old, new, 1.0, 1.0, 1.0, threshold, threshold, verdict)
    least, median = (new.time[n] / old.time[n] for n in ("least", "median"))
    control = _control(_peer_changes(old, new, peers) or [drift])
    times = (old.time, new.time)
    limit = max(threshold, sum(t["p20"] / t["least"] - 1 for t in times))
    open_median = max(threshold, sum((t["p80"] - t["p20"]) / t["median"] for t in times))
    verdict = "same"
    # Both as they were measured and beside the control: a peer's own noise is no excuse, nor a reason.
    if min(least, least / control) > 1 + limit and median > 1 + threshold / 2:
        verdict = "slower"
    elif max(least, least / control) < 1 / (1 + limit) and median < 1 / (1 + threshold / 2):
        verdict = "faster"
    return Change(old, new, least, median, control, limit, open_median, verdict)


def _control(found: Sequence[float]) -> float:
    """What all peers have in common: the least slowing, or the least gain; 1 if they do not agree."""
    return max(1.0, min(found)) * min(1.0, max(found))
