"""`weftgrad tune`: measures which schedules are fastest here, and keeps them for later runs.

    weftgrad tune                              the usual shapes
    weftgrad tune --ops matmul --shapes 1000x1000x1000,64x10x512
    weftgrad tune --from train.py --epochs 1   what a program really calls, weighted by what it takes
    weftgrad tune --show | --clear

Every call is searched by measurement (`runtime.tuning.search`): what is kept gives the results of the shipped schedule,
and beats it by more than noise. With `--from`, the program runs once while its calls are counted and timed; the time
there is goes to them by their share of the program's. It runs once more while they take what is shipped and what was
found by turns, and what is not faster there is dropped; `--verify` compares whole runs. That is the idea of Adaptive
Neural Compilation (Bunel, Desmaison, Kohli, Torr and Kumar 2016): adapt a program to the distribution of its inputs.
"""

from __future__ import annotations

import argparse
import re
import time
from collections.abc import Iterable, Sequence
from typing import Any

from ..runtime import dtypes, schedules
from ..runtime.device import device as to_device
from ..runtime.errors import ArgumentError
from .terminal import Style, table
from .tune_program import tried, verify

__all__ = ["register"]

_LEAST = 0.3  # seconds that are worth beginning a search with
_SHARE = 0.002  # of a program's time, below which a call is left as it is


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser(
        "tune",
        help="find the fastest schedules for this machine, and keep them",
        description="Measures which schedules are fastest here. What is kept gives the same results, and beats the "
        "shipped schedule by more than noise.",
    )
    made.add_argument("--device", default=None, help="the device (default: the default one)")
    made.add_argument("--ops", type=_words, default=None, metavar="OP,OP", help="which ops (default: all that follow)")
    made.add_argument("--dtypes", type=_words, default=["float32"], metavar="DTYPE,…", help="default: float32")
    made.add_argument("--shapes", type=_shapes, default=None, metavar="8x64,…", help="in place of the usual ones")
    made.add_argument("--time", type=_seconds, default=300.0, metavar="5m", help="how long at most (default: 5m)")
    made.add_argument("--report", action="store_true", help="measure what was found once more at the end")
    made.add_argument("--verify", action="store_true", help="with --from: compare whole runs, without and with it")
    made.add_argument("--show", action="store_true", help="what is kept, for every device")
    made.add_argument("--clear", action="store_true", help="forget what is kept (with --device: there)")
    made.add_argument("--from", dest="program", nargs=argparse.REMAINDER, metavar="PROGRAM.py", help="with arguments")
    made.set_defaults(run=run)


def _words(text: str) -> list[str]:
    return [word for word in text.split(",") if word]


def _shapes(text: str) -> list[tuple[int, ...]]:
    if not re.fullmatch(r"\d+(x\d+)*(,\d+(x\d+)*)*", text):
        raise argparse.ArgumentTypeError(f"{text!r}: give sizes as in 64x1024,1000x1000x1000")
    return [tuple(map(int, each.split("x"))) for each in text.split(",")]


def _seconds(text: str) -> float:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)(s|m|h)?", text)
    if not found or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r}: give a time as in 90s, 5m or 1h")
    return float(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2] or "s"]


def run(options: argparse.Namespace) -> int:
    """Show, clear, or record what is called and search."""
    if options.show:
        return _show()
    if options.clear:
        return _clear(options)
    if options.verify and not options.program:
        raise ArgumentError("tune: --verify runs the program that --from names; name one")
    if options.program == []:
        raise ArgumentError("tune: --from needs a program, as in: weftgrad tune --from train.py --epochs 1")
    uses = _of_program(options.program) if options.program else _of_usual(options)
    if not uses:
        print("nothing that was called has a choice of schedules")
        return 0
    outcomes, status = _search(uses, options.time)
    if options.program and not status:
        outcomes = tried(options.program, outcomes)
    if outcomes:
        _table(outcomes, options.report)
    if options.verify and not status:
        if any(choice for _, outcome in outcomes for choice in outcome.choices.values()):
            verify(options.program, outcomes)
        else:
            print("nothing better than what is shipped was found: there is nothing to verify")
    return status


# what is tuned


def _of_program(program: Sequence[str]) -> list[Any]:
    """What a program calls, by what it takes."""
    from ..runtime.tuning.program import uses_of

    print(f"running {program[0]} to see what it calls", flush=True)
    found = uses_of(program)
    total = sum(use.total for use in found) or 1.0
    worth = [use for use in found if use.asked and use.total >= _SHARE * total]
    share = sum(use.total for use in worth) / total
    print(
        f"{sum(u.count for u in found)} calls of {len(found)} kinds; {len(worth)} of these have a choice of schedules "
        f"and take {share:.0%} of {total:.2f} s in kernels"
    )
    return worth


def _of_usual(options: argparse.Namespace) -> list[Any]:
    from .tune_shapes import uses

    place = to_device(options.device)
    return uses(place, options.ops, [dtypes.parse(d) for d in options.dtypes], options.shapes)


# searching


