"""`weftgrad tune`: measure which schedules are fastest on this machine, and save them for later runs.

    weftgrad tune                              common shapes
    weftgrad tune --ops matmul --shapes 1000x1000x1000,64x10x512
    weftgrad tune --from train.py --epochs 1   the calls of a program, weighted by their time
    weftgrad tune --show | --clear

`runtime.tuning.search` measures the schedules of every call. It saves a schedule only if it gives the same results as
the shipped one and is faster by more than noise.

With `--from`, the program runs once while its calls are counted and timed, and each call gets search time in
proportion to its share of the program's time. The program then runs once more with the shipped and the new schedules
in alternation, and schedules that are not faster there are dropped (`tune_program`). `--verify` compares whole
runs, and goes back to the shipped schedules if the program is slower with the new ones.
The idea is that of Adaptive Neural Compilation (Bunel, Desmaison, Kohli, Torr and Kumar 2016): adapt a program to the
distribution of its inputs.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..runtime import dtypes, schedules
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError
from ..runtime.tuning import store
from .terminal import Style, table
from .tune_program import Outcomes, drop_slower_schedules, restore_shipped_if_slower
from .tune_shapes import record_common_calls

if TYPE_CHECKING:
    from ..runtime.schedules import Choice
    from ..runtime.tuning.record import Use
    from ..runtime.tuning.search import Outcome

__all__ = ["add_options"]

_MIN_SEARCH_SECONDS = 0.3  # with less time left, no further search begins
_MIN_TIME_SHARE = 0.002  # calls that take a smaller share of a program's time are not tuned


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Measures which schedules are fastest on this machine. A saved schedule gives the same results as the "
        "shipped one, and is faster by more than noise."
    )
    command.add_argument("--device", default=None, help="the device (default: the default one)")
    command.add_argument(
        "--ops", type=_words, default=None, metavar="OP,OP", help="which ops (default: all common ones)"
    )
    command.add_argument("--dtypes", type=_words, default=["float32"], metavar="DTYPE,…", help="default: float32")
    command.add_argument(
        "--shapes", type=_shapes, default=None, metavar="8x64,…", help="shapes to use instead of the common ones"
    )
    command.add_argument("--time", type=_seconds, default=300.0, metavar="5m", help="time limit (default: 5m)")
    command.add_argument("--report", action="store_true", help="measure the new schedules again at the end")
    command.add_argument(
        "--verify",
        action="store_true",
        help="with --from: compare whole runs, and delete the new schedules if the program is slower",
    )
    command.add_argument("--show", action="store_true", help="print the saved schedules of every device")
    command.add_argument("--clear", action="store_true", help="delete the saved schedules (with --device: only there)")
    command.add_argument(
        "--from", dest="program", nargs=argparse.REMAINDER, metavar="PROGRAM.py", help="a program with its arguments"
    )
    command.set_defaults(run=run)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _shapes(text: str) -> list[tuple[int, ...]]:
    if not re.fullmatch(r"\d+(x\d+)*(,\d+(x\d+)*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: give sizes as in 64x1024,1000x1000x1000")
    return [tuple(map(int, shape.split("x"))) for shape in text.split(",")]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if not match or not float(match[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: give a time as in 90s, 5m or 1h")
    return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


def run(options: argparse.Namespace) -> int:
    """Show or delete saved schedules, or collect calls and search. Return the exit status."""
    if options.show:
        return _print_saved()
    if options.clear:
        return _delete_saved(options)
    if options.verify and not options.program:
        raise ArgumentError("tune: --verify runs the program that --from names; name one")
    if options.program == []:
        raise ArgumentError("tune: --from needs a program, as in: weftgrad tune --from train.py --epochs 1")
    uses = _program_uses(options.program) if options.program else _common_uses(options)
    if not uses:
        print("no call has a choice of schedules")
        return 0
    outcomes, status = _search(uses, options.time)
    if options.program and not status:
        outcomes = drop_slower_schedules(options.program, outcomes)
    if outcomes:
        _print_outcomes(outcomes, options.report)
    if options.verify and not status:
        if any(choice for _, outcome in outcomes for choice in outcome.choices.values()):
            restore_shipped_if_slower(options.program, outcomes)
        else:
            print("no schedule is faster than the shipped ones: there is nothing to verify")
    return status


# The calls to tune


def _program_uses(program: Sequence[str]) -> list[Use]:
    """Run a program, and return its calls that are worth tuning, with their times."""
    from ..runtime.tuning.program import record_uses  # lazy: start-up

    print(f"running {program[0]} to record its calls", flush=True)
    uses = record_uses(program)
    total = sum(use.total for use in uses) or 1.0
    tunable = [use for use in uses if use.questions and use.total >= _MIN_TIME_SHARE * total]
    share = sum(use.total for use in tunable) / total
    print(
        f"{sum(u.count for u in uses)} calls of {len(uses)} kinds; {len(tunable)} of these have a choice of schedules "
        f"and take {share:.0%} of {total:.2f} s in kernels"
    )
    return tunable


def _common_uses(options: argparse.Namespace) -> list[Use]:
    """Return calls of the ops with common shapes, or with those of `--shapes`."""
    device = to_device(options.device)
    return record_common_calls(device, options.ops, [dtypes.parse(d) for d in options.dtypes], options.shapes)


# Searching


def _search(uses: Sequence[Use], seconds: float) -> tuple[Outcomes, int]:
    """Tune each call for its share of the time, the most expensive first, and save each result at once.

    Returns:
        The pairs (use, outcome), and the exit status: 0, or 130 after an interrupt.
    """
    from ..runtime.tuning import search  # lazy: start-up

    style = Style()
    deadline = time.perf_counter() + seconds
    outcomes: Outcomes = []
    queue = _merge_uses(uses)
    try:
        for number, use in enumerate(queue):
            seconds_left = deadline - time.perf_counter()
            if seconds_left < _MIN_SEARCH_SECONDS:
                print(f"the time is up: {len(queue) - number} calls are left as they are")
                break
            total_left = sum(u.total for u in queue[number:]) or 1.0
            budget = max(
                _MIN_SEARCH_SECONDS, seconds_left * max(use.total / total_left, 1 / (2 * (len(queue) - number)))
            )
            print(f"[{number + 1}/{len(queue)}, {seconds_left:.0f} s left] {use.call}", end=" ", flush=True)
            try:
                outcome = search.tune(use.call, budget)
            except MemoryError as error:
                print(f"left as it is: {error}")
                continue
            if outcome is None:
                print("has no choice")
                continue
            search.keep_outcomes([outcome])
            outcomes.append((use, outcome))
            is_faster = any(outcome.choices.values())
            print(
                style("good" if is_faster else "comment", f"{outcome.gain:.2f}x" if is_faster else "as shipped"),
                flush=True,
            )
    except KeyboardInterrupt:
        print("\ninterrupted: the schedules found so far are saved")
        return outcomes, 130
    return outcomes, 0


def _merge_uses(uses: Sequence[Use]) -> list[Use]:
    """Return one use for all uses with the same schedule keys: the one that takes the most time."""
    uses_by_keys: dict[tuple[str, ...], Use] = {}
    for use in sorted(uses, key=lambda u: -u.total):
        uses_by_keys.setdefault(tuple(q.key for q in use.questions), use)
    return list(uses_by_keys.values())


def _print_outcomes(outcomes: Outcomes, remeasure: bool) -> None:
    """Print the time before and after, and the schedule, of each outcome."""
    rows, marks = [], []
    for use, outcome in outcomes:
        baseline, candidate = outcome.baseline_seconds, outcome.candidate_seconds
        choices = [(key, c) for key, c in outcome.choices.items() if c]
        if remeasure and choices:
            baseline, candidate = _remeasure(outcome)
        schedule = "; ".join(_format_changes(key.split(" ")[0], choice) for key, choice in choices)
        gain = baseline / candidate
        schedule = schedule or "as shipped"
        rows.append(
            [
                str(use.call),
                _format_seconds(baseline),
                _format_seconds(candidate),
                f"{gain:.2f}x",
                str(outcome.tried),
                schedule,
            ]
        )
        marks.append(["", "", "", "good" if choices else "", "", ""])
        if outcome.wrong or outcome.failed:
            rows[-1][-1] += f" ({outcome.wrong} gave other results, {outcome.failed} did not run)"
    print(table(rows, ("call", "before", "after", "gain", "tried", "schedule"), Style(), marks))
    weights = [(use.total or o.baseline_seconds, o) for use, o in outcomes]
    total_weight = sum(w for w, _ in weights)
    print(f"all calls: {total_weight / (sum(w / o.gain for w, o in weights) or 1.0):.2f}x, weighted by their time")


def _remeasure(outcome: Outcome) -> tuple[float, float]:
    """Measure the shipped and the saved schedule again, alternating. Return the minimum time of each."""
    from ..runtime.tuning.measure import Trials  # lazy: start-up

    call = outcome.call
    plans = [call.plan()[0], call.plan(tuned=True)[0]]
    trials = Trials(call, plans[0])
    runs = [trials.prepare(plan) for plan in plans]
    calls = trials.calls_per_sample(runs[0])
    times = [[trials.sample(run, calls) for run in runs] for _ in range(20)]
    return min(t[0] for t in times), min(t[1] for t in times)


def _format_changes(space: str, choice: Choice) -> str:
    """Return the parameters of a choice that differ from the space's fallback."""
    shipped = schedules.spaces[space].fallback
    return ", ".join(f"{name} {_format_value(value)}" for name, value in choice.items() if value != shipped[name])


