"""Tuning a user's program: what it calls is recorded, and whole programs are compared in pairs."""

from __future__ import annotations

import json
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from tuning_calls import CPU, exp_call

from weftgrad.cli import main, tune_program
from weftgrad.runtime import schedules
from weftgrad.runtime.errors import ArgumentError
from weftgrad.runtime.tuning import search, store
from weftgrad.runtime.tuning.evidence import Evidence, compare_samples, sign_test_p_value
from weftgrad.runtime.tuning.measure import Call
from weftgrad.runtime.tuning.program import record_uses, run_trial
from weftgrad.runtime.tuning.record import Recording
from weftgrad.runtime.tuning.trial import Trial

pytestmark = pytest.mark.usefixtures("tuned_file")

PROGRAM = """
import sys
import weftgrad as wg
import helper
x = wg.ones(64, 30, requires_grad=True)
for _ in range(int(sys.argv[1])):
    helper.step(x)
print("ran", sys.argv[1:])
"""

HELPER = """
import weftgrad as wg
def step(x):
    (x @ wg.ones(30, 50)).exp().sum().backward()
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "helper.py").write_text(HELPER)
    (tmp_path / "program.py").write_text(PROGRAM)
    return tmp_path / "program.py"


def test_modules_of_a_program_that_changes_its_folder_are_unloaded(
    program: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program.write_text("import os, helper\nos.mkdir('inner')\nos.chdir('inner')\n")
    monkeypatch.chdir(tmp_path)  # also restores the working directory
    record_uses(["program.py"])
    assert "helper" not in sys.modules


def test_what_a_program_calls_is_recorded_with_its_gradients(program: Path, capsys: Any) -> None:
    uses_by_call = {(u.call.record.name, str(u.call)): u for u in record_uses([str(program), "5", "--fast"])}
    assert capsys.readouterr().out == "ran ['5', '--fast']\n"
    counts = {name: use.count for (name, _), use in uses_by_call.items()}
    assert counts["mm"] == counts["exp"] == counts["mm_grad_input"] == counts["sum"] == 5
    assert all(use.seconds > 0 for use in uses_by_call.values())
    uses = [use for (name, _), use in uses_by_call.items() if name == "mm"]
    assert "float32 64x64x32x1 NN" in uses[0].questions[0].key
    assert schedules.on_plan is None
    with Recording(), pytest.raises(ArgumentError, match="goes on already"), Recording():
        pass


@pytest.mark.thorough
def test_a_program_is_tuned_for_what_it_calls(scripted: Any, program: Path, tuned_file: Path, capsys: Any) -> None:
    scripted.seconds = staticmethod(lambda size: 1e-3)
    assert main(["tune", "--time", "2s", "--verify", "--from", str(program), "3"]) == 0
    shown = capsys.readouterr().out
    assert "have a choice of schedules" in shown
    assert "as shipped" in shown
    assert "there is nothing to verify" in shown
    keys = next(iter(json.loads(tuned_file.read_text())["devices"].values()))
    assert all(key.startswith("opencl-cpu/") and " float32 " in key for key in keys)
    assert main(["tune", "--show"]) == 0
    listed = capsys.readouterr().out
    assert all(key in listed for key in keys)
    assert main(["tune", "--clear"]) == 0
    assert f"{len(keys)} tuned schedules forgotten" in capsys.readouterr().out
    assert main(["tune", "--show"]) == 0
    assert "nothing is saved" in capsys.readouterr().out


PLANTED = """
import dataclasses
import weftgrad as wg
from weftgrad.runtime import schedules

space = schedules.spaces["opencl-cpu/contraction"]
bad = {**space.fallback, "tile": (1, 4, 256)}
schedules.spaces[space.name] = dataclasses.replace(space, fallback=bad, defaults={})
x, y = wg.ones(200, 256), wg.ones(256, 256)
for _ in range(200):
    z = x @ y
