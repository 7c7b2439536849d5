"""Import modules at their first use, also where a signal handler uses them at the same time."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from importlib import import_module
from importlib.util import resolve_name
from types import ModuleType

__all__ = ["import_lazily"]


def import_lazily(name: str, package: str | None = None) -> ModuleType:
    """Import a module like `importlib.import_module`, but safely where a signal handler imports it, too.

    Python runs signal handlers in the main thread, between any two instructions. A handler that computes may interrupt
    an import in the main thread, and would then get the part of the module that exists so far. So the main thread lets
    another thread import, and waits: the handler's import waits for that thread, too. Do not call this at the top level
    of a module that the lazily imported module imports: both threads would wait for each other.

    Args:
        name: The module; relative if it starts with a dot.
        package: The package that a relative name refers to.

    Returns:
        The module.

    Raises:
        ImportError: There is no such module, or one that it imports is missing.
    """
    absolute_name = resolve_name(name, package)
    if absolute_name not in sys.modules and threading.current_thread() is threading.main_thread():
        thread = threading.Thread(target=_try_import, args=(absolute_name,), name="weftgrad-import", daemon=True)
        with suppress(RuntimeError):  # too many threads, or the interpreter is shutting down
            thread.start()
            thread.join()
    return import_module(absolute_name)


def _try_import(name: str) -> None:
    with suppress(Exception):  # the caller's import raises it again, where it is seen
        import_module(name)
