"""Keep only tuned schedules that make a program faster.

`drop_slower_schedules` times single calls inside one run of the program. `restore_shipped_if_slower` then times whole
runs, start-up included.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from ..runtime.tuning.evidence import Evidence, compare_samples

if TYPE_CHECKING:
    from ..runtime.tuning.record import Use
    from ..runtime.tuning.search import Outcome

__all__ = ["Outcomes", "drop_slower_schedules", "restore_shipped_if_slower"]

_MIN_CALL_PAIRS = 8  # timed pairs of a shipped and a tuned call; fewer do not decide about a schedule
_MIN_CALL_GAIN = 0.01  # a call must be faster by this fraction inside the program
_MIN_RUNS, _MAX_RUNS = 6, 12  # runs of the whole program with the shipped schedules, and as many with the tuned ones
_MAX_RUN_SECONDS = 60.0  # after this time, no run beyond the minimum begins
_MAX_P_VALUE = 0.02  # sign test: the tuned run must win all of 6 pairs, or 10 of 12
_MIN_PROGRAM_GAIN = 0.005  # smaller changes of a program's time are not reported

Outcomes: TypeAlias = "list[tuple[Use, Outcome]]"  # recorded uses of ops, and what the search found for each
Times: TypeAlias = tuple[list[float], list[float]]  # seconds of runs with the shipped and with the tuned schedules


def drop_slower_schedules(program: Sequence[str], outcomes: Outcomes) -> Outcomes:
    """Run the program once, with calls that alternate between shipped and tuned schedules; drop tuned ones that lose.

    Args:
        program: Path of a Python program, and its arguments.
        outcomes: What the search found for the program's calls.

    Returns:
        The outcomes, in their order, without the dropped schedules. A schedule whose calls are too rare to compare
        stays.
    """
    from ..runtime.tuning import search  # lazy: start-up
    from ..runtime.tuning.program import run_trial  # lazy: start-up

    tuned_keys = {key for _, outcome in outcomes for key, choice in outcome.choices.items() if choice}
    if not tuned_keys:
        return outcomes
    print(f"running {program[0]} with the shipped and the new schedules in alternation", flush=True)
    evidence = run_trial(program, tuned_keys).evidence(_MIN_CALL_PAIRS)
    rejected_keys = {key for key, samples in evidence.items() if not _is_confirmed(samples)}
    shipped_seconds = sum(seconds for key, samples in evidence.items() for _, seconds in samples)
    saved_seconds = sum(
        seconds * (1 - 1 / comparison.gain)
        for key, samples in evidence.items() if key not in rejected_keys for comparison, seconds in samples
    )  # fmt: skip
    unmeasured = len(tuned_keys) - len(evidence)
    print(
        f"of {len(tuned_keys)} choices {len(evidence) - len(rejected_keys)} are faster there, {len(rejected_keys)} are "
        f"not and are dropped{f', {unmeasured} are called too seldom to tell' if unmeasured else ''}; "
        f"saves {saved_seconds * 1e3:.1f} of {shipped_seconds * 1e3:.1f} ms that these calls take as shipped"
    )
    remaining: Outcomes = []
    for use, outcome in outcomes:
        if rejected_keys & {key for key, choice in outcome.choices.items() if choice}:
            choices = {key: None if key in rejected_keys else choice for key, choice in outcome.choices.items()}
            outcome = replace(outcome, choices=choices, candidate_seconds=outcome.baseline_seconds)
            search.keep_outcomes([outcome])
        remaining.append((use, outcome))
    return remaining


def _is_confirmed(samples: list[tuple[Evidence, float]]) -> bool:
    """Return True if a schedule is faster in the program: for its costliest call in most blocks, and in total.

    Args:
        samples: For each call that uses the schedule, the comparison and the seconds that it takes as shipped.
    """
    costliest, _ = max(samples, key=lambda sample: sample[1])
    shipped_seconds = sum(seconds for _, seconds in samples)
    tuned_seconds = sum(seconds / comparison.gain for comparison, seconds in samples)
    wins_most_blocks = 2 * costliest.wins > costliest.blocks
    return costliest.gain >= 1 + _MIN_CALL_GAIN and wins_most_blocks and tuned_seconds < shipped_seconds


def restore_shipped_if_slower(program: Sequence[str], outcomes: Outcomes) -> None:
    """Time whole runs with the shipped and the tuned schedules in alternation, and print whether the program is faster.

    If the program is slower with the tuned schedules, save the shipped ones in their place.

    Args:
        program: Path of a Python program, and its arguments.
        outcomes: What the search found for the program's calls.
    """
    times = _time_runs(program)
    if times is None:  # a run failed
        return
    wall, processor = times
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
            f"{clock}: minimum {speedup.baseline_seconds:.2f} s as shipped, {speedup.candidate_seconds:.2f} s tuned; "
            f"tuned is faster in {speedup.wins} of {speedup.blocks} pairs: {verdict}"
        )
    is_slower = any("slower" in verdict for verdict in verdicts)
    if is_slower and not any("faster" in verdict for verdict in verdicts):
        _restore_shipped(outcomes)
        print(f"{program[0]} is slower with the new schedules: they are deleted")


def _time_runs(program: Sequence[str]) -> tuple[Times, Times] | None:
    """Return wall-clock seconds and processor seconds of whole runs; None if a run failed."""
    wall: Times = ([], [])
    processor: Times = ([], [])
    print(f"running {program[0]} as shipped and tuned in alternation, at least {_MIN_RUNS} times each", flush=True)
    begin = time.perf_counter()
    for run in range(2 * _MAX_RUNS):
        if run >= 2 * _MIN_RUNS and run % 2 == 0 and time.perf_counter() - begin > _MAX_RUN_SECONDS:
            break
        # 0 is shipped, 1 tuned. In the order 0, 1, 1, 0, 0, 1, … a steady drift of the machine's speed cancels out.
        is_tuned = (run + 1) // 2 % 2
        times_before, start = os.times(), time.perf_counter()
        environment = {**os.environ, "WEFTGRAD_TUNE": ("off", "use")[is_tuned]}
        process = subprocess.run([sys.executable, *program], env=environment, check=False, stdout=subprocess.DEVNULL)
        wall_seconds, times_after = time.perf_counter() - start, os.times()
        if process.returncode:
            print(f"{program[0]} ended with status {process.returncode}: its time was not compared")
            return None
        wall[is_tuned].append(wall_seconds)
        processor_seconds = (
            times_after.children_user
            + times_after.children_system
            - times_before.children_user
            - times_before.children_system
        )
        processor[is_tuned].append(processor_seconds)
    return wall, processor


def _restore_shipped(outcomes: Outcomes) -> None:
    """Delete the tuned schedules: save, for every call, that the shipped schedule is the choice."""
    from ..runtime.tuning import search  # lazy: start-up

    for _, outcome in outcomes:
        search.keep_outcomes(
            [replace(outcome, choices=dict.fromkeys(outcome.choices), candidate_seconds=outcome.baseline_seconds)]
        )
