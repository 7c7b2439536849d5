"""The command line: `weftgrad COMMAND …`. Commands are those of `_COMMANDS`, and those of other packages.

Each of our commands is a module with a function `add_options(parser)`. It adds a description, options and the default
`run`, a function that takes the parsed options and returns the exit status. The module is imported when its command is
used, and not when another one is. Another package adds a command by an entry point in the group `weftgrad.commands`
that names a function `register(subparsers)`, which adds a parser with the default `run`.

Exit status: 0: done; 1: the command found a fault; 2: the command could not run; 130: interrupted; 141: the reader of
the output closed its pipe.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from .. import __version__
from ..runtime.errors import SpecError, WeftgradError

__all__ = ["main", "parser"]

_PACKAGE = __name__.rpartition(".")[0]
_DEMO = f"{_PACKAGE}.demo"  # an installation may lack it

# Module and help of each command.
_COMMANDS = {
    "devices": (f"{__name__}.devices", "list the devices present"),
    "doctor": (f"{__name__}.doctor", "check the installation, and show how to repair what does not work"),
    "cache": (f"{__name__}.cache", "show the cache of compiled kernels; --clear deletes them"),
    "generate": (f"{__name__}.generate", "write the package of a spec; its tests; its pages"),
    "show": (f"{__name__}.show", "list ops, describe one, or print the kernels that a call runs"),
    "check": (f"{__name__}.check", "check a spec: values, derivatives, every device"),
    "prebuild": (f"{__name__}.prebuild", "compile kernels ahead of time into the cache"),
    "compile": (f"{__name__}.compile", "compile Triton kernels for GPUs that need not be present"),
    "launch": (f"{__name__}.launch", "start a program in several processes, on one machine or many"),
    "tune": (f"{__name__}.tune", "find the fastest schedules for this machine, and save them"),
    "demo": (f"{_DEMO}.command", "learn handwritten digits, and say what it cost"),
}


class _CommandParser(argparse.ArgumentParser):
    """The parser of a command. It imports the command's module, which adds the options, before it parses anything.

    Args:
        module: The module; "" if the options are added otherwise.
        **settings: Arguments of `ArgumentParser`.
    """

    def __init__(self, *, module: str = "", **settings: Any):
        super().__init__(**settings)
        self._module = module

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        if self._module:
            module, self._module = self._module, ""
            try:
                import_module(module).add_options(self)
            except ImportError as error:  # the installation is broken; `doctor` explains it
                self.error(f"not available: {error}")
        return super().parse_known_args(args, namespace)


def parser(with_other_packages: bool = True) -> argparse.ArgumentParser:
    """Return the argument parser of the command line.

    Args:
        with_other_packages: Add the commands of other packages, which are imported for that.
    """
    root = argparse.ArgumentParser(
        prog="weftgrad", description="Ops written once as specs, on any vendor's device.", allow_abbrev=False
    )
    root.add_argument("--version", action="version", version=f"weftgrad {__version__}")
    root.add_argument("--traceback", action="store_true", help="show where an error was raised")
    commands = root.add_subparsers(dest="command", metavar="COMMAND", title="commands", parser_class=_CommandParser)
    for name, (module, description) in _COMMANDS.items():
        if name != "demo" or find_spec(_DEMO) is not None:
            commands.add_parser(name, help=description, module=module)
    if with_other_packages:
        from importlib import metadata  # lazy: start-up

        for entry_point in sorted(metadata.entry_points(group="weftgrad.commands"), key=lambda p: p.name):
            try:
                entry_point.load()(commands)
            except (ImportError, AttributeError) as error:
                commands.add_parser(entry_point.name, help=f"not available: {error}".replace("%", "%%"))
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line (default: `sys.argv[1:]`) and return its exit status."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    shows_traceback = "--traceback" in arguments  # users may write it before or after the command
    arguments = [a for a in arguments if a != "--traceback"]
    try:
        root = parser(with_other_packages=not arguments or arguments[0] not in (*_COMMANDS, "--version"))
        options = root.parse_args(arguments)
        if not hasattr(options, "run"):
            root.print_help()
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
