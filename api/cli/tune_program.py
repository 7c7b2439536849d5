"""Check that tuned schedules make a program faster: call by call inside one run, and by timing whole runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ..runtime.tuning.evidence import Evidence, compare_samples

__all__ = ["drop_slower", "verify"]

_MIN_CALL_PAIRS = 8  # pairs of a shipped and a tuned call that are enough evidence
_MIN_CALL_GAIN = 0.01  # a call must be faster by this fraction inside the program
_PROGRAM_RUNS = (6, 12)  # minimum and maximum runs of the whole program in each setting
_MAX_RUN_SECONDS = 60.0  # no runs beyond the minimum after so much time
_MAX_P_VALUE = 0.02  # sign test: all of 6 pairs must be won, or 10 of 12
_MIN_PROGRAM_GAIN = 0.005  # smaller changes of a program's time are not reported

Outcomes = list[tuple[Any, Any]]


def drop_slower(program: Sequence[str], outcomes: Outcomes) -> Outcomes:
    """Run the program with shipped and tuned schedules in alternation, and drop schedules that are not faster there.

    Returns:
        The outcomes, in their order, without the dropped schedules. Calls that are too rare to decide keep theirs.
    """
    from ..runtime.tuning import search
    from ..runtime.tuning.program import run_trial

    better = {key for _, outcome in outcomes for key, choice in outcome.choices.items() if choice}
    if not better:
        return outcomes
    print(f"running {program[0]} with the shipped and the new schedules in alternation", flush=True)
    evidence = run_trial(program, better).evidence(_MIN_CALL_PAIRS)
    refuted = {key for key, samples in evidence.items() if not _is_confirmed(samples)}
    shipped_seconds = sum(seconds for key, samples in evidence.items() for _, seconds in samples)
    saved_seconds = sum(
        seconds * (1 - 1 / comparison.gain)
        for key, samples in evidence.items() if key not in refuted for comparison, seconds in samples
    )  # fmt: skip
    unmeasured = len(better) - len(evidence)
    print(
        f"of {len(better)} choices {len(evidence) - len(refuted)} are faster there, {len(refuted)} are not and are "
        f"dropped{f', {unmeasured} are called too seldom to tell' if unmeasured else ''}; "
        f"saved: {saved_seconds * 1e3:.1f} of {shipped_seconds * 1e3:.1f} ms that these calls take as shipped"
    )
    remaining: Outcomes = []
    for use, outcome in outcomes:
        if refuted & {key for key, choice in outcome.choices.items() if choice}:
            choices = {key: None if key in refuted else choice for key, choice in outcome.choices.items()}
            outcome = replace(outcome, choices=choices, candidate_seconds=outcome.baseline_seconds)
            search.keep_outcomes([outcome])
        remaining.append((use, outcome))
    return remaining


def _is_confirmed(samples: list[tuple[Evidence, float]]) -> bool:
    """Return True if a schedule is faster in the program: for its costliest call in most blocks, and in total."""
    heaviest, _ = max(samples, key=lambda sample: sample[1])
    total_seconds = sum(seconds for _, seconds in samples)
    is_faster = heaviest.gain >= 1 + _MIN_CALL_GAIN and 2 * heaviest.wins > heaviest.blocks
    return is_faster and sum(seconds / sample.gain for sample, seconds in samples) < total_seconds


def verify(program: Sequence[str], outcomes: Outcomes) -> None:
    """Time whole runs with the shipped and the saved schedules in alternation, and print whether the program is faster.

    Saved schedules that make it slower are deleted.
    """
    wall, processor = _time_runs(program)
    if not wall:
        return
    verdicts = []
    for clock, (shipped, tuned) in (("wall time", wall), ("processor time", processor)):
        speedup, slowdown = compare_samples(shipped, tuned), compare_samples(tuned, shipped)
        verdict = "no significant change"
        if speedup.is_faster(_MIN_PROGRAM_GAIN, _MAX_P_VALUE):
            verdict = f"{speedup.gain:.2f}x faster"
        elif slowdown.is_faster(_MIN_PROGRAM_GAIN, _MAX_P_VALUE):
            verdict = f"{slowdown.gain:.2f}x slower"
        verdicts.append(verdict)
        print(
            f"{clock}: least {speedup.baseline_seconds:.2f} s as shipped, {speedup.candidate_seconds:.2f} s tuned, "
            f"less in {speedup.wins} of {speedup.blocks} pairs: {verdict}"
        )
    is_slower = any("slower" in verdict for verdict in verdicts)
    if is_slower and not any("faster" in verdict for verdict in verdicts):
        _forget(outcomes)
        print(f"{program[0]} is slower with the new schedules: they are deleted")


def _time_runs(program: Sequence[str]) -> tuple[Any, Any]:
    """Return wall and processor seconds of whole runs, each as (shipped, tuned) lists; start-up is included."""
    wall: tuple[list[float], list[float]] = ([], [])
    processor: tuple[list[float], list[float]] = ([], [])
    print(
        f"running {program[0]} as shipped and tuned in alternation, at least {_PROGRAM_RUNS[0]} times each", flush=True
    )
    begin = time.perf_counter()
    for number in range(2 * _PROGRAM_RUNS[1]):
        if number >= 2 * _PROGRAM_RUNS[0] and number % 2 == 0 and time.perf_counter() - begin > _MAX_RUN_SECONDS:
            break
        tuned = (number + 1) // 2 % 2
        times_before, start = os.times(), time.perf_counter()
        environment = {**os.environ, "WEFTGRAD_TUNE": ("off", "use")[tuned]}
        process = subprocess.run([sys.executable, *program], env=environment, check=False, stdout=subprocess.DEVNULL)
        wall_seconds, times_after = time.perf_counter() - start, os.times()
        if process.returncode:
            print(f"{program[0]} ended with status {process.returncode}: nothing can be concluded")
            return (), ()
        wall[tuned].append(wall_seconds)
        processor_seconds = (
            times_after.children_user
            + times_after.children_system
            - times_before.children_user
            - times_before.children_system
        )
        processor[tuned].append(processor_seconds)
    return wall, processor


def _forget(outcomes: Outcomes) -> None:
    from ..runtime.tuning import search

    for _, outcome in outcomes:
        search.keep_outcomes(
            [replace(outcome, choices=dict.fromkeys(outcome.choices), candidate_seconds=outcome.baseline_seconds)]
        )
