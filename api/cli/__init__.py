"""The command line: `weftgrad COMMAND …`. Commands are `_OWN_COMMANDS`, `demo`, and those of other packages.

Each of our commands is a module with a function `register(subparsers)`. It adds a parser with the default `run`, a
function that takes the parsed options and returns the exit status. Another package adds a command by an entry point in
the group `weftgrad.commands` that names such a function.

Exit status: 0: done; 1: the command found a fault; 2: the command could not run; 130: interrupted; 141: the reader of
the output closed its pipe.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from .. import __version__
from ..runtime.errors import SpecError, WeftgradError

__all__ = ["main", "parser"]

_OWN_COMMANDS = ("devices", "doctor", "cache", "generate", "show", "check", "prebuild", "compile", "tune")


def parser() -> argparse.ArgumentParser:
    """Return the argument parser with every installed command."""
    root = argparse.ArgumentParser(
        prog="weftgrad", description="Ops written once as specs, on any vendor's device.", allow_abbrev=False
    )
    root.add_argument("--version", action="version", version=f"weftgrad {__version__}")
    root.add_argument("--traceback", action="store_true", help="show where an error was raised")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in _OWN_COMMANDS:
        try:
            import_module(f".{name}", __name__).register(commands)
        except ImportError as error:  # the installation is broken; `doctor` must still run to explain it
            commands.add_parser(name, help=f"not available: {error}".replace("%", "%%"))
    _demo(commands)
    for entry_point in sorted(metadata.entry_points(group="weftgrad.commands"), key=lambda p: p.name):
        try:
            entry_point.load()(commands)
        except (ImportError, AttributeError) as error:
            commands.add_parser(entry_point.name, help=f"not available: {error}")
    return root


def _demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `weftgrad demo`, unless this installation lacks the demo package."""
    name = f"{__name__.rpartition('.')[0]}.demo.command"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return
    module.register(commands)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: `sys.argv[1:]`) and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    shows_traceback = "--traceback" in arguments  # users may write it before or after the command
    arguments = [a for a in arguments if a != "--traceback"]
    try:
        options = parser().parse_args(arguments)
        if not hasattr(options, "run"):
            parser().print_help()
            return 2
        status = int(options.run(options) or 0)
        sys.stdout.flush()
        return status
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:  # `weftgrad show ... | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except Exception as error:
        exit_status = _exit_status(error)
        if shows_traceback or exit_status is None:
            raise
        print(f"weftgrad: {error}", file=sys.stderr)
        return exit_status


def _exit_status(error: Exception) -> int | None:
    """Return the exit status for an error that the user can understand from its message; None for any other error."""
    if isinstance(error, SpecError):
        return 1
    if isinstance(error, (WeftgradError, OSError)):
        return 2
    model = sys.modules.get("weftgrad.codegen.model")
    return 1 if model is not None and isinstance(error, model.SpecError) else None