def _search(uses: Sequence[Any], seconds: float) -> tuple[list[tuple[Any, Any]], int]:
    """Search for each use in turn, those that take the most first, for their share of the time; what came of it, and
    130 where that was interrupted. What was found is kept at once."""
    from ..runtime.tuning import search

    style = Style()
    deadline = time.perf_counter() + seconds
    outcomes: list[tuple[Any, Any]] = []
    waiting = _merged(uses)
    try:
        for number, use in enumerate(waiting):
            left = deadline - time.perf_counter()
            if left < _LEAST:
                print(f"the time is up: {len(waiting) - number} calls are left as they are")
                break
            rest = sum(u.total for u in waiting[number:]) or 1.0
            own = max(_LEAST, left * max(use.total / rest, 1 / (2 * (len(waiting) - number))))
            print(f"[{number + 1}/{len(waiting)}, {left:.0f} s left] {use.call}", end=" ", flush=True)
            try:
                found = search.tune(use.call, own)
            except MemoryError as error:
                print(f"left as it is: {error}")
                continue
            if found is None:
                print("has no choice")
                continue
            search.keep([found])
            outcomes.append((use, found))
            better = any(found.choices.values())
            print(style("good" if better else "comment", f"{found.gain:.2f}x" if better else "as shipped"), flush=True)
    except KeyboardInterrupt:
        print("\ninterrupted: what was found so far is kept")
        return outcomes, 130
    return outcomes, 0


def _merged(uses: Sequence[Any]) -> list[Any]:
    """One use for all that share what would be kept for them: the one that takes the most stands for them."""
    found: dict[tuple[str, ...], Any] = {}
    for use in sorted(uses, key=lambda u: -u.total):
        found.setdefault(tuple(q.key for q in use.asked), use)
    return list(found.values())


def _table(outcomes: Sequence[tuple[Any, Any]], again: bool) -> None:
    """What was found: before and after, and what the choice is."""
    rows, marks = [], []
    for use, outcome in outcomes:
        before, after = outcome.before, outcome.after
        chosen = [(key, c) for key, c in outcome.choices.items() if c]
        if again and chosen:
            before, after = _measured(outcome)
        shown = "; ".join(_changes(key.split(" ")[0], choice) for key, choice in chosen)
        gain = before / after
        shown = shown or "as shipped"
        rows.append([str(use.call), _time(before), _time(after), f"{gain:.2f}x", str(outcome.tried), shown])
        marks.append(["", "", "", "good" if chosen else "", "", ""])
        if outcome.wrong or outcome.failed:
            rows[-1][-1] += f" ({outcome.wrong} gave other results, {outcome.failed} did not run)"
    print(table(rows, ("call", "before", "after", "gain", "tried", "schedule"), Style(), marks))
    weights = [(use.total or o.before, o) for use, o in outcomes]
    whole = sum(w for w, _ in weights)
    print(f"all of them: {whole / (sum(w / o.gain for w, o in weights) or 1.0):.2f}x, by what each takes")


def _measured(outcome: Any) -> tuple[float, float]:
    """The shipped and the kept choice once more, in turns: the least of each."""
    from ..runtime.tuning.measure import Trials

    call = outcome.call
    plans = [call.plan()[0], call.plan(tuned=True)[0]]
    trials = Trials(call, plans[0])
    runs = [trials.prepare(planned) for planned in plans]
    calls = trials.calls(runs[0])
    times = [[trials.sample(run, calls) for run in runs] for _ in range(20)]
    return min(t[0] for t in times), min(t[1] for t in times)


def _changes(space: str, choice: Any) -> str:
    shipped = schedules.spaces[space].fallback
    return ", ".join(f"{name} {_value(value)}" for name, value in choice.items() if value != shipped[name])


def _value(value: Any) -> str:
    return "auto" if value is None else "x".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _time(seconds: float) -> str:
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


# what is kept


def _show() -> int:
    from ..runtime.tuning import store

    every = store.entries()
    if not any(every.values()):
        print(f"nothing is kept{'' if store.path() else ': the cache is off (WEFTGRAD_CACHE)'}")
        return 0
    for device, entries in every.items():
        print(Style()("heading", device))
        rows = [[key, *_kept(entry)] for key, entry in sorted(entries.items())]
        print(table(rows, ("call", "before", "after", "schedule"), Style()), end="\n\n")
    return 0


def _kept(entry: dict[str, Any]) -> Iterable[str]:
    choice = entry["choice"]
    found = {} if choice is None else {k: tuple(v) if isinstance(v, list) else v for k, v in choice.items()}
    shown = ", ".join(f"{k} {_value(v)}" for k, v in sorted(found.items())) or "as shipped"
    return _time(entry.get("before", 0.0)), _time(entry.get("after", 0.0)), shown


def _clear(options: argparse.Namespace) -> int:
    from ..runtime.tuning import store

    only = schedules.device_key(to_device(options.device).driver) if options.device else None
    print(f"{store.clear(only)} tuned schedules forgotten")
    schedules.forget()
    return 0
