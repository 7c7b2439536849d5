"""Turn whatever stops the reading of a damaged or refused file into weftgrad's errors."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Callable

from ..runtime.errors import ArgumentError, ShapeError, WeftgradError

__all__ = ["CallbackError", "describe_errors", "raise_for_path"]

_ERRORS = (
    pickle.UnpicklingError, EOFError, struct.error, AttributeError, ImportError, LookupError, TypeError, ValueError,
    OverflowError, RecursionError, AssertionError, ShapeError,
)  # fmt: skip


class CallbackError(Exception):
    """An exception of the program's `map_location`, which is its cause: no error of the file."""


def raise_for_path(path: object, load: Callable[[], object]) -> object:
    """Call `load` and return its result. Errors name the file's path; those of `map_location` are raised unchanged.

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


def describe_errors(
    problem: str, load: Callable[[], object], key_path: Callable[[], str] = lambda: ""
) -> object:  # fmt: skip
    """Call `load` and return its result.

    Args:
        problem: Beginning of the message of the error.
        load: Reads the file.
        key_path: Returns the keys of the dicts whose item is being read, for the message.

    Raises:
        ArgumentError: The file is damaged or refused. The error is another of weftgrad's where `load` raises it.
    """
    try:
        return load()
    except RecursionError as error:
        raise ArgumentError(f"{problem}: containers in it are nested too deeply") from error
    except (*_ERRORS, WeftgradError) as error:
        path = key_path()
        if isinstance(error, WeftgradError) and not isinstance(error, ShapeError):
            if path:
                error.args = (f"load: {path}: {str(error).removeprefix('load: ')}", *error.args[1:])
            raise
        reason = f"no item {error}" if isinstance(error, KeyError) else str(error)
        raise ArgumentError(f"{problem}: {path}: {reason}" if path else f"{problem}: {reason}") from error
