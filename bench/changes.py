"""Compare two reports: find rows that became slower by more than their noise.

The minimum decides, because other load on a machine only adds time. The median has to change half as far in the same
direction, because a single sample may be lucky. A change counts if it exceeds the row's threshold: the caller's
threshold or the spread of the samples in both reports, whichever is larger. The spread of a minimum is estimated by its
distance to the 20th percentile; the spread of a median by the distance between the 20th and the 80th percentile.

The control are peers of unchanged version in the same row, whose samples were interleaved with ours: if all of them
became slower too, the machine did. A row without peers is compared with the median change of all peers in the report.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError
from .rows import Entry, entries

if TYPE_CHECKING:
    from .report_types import Report

__all__ = ["THRESHOLD", "Change", "Comparison", "check_threshold", "compare"]

# Two runs of the same kernels, six minutes apart on a shared machine, had 5 minima in 46 that differed by 29 to 40 %.
THRESHOLD = 0.5
RowKey = tuple[str, str, str, str, str]  # `Entry.key`
_PEERS = ("numpy", "torch", "cupy", "jax", "tinygrad")
_MIN_PEER_CHANGES = 5  # fewer of them do not show how the machine changed


@dataclass(frozen=True, slots=True)
class Change:
    """A row in two reports.

    least, median: new time / old time, of minima and of medians. control: the factor that the peers share.
    threshold: the relative change of the minimum that counts, 0.5 for 50 %. open_median: the same for the median.
    verdict: `slower`, `faster`, `same`, `broken` (correct before, now with a problem), `mended`, or `skipped` (measured
    before, now left out for lack of time or memory).
    """

    old: Entry
    new: Entry
    least: float
    median: float
    control: float
    threshold: float
    open_median: float
    verdict: str

    @property
    def is_uncertain(self) -> bool:
        """True if either time is: it was measured under load, or its samples disagree."""
        return bool(self.old.doubts or self.new.doubts)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows that both reports have, in the new report's order, and the names of rows that only one has.

    drift: the median change of the peers. moved: devices whose hardware differs between the reports.
    """

    changes: list[Change]
    missing: list[str]
    added: list[str]
    drift: float
    moved: list[str]

    @property
    def regressions(self) -> list[Change]:
        """Rows that became slower, or whose result was correct before and now is not."""
        return [change for change in self.changes if change.verdict in ("slower", "broken")]


def check_threshold(threshold: float) -> None:
    """Raise ArgumentError unless `--threshold` is positive and finite."""
    if not 0 < threshold < math.inf:
        raise ArgumentError(f"bench: --threshold must be above 0, as 0.5 for a half, not {threshold}")


def compare(old: Report, new: Report, threshold: float = THRESHOLD) -> Comparison:
    """Compare two reports, matching rows by suite, part, name and device.

    Args:
        old: the earlier report, as `load` reads it.
        new: the later report.
        threshold: the least relative change that counts, 0.5 for 50 %.

    Raises:
        ArgumentError: the reports have no row in common, or `threshold` is not positive and finite.
    """
    check_threshold(threshold)
    old_entries, new_entries = ({entry.key: entry for entry in entries([report])} for report in (old, new))
    common_keys = [key for key in new_entries if key in old_entries]
    if not common_keys:
        suites, devices = ({key[i] for key in (*old_entries, *new_entries)} for i in (0, 4))
        raise ArgumentError(
            f"bench: the reports have no row in common (suites {', '.join(sorted(suites))}; "
            f"devices {', '.join(sorted(devices))}): measure the same suite on the same device twice"
        )
    peers = _same_peers(old, new)
    peer_changes = [
        change for key in common_keys for change in _peer_changes(old_entries[key], new_entries[key], peers)
    ]
    drift = statistics.median(peer_changes) if len(peer_changes) >= _MIN_PEER_CHANGES else 1.0
    changes = [_change(old_entries[key], new_entries[key], peers, drift, threshold) for key in common_keys]
    moved_devices = dict.fromkeys(
        f"{c.new.device} was {c.old.hardware}, is {c.new.hardware}" for c in changes if c.old.hardware != c.new.hardware
    )
    return Comparison(
        changes,
        _only_in_first(old_entries, new_entries),
        _only_in_first(new_entries, old_entries),
        drift,
        list(moved_devices),
    )


def _only_in_first(first_entries: dict[RowKey, Entry], other_entries: dict[RowKey, Entry]) -> list[str]:
    return [f"{e.name} ({e.device})" for key, e in first_entries.items() if key not in other_entries]


def _same_peers(old: Report, new: Report) -> frozenset[str]:
    """Return the libraries whose version and device did not change between the reports."""
    old_machine, new_machine = old["machine"], new["machine"]
    unchanged = {name for name in _PEERS if old_machine["versions"].get(name) == new_machine["versions"].get(name)}
    if old_machine.get("torch") != new_machine.get("torch"):
        unchanged.discard("torch")
    old_devices, new_devices = old_machine.get("places") or {}, new_machine.get("places") or {}
    moved = {name for name in old_devices if name in new_devices and old_devices[name] != new_devices[name]}
    return frozenset(unchanged - moved)


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
    # Both the raw and the control-adjusted ratio have to agree: a peer's noise neither hides nor makes a change.
    if min(least, least / control) > 1 + limit and median > 1 + threshold / 2:
        verdict = "slower"
    elif max(least, least / control) < 1 / (1 + limit) and median < 1 / (1 + threshold / 2):
        verdict = "faster"
    return Change(old, new, least, median, control, limit, open_median, verdict)


def _control(peer_changes: Sequence[float]) -> float:
    """Return the smallest change that all peers share in one direction; 1 if their directions differ."""
    return max(1.0, min(peer_changes)) * min(1.0, max(peer_changes))
