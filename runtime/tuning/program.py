"""A program that is run to see what it calls."""

from __future__ import annotations

import runpy
import sys
from collections.abc import Sequence
from pathlib import Path

from ..errors import ArgumentError
from .record import Recording, Use

__all__ = ["uses_of"]


def uses_of(command: Sequence[str]) -> list[Use]:
    """What `command` (a Python file and its arguments) calls, run in this process as `python FILE …` would run it.

    A program that ends by `sys.exit` ends the recording. Raises `ArgumentError` where there is no such file, and what
    the program raises.
    """
    path = Path(command[0])
    if not path.is_file():
        raise ArgumentError(f"tune: there is no program {command[0]!r}")
    arguments, places = sys.argv, list(sys.path)
    sys.argv = list(command)
    sys.path.insert(0, str(path.resolve().parent))
    try:
        with Recording() as recording:
            try:
                runpy.run_path(str(path), run_name="__main__")
            except SystemExit as ended:
                if ended.code not in (None, 0):
                    raise ArgumentError(f"tune: {command[0]} ended with status {ended.code}") from None
    finally:
        sys.argv = arguments
        sys.path[:] = places
    return recording.uses()
