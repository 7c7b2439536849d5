"""Whether what was tuned makes a program faster: tried call by call within it, and by processes that run all of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..runtime.tuning.evidence import Evidence, weigh

__all__ = ["tried", "verify"]

_PAIRS = 8  # of calls in the program that are evidence
_LEAST = 0.01  # the part by which calls must be faster there
_RUNS = (6, 12)  # runs of the whole program in each setting, at least and at most
_SECONDS = 60.0  # that more than the least should take
_CERTAIN = 0.02  # of 6 pairs all must be won, of 12 ten
_STEADY = 0.005  # the part by which a program is faster, or slower, at least

Found = list[tuple[Any, Any]]


def tried(program: Sequence[str], outcomes: Found) -> Found:
    """Run the program with what is shipped and what was found by turns, and drop what is not faster there; the outcomes
    that are left, in their order. What is not called often enough to tell is left as it is."""
    from ..runtime.tuning import search
    from ..runtime.tuning.program import trial_of

    better = {key for _, outcome in outcomes for key, choice in outcome.choices.items() if choice}
    if not better:
        return outcomes
    print(f"running {program[0]} with what is shipped and what was found by turns", flush=True)
    evidence = trial_of(program, better).evidence(_PAIRS)
    refuted = {key for key, found in evidence.items() if not _holds(found)}
    before = sum(seconds for key, found in evidence.items() for _, seconds in found)
    gained = sum(
        seconds * (1 - 1 / each.gain)
        for key, found in evidence.items() if key not in refuted for each, seconds in found
    )  # fmt: skip
    unknown = len(better) - len(evidence)
    print(
        f"of {len(better)} choices {len(evidence) - len(refuted)} are faster there, {len(refuted)} are not and are "
        f"dropped{f', {unknown} are called too seldom to tell' if unknown else ''}; "
        f"saved: {gained * 1e3:.1f} of {before * 1e3:.1f} ms that these calls take as shipped"
    )
    left: Found = []
    for use, outcome in outcomes:
        if refuted & {key for key, choice in outcome.choices.items() if choice}:
            choices = {key: None if key in refuted else choice for key, choice in outcome.choices.items()}
            outcome = replace(outcome, choices=choices, after=outcome.before)
            search.keep([outcome])
        left.append((use, outcome))
    return left


def _holds(found: list[tuple[Evidence, float]]) -> bool:
    """Whether what the search found significant shows in the program too: for the calls that take the most, in most of
    their turns, and for all of them together."""
    most, _ = max(found, key=lambda each: each[1])
    whole = sum(seconds for _, seconds in found)
    shows = most.gain >= 1 + _LEAST and 2 * most.wins > most.stretches
    return shows and sum(seconds / each.gain for each, seconds in found) < whole


def verify(program: Sequence[str], outcomes: Found) -> None:
    """Run the program without and with what is kept, in turns, and say whether it is faster. What makes it slower is
    forgotten."""
    wall, processor = _runs(program)
    if not wall:
        return
    verdicts = []
    for what, (off, use) in (("wall time", wall), ("processor time", processor)):
        found, other = weigh(off, use), weigh(use, off)
        verdict = "no significant change"
        if found.faster(_STEADY, _CERTAIN):
            verdict = f"{found.gain:.2f}x faster"
        elif other.faster(_STEADY, _CERTAIN):
            verdict = f"{other.gain:.2f}x slower"
        verdicts.append(verdict)
        print(
            f"{what}: least {found.before:.2f} s as shipped, {found.after:.2f} s tuned, less in {found.wins} of "
            f"{found.stretches} pairs: {verdict}"
        )
    slower = any("slower" in verdict for verdict in verdicts)
    if slower and not any("faster" in verdict for verdict in verdicts):
        _forget(outcomes)
        print(f"{program[0]} is slower with it: what was found is forgotten")


def _runs(program: Sequence[str]) -> tuple[Any, Any]:
    """Seconds of whole runs by the clock, and those that processors worked, as shipped and tuned; starting included."""
    wall: tuple[list[float], list[float]] = ([], [])
    processor: tuple[list[float], list[float]] = ([], [])
    print(f"running {program[0]} as shipped and tuned by turns, {_RUNS[0]} times each at least", flush=True)
    begin = time.perf_counter()
    for number in range(2 * _RUNS[1]):
        if number >= 2 * _RUNS[0] and number % 2 == 0 and time.perf_counter() - begin > _SECONDS:
            break
        tuned = (number + 1) // 2 % 2
        before, start = os.times(), time.perf_counter()
        environment = {**os.environ, "WEFTGRAD_TUNE": ("off", "use")[tuned]}
        done = subprocess.run([sys.executable, *program], env=environment, check=False, stdout=subprocess.DEVNULL)
        took, after = time.perf_counter() - start, os.times()
        if done.returncode:
            print(f"{program[0]} ended with status {done.returncode}: nothing can be said of it")
            return (), ()
        wall[tuned].append(took)
        worked = after.children_user + after.children_system - before.children_user - before.children_system
        processor[tuned].append(worked)
    return wall, processor


def _forget(outcomes: Found) -> None:
    from ..runtime.tuning import search

    for _, outcome in outcomes:
        search.keep([replace(outcome, choices=dict.fromkeys(outcome.choices), after=outcome.before)])
