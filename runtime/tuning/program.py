"""Run a user's Python program, to record its calls or to time tuned against shipped schedules in it."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from ..errors import ArgumentError
from .record import Recording, Use
from .trial import Trial

__all__ = ["record_uses", "run_trial"]


def record_uses(command: Sequence[str]) -> list[Use]:
    """Run a program in this process, as `python FILE …` would, and return the op calls that it makes.

    Args:
        command: A Python file and its arguments.

    Raises:
        ArgumentError: There is no such file, or the program exits with a status other than 0.
        Exception: Whatever the program raises.
    """
    recording = Recording()
    _run(command, recording)
    return recording.uses()


def run_trial(command: Sequence[str], keys: Collection[str]) -> Trial:
    """Run a program as `record_uses` does, and time tuned and shipped schedules in it.

    Args:
        command: A Python file and its arguments.
        keys: Keys of the tuned schedules to time. Calls that use one alternate between it and the shipped schedule.
    """
    trial = Trial(keys)
    _run(command, trial)
    return trial


def _run(command: Sequence[str], observer: AbstractContextManager[object]) -> None:
    """Run a Python file with its arguments inside `observer`; then unload the modules that it imported."""
    path = Path(command[0])
    if not path.is_file():
        raise ArgumentError(f"tune: there is no program {command[0]!r}")
    folder = path.resolve().parent  # before the program can change the working directory
    previous_argv, previous_path, previous_modules = sys.argv, list(sys.path), set(sys.modules)
    sys.argv = list(command)
    sys.path.insert(0, str(folder))
    try:
        with observer:
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as error:
                if error.code not in (None, 0):
                    raise ArgumentError(f"tune: {command[0]} ended with status {error.code}") from None
    finally:
        sys.argv = previous_argv
        sys.path[:] = previous_path
        for name in set(sys.modules) - previous_modules:  # a second run must import the program's modules again
            file = getattr(sys.modules[name], "__file__", None)
            is_program_module = file and Path(file).is_relative_to(folder) and "site-packages" not in file
            if is_program_module and name.partition(".")[0] != __name__.partition(".")[0]:
                del sys.modules[name]
