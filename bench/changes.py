"""Compare two reports: find rows that became slower by more than their noise.

The minimum of a row's samples decides, because other load on a machine only adds time. Its change counts if it exceeds
the row's threshold: that of the caller, or the spread of the minimum in both reports, whichever is larger. This spread
is estimated by the distance from the minimum to the 20th percentile. A single sample may be lucky, so the median has to
change in the same direction, by half of the caller's threshold.

The other libraries in a row (peers) show whether the machine changed. Their samples alternated with ours. If all peers
of unchanged version became slower, our change has to count without theirs as well. For a row without peers, the median
change of all peers in the report stands in.
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

# In two runs of the same kernels, six minutes apart on a shared machine, 5 of 46 minima differed by 29 to 40 %.
THRESHOLD = 0.5
RowKey = tuple[str, str, str, str, str]  # suite, part, group, name and device: `Entry.key`
_PEERS = ("numpy", "torch", "cupy", "jax", "tinygrad")
_MIN_PEER_CHANGES = 5  # the median of fewer changes says little about the machine


@dataclass(frozen=True, slots=True)
class Change:
    """A row in two reports.

    Attributes:
        old: The row in the earlier report.
        new: The row in the later report.
        minimum_ratio: New time / old time, of minima.
        median_ratio: The same of medians.
        control: The ratio that all peers have in common; 1 if some became faster and some slower.
        threshold: The relative change of the minimum that counts, 0.5 for 50 %.
        median_threshold: The relative change of the median beyond its spread, from the 20th to the 80th percentile. It
            does not decide the verdict.
        verdict: `slower`, `faster`, `same`, `broken` (correct before, now with a problem), `fixed` (the reverse), or
            `skipped` (measured before, now left out for lack of time or memory).
    """

    old: Entry
    new: Entry
    minimum_ratio: float
    median_ratio: float
    control: float
    threshold: float
    median_threshold: float
    verdict: str

    @property
    def is_uncertain(self) -> bool:
        """True if one of the two times was measured under load, or from samples that disagree."""
        return bool(self.old.doubts or self.new.doubts)


@dataclass(frozen=True, slots=True)
class Comparison:
    """All rows of two reports.

    Attributes:
        changes: The rows that both reports have, in the order of the later one.
        missing: Names of rows that only the earlier report has.
        added: Names of rows that only the later report has.
        drift: The median of new time / old time of all peers; 1 if there are too few.
        hardware_changes: A sentence for each device whose hardware differs between the reports.
    """

    changes: list[Change]
    missing: list[str]
    added: list[str]
    drift: float
    hardware_changes: list[str]

    @property
    def regressions(self) -> list[Change]:
        """Rows that became slower, or whose result was correct before and now is not."""
        return [change for change in self.changes if change.verdict in ("slower", "broken")]


def check_threshold(threshold: float) -> None:
    """Raise ArgumentError unless `--threshold` is positive and finite."""
    if not 0 < threshold < math.inf:
        raise ArgumentError(f"bench: --threshold must be above 0 and finite, such as 0.5 for 50 %, not {threshold}")


def compare(old: Report, new: Report, threshold: float = THRESHOLD) -> Comparison:
    """Compare two reports, matching rows by suite, part, group, name and device.

    Args:
        old: the earlier report, as `load` reads it.
        new: the later report.
        threshold: the smallest relative change of a minimum that counts, 0.5 for 50 %.

    Returns:
        The comparison.

    Raises:
        ArgumentError: the reports have no row in common, or `threshold` is not positive and finite.
    """
    check_threshold(threshold)
    old_entries, new_entries = ({entry.key: entry for entry in entries([report])} for report in (old, new))
    common_keys = [key for key in new_entries if key in old_entries]
    if not common_keys:
        keys = (*old_entries, *new_entries)
        suites, devices = {suite for suite, *_ in keys}, {device for *_, device in keys}
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
    hardware_changes = dict.fromkeys(
        f"{c.new.device} was {c.old.hardware}, is {c.new.hardware}" for c in changes if c.old.hardware != c.new.hardware
    )
    return Comparison(
        changes,
        _only_in_first(old_entries, new_entries),
        _only_in_first(new_entries, old_entries),
        drift,
        list(hardware_changes),
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
    """Return new time / old time, of minima, of each library of `peers` that both rows have."""
    return [new.peers[n]["least"] / old.peers[n]["least"] for n in peers if n in old.peers and n in new.peers]


def _change(old: Entry, new: Entry, peers: frozenset[str], drift: float, threshold: float) -> Change:
    if old.time is None or new.time is None:
        verdict = "same" if old.time is new.time else "broken" if new.time is None else "fixed"
        if verdict == "broken" and (new.problem or "").startswith("skipped"):
            verdict = "skipped"
        return Change(old, new, 1.0, 1.0, 1.0, threshold, threshold, verdict)
    minimum_ratio, median_ratio = (new.time[n] / old.time[n] for n in ("least", "median"))
    control = _control(_peer_changes(old, new, peers) or [drift])
    times = (old.time, new.time)
    row_threshold = max(threshold, sum(t["p20"] / t["least"] - 1 for t in times))
    median_threshold = max(threshold, sum((t["p80"] - t["p20"]) / t["median"] for t in times))
    verdict = "same"
    # The ratio has to count both as measured and relative to the peers: their noise alone must not make a change.
    ratios = (minimum_ratio, minimum_ratio / control)
    if min(ratios) > 1 + row_threshold and median_ratio > 1 + threshold / 2:
        verdict = "slower"
    elif max(ratios) < 1 / (1 + row_threshold) and median_ratio < 1 / (1 + threshold / 2):
        verdict = "faster"
    return Change(old, new, minimum_ratio, median_ratio, control, row_threshold, median_threshold, verdict)


def _control(peer_changes: Sequence[float]) -> float:
    """Return the ratio nearest to 1 if all ratios are above 1, or all below it; else 1."""
    return max(1.0, min(peer_changes)) * min(1.0, max(peer_changes))
