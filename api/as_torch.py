"""Run a PyTorch program on weftgrad, unchanged: `python -m weftgrad.as_torch program.py [arguments]`.

`python -m weftgrad.as_torch -m package.module [arguments]` runs a module. Like Python itself, it sets `sys.argv`, runs
the program as `__main__`, and puts the program's folder (for -m the current one) first on `sys.path`, unless Python was
started with the option -P.
"""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

__all__ = ["main"]

_USAGE = "usage: python -m weftgrad.as_torch (PROGRAM | -m MODULE) [arguments of the program]"


def main(arguments: list[str]) -> None:
    """Run a program with weftgrad in the place of torch.

    Args:
        arguments: Path of the program, or `-m` and the name of a module; then the program's own arguments.

    Raises:
        SystemExit: There is no program of this name, or the program raises it.

    Example:
        >>> from weftgrad.as_torch import main
        >>> main(['train.py', '--epochs', '2'])  # doctest: +SKIP
    """
    is_module = arguments[:1] == ["-m"]
    if not arguments[is_module:] or arguments[0] in ("-h", "--help"):
        print(_USAGE, file=sys.stderr)
        raise SystemExit(0 if arguments[:1] in (["-h"], ["--help"]) else 2)
    from . import torch_compat  # noqa: F401  # lazy: its import changes what `import torch` means

    program, *own_arguments = arguments[is_module:]
    sys.argv = [program, *own_arguments]
    if is_module:
        _set_program_folder(str(Path.cwd()))
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    if not Path(program).exists():
        raise SystemExit(f"as_torch: there is no file {program}")
    if Path(program).is_file():
        _set_program_folder(str(Path(program).resolve().parent))
    else:  # a folder with a __main__.py, which runpy puts on the path itself
        _set_program_folder(None)
    runpy.run_path(program, run_name="__main__")


def _set_program_folder(folder: str | None) -> None:
    """Replace the current folder, which `python -m` has put first on the path, by another or by none."""
    if not sys.flags.safe_path:
        sys.path[:1] = [] if folder is None else [folder]


if __name__ == "__main__":
    main(sys.argv[1:])
