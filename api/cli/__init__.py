"""The command line: `weftgrad devices | doctor | cache | generate | show OP | check SPEC | prebuild | tune | bench …`.

A command is a module with `register(subparsers)`, which adds a parser whose `run` default takes the parsed options and
returns the exit status. Commands of other packages are found through the entry-point group `weftgrad.commands`.

Exit status: 0 done, 1 something is wrong with what was asked about, 2 it could not be asked, 130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata

from ..runtime.errors import SpecError, WeftgradError

__all__ = ["main", "parser"]

_OWN = ("devices", "doctor", "cache", "generate", "show", "check", "prebuild", "compile", "tune")


def parser() -> argparse.ArgumentParser:
    """The parser with every command that is installed."""
    from .. import __version__

    made = argparse.ArgumentParser(
        prog="weftgrad", description="Ops written once as specs, on any vendor's device.", allow_abbrev=False
    )
    made.add_argument("--version", action="version", version=f"weftgrad {__version__}")
    made.add_argument("--traceback", action="store_true", help="show where an error was raised")
    commands = made.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    for name in _OWN:
        try:
            import_module(f".{name}", __name__).register(commands)
        except ImportError as error:  # of a broken installation, which `doctor` is to describe
            commands.add_parser(name, help=f"not available: {error}".replace("%", "%%"))
    _demo(commands)
    for point in sorted(metadata.entry_points(group="weftgrad.commands"), key=lambda p: p.name):
        try:
            point.load()(commands)
        except (ImportError, AttributeError) as error:
            commands.add_parser(point.name, help=f"not available: {error}")
    return made


def _demo(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """The demo is a module of its own, and may be left out of an installation."""
    name = f"{__name__.rpartition('.')[0]}.demo.command"
    try:
        module = import_module(name)
    except ModuleNotFoundError as error:
        if error.name != name:
            raise
        return
    module.register(commands)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: this process's); returns the exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    traceback = "--traceback" in given  # before or behind the command
    given = [a for a in given if a != "--traceback"]
    try:
        options = parser().parse_args(given)
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
        known = _known(error)
        if traceback or known is None:
            raise
        print(f"weftgrad: {error}", file=sys.stderr)
        return known


def _known(error: Exception) -> int | None:
    """The exit status of an error that says all there is to say; None for a bug."""
    if isinstance(error, SpecError):
        return 1
    if isinstance(error, (WeftgradError, OSError)):
        return 2
    model = sys.modules.get("weftgrad.codegen.model")
    return 1 if model is not None and isinstance(error, model.SpecError) else None
