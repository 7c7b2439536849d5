"""A program that is run to see what it calls, or whether what was found makes its calls faster."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ..errors import ArgumentError
from .record import Recording, Use
from .trial import Trial

__all__ = ["trial_of", "uses_of"]


def uses_of(command: Sequence[str]) -> list[Use]:
    """What `command` (a Python file and its arguments) calls, run in this process as `python FILE …` would run it.

    A program that ends by `sys.exit` ends the recording. Raises `ArgumentError` where there is no such file, and what
    the program raises.
    """
    recording = Recording()
    _run(command, recording)
    return recording.uses()


def trial_of(command: Sequence[str], keys: Collection[str]) -> Trial:
    """The kept choices of `keys` and the shipped ones by turns in `command`, which is run as `uses_of` runs it."""
    trial = Trial(keys)
    _run(command, trial)
    return trial


def _run(command: Sequence[str], watched: AbstractContextManager[Any]) -> None:
    path = Path(command[0])
    if not path.is_file():
        raise ArgumentError(f"tune: there is no program {command[0]!r}")
    arguments, places, modules = sys.argv, list(sys.path), set(sys.modules)
    sys.argv = list(command)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with watched:
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as ended:
                if ended.code not in (None, 0):
                    raise ArgumentError(f"tune: {command[0]} ended with status {ended.code}") from None
    finally:
        sys.argv = arguments
        sys.path[:] = places
        for name in set(sys.modules) - modules:  # the program's own: a second run imports them anew
            file = getattr(sys.modules[name], "__file__", None)
            own = file and Path(file).is_relative_to(path.resolve().parent) and "site-packages" not in file
            if own and name.partition(".")[0] != __name__.partition(".")[0]:
                del sys.modules[name]