"""

# Where nothing is built yet, building takes most of the first; a machine that does something else needs more samples.
BUDGETS = ("2s", "6s", "20s")


@pytest.mark.thorough
def test_a_default_that_is_bad_is_found_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    """The program comes with it; measured, not scripted."""
    name = "opencl-cpu/contraction"
    space = schedules.spaces[name]
    monkeypatch.setitem(schedules.spaces, name, space)
    path = tmp_path / "planted.py"
    path.write_text(PLANTED)
    for budget in BUDGETS:
        assert main(["tune", "--time", budget, "--from", str(path)]) == 0
        shown = capsys.readouterr().out
        if re.search(r"choices \d are faster there, 0 are not", shown):
            break
        assert main(["tune", "--clear"]) == 0
        capsys.readouterr()
    else:
        pytest.fail(f"not found in any of {', '.join(BUDGETS)}; at last:\n{shown}")
    tuned = schedules.tuned_choices(schedules.device_key(CPU.driver))
    ((key, choice),) = ((key, choice) for key, choice in tuned.items() if key.startswith(name))
    assert choice is not None
    assert choice["tile"] != (1, 4, 256)
    ((evidence, _),) = run_trial([str(path)], [key]).evidence(20)[key]
    assert evidence.gain > 1.2
    assert evidence.is_faster(0.2, 0.01)


@pytest.mark.parametrize(("gain", "wins"), [(0.9, 2), (1.2, 5), (1.005, 12)])
def test_what_is_not_faster_in_the_program_is_dropped(
    gain: float, wins: int, tmp_path: Path, scripted: Any, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The search's clock says that 8 parts a core are fastest; in the program they are not."""
    evidence = Trial.evidence

    def slower(trial: Trial, fewest: int) -> dict[str, Any]:
        return {key: [(Evidence(gain, 1.0, gain, wins, 12), 1.0)] for key in evidence(trial, fewest)}

    monkeypatch.setattr(Trial, "evidence", slower)
    cores = CPU.driver.capabilities.cores
    scripted.seconds = staticmethod(lambda parts: 1e-3 if parts == 8 * cores else 2e-3)
    path = tmp_path / "exp.py"
    path.write_text("import weftgrad as wg\nx = wg.ones(1000)\nfor _ in range(100):\n    y = x.exp()\n")
    assert main(["tune", "--from", str(path)]) == 0
    shown = capsys.readouterr().out
    assert "of 2 choices 0 are faster there, 1 are not and are dropped, 1 are called too seldom" in shown
    choices = schedules.tuned_choices(schedules.device_key(CPU.driver))
    tuned = {key.split()[1]: choice for key, choice in choices.items()}
    assert tuned["exp"] is None
    assert tuned["fill"] is not None


@pytest.mark.parametrize(
    ("tuned", "verdict", "is_kept"), [(0.9, "1.11x faster", True), (0.999, "no significant change", True),
                                   (1.25, "1.25x slower", False)],
)  # fmt: skip
def test_whole_programs_are_compared_in_pairs(
    tuned: float, verdict: str, is_kept: bool, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """A machine gets slower while it measures: that is no change."""
    call = exp_call()
    (question,) = call.plan()[1]
    outcome = search.Outcome(call, {question.key: {**question.answer, "parts": 8}}, 2e-3, 1e-3, 1, 0, 0)
    search.keep_outcomes([outcome])
    off = [1 + 0.2 * i for i in range(6)]
    runs = off, [tuned * t for t in off]
    monkeypatch.setattr(tune_program, "_time_runs", lambda program: (runs, runs))
    tune_program.restore_shipped_if_slower(["train.py"], [(None, outcome)])
    assert capsys.readouterr().out.count(verdict) == 2
    assert (schedules.tuned_choices(schedules.device_key(CPU.driver))[question.key] is not None) is is_kept


def test_what_samples_are_evidence_of() -> None:
    quiet, other = [1.0, 1.1, 5.0, 1.0, 1.2] * 8, [0.9, 1.0, 4.0, 0.9, 1.0] * 8
    evidence = compare_samples(quiet, other, quiet[::-1])
    assert (evidence.baseline_seconds, evidence.candidate_seconds, evidence.wins, evidence.blocks) == (1.0, 0.9, 13, 13)
    assert 1.09 < evidence.gain < 1.12
    assert evidence.is_faster(0.03, 0.002)
    assert not evidence.is_faster(0.15, 0.002)
    # The baseline differs as much from itself.
    assert not compare_samples(quiet, other, [1.2 * t for t in quiet]).is_faster(0.03, 0.002)
    assert not compare_samples(quiet[:5], other[:5]).is_faster(0.03, 0.002)  # five of five turns may be won by chance
    bursts = [1.0 if i % 4 else 9.0 for i in range(48)]  # in which every fourth sample is lost, of either in turn
    assert compare_samples(bursts, [0.9 * t for t in bursts[1:] + bursts[:1]]).wins == 12
    assert sign_test_p_value(5, 5) == 1 / 32
    assert sign_test_p_value(0, 7) == 1
    assert sign_test_p_value(3, 4) == 5 / 16


def test_an_interrupted_search_keeps_what_it_found(tuned_calls: list[Call], monkeypatch: pytest.MonkeyPatch,
                                                   capsys: Any) -> None:  # fmt: skip
    tune = search.tune

    def once(call: Call, seconds: float) -> Any:
        if tuned_calls:
            raise KeyboardInterrupt
        return tune(call, 0.5)

    monkeypatch.setattr(schedules, "on_plan", None)
    monkeypatch.setattr(search, "tune", once)
    assert main(["tune", "--ops", "exp,add", "--shapes", "300x300"]) == 130
    shown = capsys.readouterr().out
    assert "interrupted" in shown
    assert "2.00x" in shown
    assert len(schedules.tuned_choices(schedules.device_key(CPU.driver))) == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [(["--ops", "nothing"], "no common shapes"), (["--ops", "conv2d", "--shapes", "7"], "takes none of these shapes"),
     (["--verify"], "--verify runs the program"), (["--from", "/nowhere.py"], "no program"),
     (["--from"], "needs a program")],
)  # fmt: skip
def test_what_cannot_be_tuned_is_told(words: list[str], complaint: str, capsys: Any) -> None:
    assert main(["tune", *words]) == 2
    assert complaint in capsys.readouterr().err


def test_no_warning_without_a_file() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert store.entries() == {}
        assert store.clear() == 0