def _format_value(value: object) -> str:
    return "auto" if value is None else "x".join(map(str, value)) if isinstance(value, tuple | list) else str(value)


def _format_seconds(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


# Saved schedules


def _print_saved() -> int:
    entries_by_device = store.entries()
    if not any(entries_by_device.values()):
        print(f"nothing is saved{'' if store.path() else ': the cache is off (WEFTGRAD_CACHE)'}")
        return 0
    for device, entries in entries_by_device.items():
        print(Style()("heading", device))
        rows = [[key, *_format_entry(entry)] for key, entry in sorted(entries.items())]
        print(table(rows, ("call", "before", "after", "schedule"), Style()), end="\n\n")
    return 0


def _format_entry(entry: Mapping[str, object]) -> Iterable[str]:
    """Return the cells of a saved schedule: time before, time after, parameters."""
    choice = entry["choice"]
    values = choice if isinstance(choice, Mapping) else {}
    text = ", ".join(f"{name} {_format_value(value)}" for name, value in sorted(values.items())) or "as shipped"
    before, after = (entry.get(name) for name in ("before", "after"))
    times = (_format_seconds(seconds if isinstance(seconds, int | float) else 0.0) for seconds in (before, after))
    return *times, text


def _delete_saved(options: argparse.Namespace) -> int:
    device_key = schedules.device_key(to_device(options.device).driver) if options.device else None
    print(f"{store.clear(device_key)} tuned schedules forgotten")
    schedules.forget()
    return 0
