"""Raise weftgrad's errors, with the file and the position in it, when a file to load is damaged or refused."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

from ..runtime.errors import ArgumentError, ShapeError, WeftgradError

__all__ = ["CallbackError", "load_converting_errors", "load_naming_path"]

_DAMAGE_ERRORS = (
    pickle.UnpicklingError, EOFError, struct.error, AttributeError, ImportError, LookupError, TypeError, ValueError,
    OverflowError, AssertionError,
)  # fmt: skip
"""What unpickling, reading binary fields and rebuilding tensors raise for a damaged file."""


class CallbackError(Exception):
    """Wraps an exception that the program's `map_location` raised, which is its `__cause__`.

    `load_converting_errors` does not report it as an error of the file, and `load_naming_path` raises the cause.
    """


def load_naming_path(path: object, load: Callable[[], object]) -> object:
    """Call `load` and return its result. Add the file's path to the message of a `WeftgradError`.

    Exceptions of the program's `map_location` are raised as they are.

    Args:
        path: The path; None for an open file.
        load: Reads the file.
    """
    try:
        return load()
    except CallbackError as error:
        raise (error.__cause__ or error) from None
    except WeftgradError as error:
        if path is not None and len(error.args) == 1:
            error.args = (f"{error} (file {path})",)
        raise


def load_converting_errors(
    problem: str, load: Callable[[], object], key_path: Callable[[], str] = lambda: ""
) -> object:  # fmt: skip
    """Call `load` and return its result. Convert the exceptions of damaged files to `ArgumentError`.

    Args:
        problem: Beginning of the messages, such as "load: cannot read the file".
        load: Reads the file.
        key_path: Returns the keys of the dicts whose item is being read, for the message.

    Raises:
        ArgumentError: The file is damaged.
        WeftgradError: `load` raised it, other than a `ShapeError`; the key path is put before its message.
    """
    try:
        return load()
    except RecursionError as error:
        raise ArgumentError(f"{problem}: containers in it are nested too deeply") from error
    except (*_DAMAGE_ERRORS, WeftgradError) as error:
        keys = key_path()
        # A ShapeError says that the sizes in the file do not fit its data, so it is converted as well.
        if isinstance(error, WeftgradError) and not isinstance(error, ShapeError):
            if keys:
                error.args = (f"load: {keys}: {str(error).removeprefix('load: ')}", *error.args[1:])
            raise
        reason = f"no item {error}" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(f"{problem}: {keys}: {reason}" if keys else f"{problem}: {reason}") from error
