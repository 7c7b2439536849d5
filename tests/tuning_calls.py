"""A search with scripted times, and calls whose plans are recorded, for tests of tuning."""

from __future__ import annotations

import atexit
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import weftgrad as wg
from weftgrad.runtime import schedules
from weftgrad.runtime.device import device
from weftgrad.runtime.records import registry
from weftgrad.runtime.tuning import autotune, search, store
from weftgrad.runtime.tuning.measure import Call, Trials

__all__ = ["CPU", "Scripted", "exp_call", "record_tuned_calls", "script_search", "use_tuned_file"]

CPU: Any = device("cpu")


class Scripted(Trials):
    """A clock that tells what a choice is said to take, and results that are wrong where it says so."""

    seconds: Callable[[Any], float]
    wrong: Callable[[Any], bool]
    samples: dict[Any, int]

    def prepare(self, planned: Any) -> Any:
        run = super().prepare(planned)

        def ran(*args: Any) -> None:
            run(*args)

        ran.planned = planned  # type: ignore[attr-defined]
        return ran

    def sample(self, run: Any, n: int) -> float:
        parts = run.planned.steps[0].global_size[0]
        Scripted.samples[parts] = Scripted.samples.get(parts, 0) + 1
        return Scripted.seconds(parts)

    def results(self, run: Any) -> list[Any]:
        outputs = super().results(run)
        return [f + 1 for f in outputs] if Scripted.wrong(run.planned.steps[0].global_size[0]) else outputs


def exp_call(numel: int = 40_000) -> Call:
    """Return the call of `exp` on so many elements of `cpu`."""
    return Call(registry["exp"], (wg.empty(numel).meta,), (), CPU)


@contextmanager
def use_tuned_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep tuned schedules in a file of this test, and forget all afterwards. Kernels stay in the user's cache."""
    monkeypatch.setattr(store, "cache_folder", lambda: folder / "cache")
    monkeypatch.delenv("WEFTGRAD_TUNE", raising=False)
    schedules.forget()
    yield folder / "cache" / "schedules.json"
    monkeypatch.undo()
    schedules.forget()


def script_search(monkeypatch: pytest.MonkeyPatch) -> type[Scripted]:
    """Let searches use scripted times and results."""
    monkeypatch.setattr(search, "Trials", Scripted)
    Scripted.samples = {}
    Scripted.wrong = staticmethod(lambda parts: False)  # type: ignore[method-assign,assignment]
    return Scripted


def record_tuned_calls(monkeypatch: pytest.MonkeyPatch) -> list[Call]:
    """Set `WEFTGRAD_TUNE=1`, with a search that always chooses 8 parts, and return the list of calls that it tunes."""
    calls: list[Call] = []

    def tune(call: Call, seconds: float) -> search.Outcome:
        assert seconds == 0.5
        calls.append(call)
        _, questions = call.plan()
        choices = {q.key: {**q.answer, "parts": 8} for q in questions}
        return search.Outcome(call, choices, 2e-3, 1e-3, 1, 0, 0)

    monkeypatch.setattr(search, "tune", tune)
    monkeypatch.setattr(schedules, "on_plan", autotune.tune)
    monkeypatch.setattr(autotune, "_report", autotune._ProgressReport())
    monkeypatch.setattr(atexit, "register", lambda function: None)
    return calls
