"""The least that each case must reach on the H100: data in `bars.json`, a line a case, compared with an audit's rows.

    share     of the limit, by the estimate: at least this
    launches  at most this
    moved     bytes moved divided by the least possible: at most this

`weftgrad audit --bars FILE` writes bars from what an audit finds.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files

from .estimate import CallFigures

__all__ = ["MACHINE", "bars_text", "missed"]

MACHINE = "H100"  # the one that the bars are for
_SLACK = 0.93  # of a share, because compilers' versions differ a little
_MOVED_SLACK = 1.02
Bar = Mapping[str, float]


@cache
def _bars() -> dict[str, Bar]:
    bars: dict[str, Bar] = json.loads((files(__package__) / "bars.json").read_text(encoding="utf-8"))
    return bars


def missed(name: str, figures: CallFigures, bars: Mapping[str, Bar] | None = None) -> tuple[str, ...]:
    """Return a sentence for each bar that a case misses; none for a case without bars and on another machine.

    Args:
        name: Of the case.
        figures: Its figures.
        bars: By case; None: the project's own.
    """
    bar = (_bars() if bars is None else bars).get(name)
    if bar is None or figures.machine != MACHINE:
        return ()
    failures = []
    if figures.share < bar["share"]:
        failures.append(f"reaches {figures.share:.2f} of its limit, and {bar['share']:.2f} is the bar")
    if len(figures.launches) > bar["launches"]:
        failures.append(f"has {len(figures.launches)} launches, and {bar['launches']:.0f} is the bar")
    if figures.moved_ratio > bar["moved"]:
        failures.append(f"moves {figures.moved_ratio:.2f} times the least bytes, and {bar['moved']:.2f} is the bar")
    return tuple(failures)


def bars_text(figures_by_case: Iterable[tuple[str, CallFigures]]) -> str:
    """Return the file of bars that these figures just reach, with some slack."""
    lines = []
    for name, figures in figures_by_case:
        if figures.machine == MACHINE:
            bar = {
                "share": math.floor(figures.share * _SLACK * 1000) / 1000, "launches": len(figures.launches),
                "moved": math.ceil(figures.moved_ratio * _MOVED_SLACK * 100) / 100,
            }  # fmt: skip
            lines.append(f"{json.dumps(name)}: {json.dumps(bar)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
