"""Write the test module of a user's ops: `weftgrad generate my_ops.yaml --tests tests/test_my_ops.py`.

The text names the ops and calls `weftgrad.testing.op_tests`, which has the checks.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from .generate import inputs_digest, shown_names
from .model import Op
from .render import environment

__all__ = ["REFERENCES", "import_name", "test_module_text"]

REFERENCES = "op_references.py"
_WIDTH = 88  # of lines, as black and ruff format them by default
_UNTESTED_KINDS = ("random",)  # no two calls give the same numbers


def test_module_text(ops: Sequence[Op], specs: Sequence[Path], path: Path, package: Path | None) -> str:
    """Return the text of a test module.

    Args:
        ops: The ops of `specs`.
        specs: The spec files.
        path: Where the module will be, for the paths of the specs.
        package: The folder of the package that is generated from the specs. None: the module loads the specs.

    Returns:
        Python source. The same arguments give the same text.
    """
    name = import_name(package) if package else ""
    parent, _, last = name.rpartition(".")
    statement = f"from {parent} import {last}" if parent else f"import {name}"
    return str(
        environment().get_template("python/op_tests.py.j2").render(
            sources=shown_names(spec.name for spec in specs),
            digest=inputs_digest(specs),
            package=statement if package else "",
            namespace=last,
            specs=[_quoted_path(spec, path.parent) for spec in specs],
            ops=_list_text(op.name for op in ops if op.kind not in _UNTESTED_KINDS),
            references=REFERENCES,
        )
    )  # fmt: skip


def import_name(package: Path) -> str:
    """Return the dotted name of the package that will be in a folder, by the `__init__.py` of the folders above."""
    folder = package.resolve()
    names = [folder.name]
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
        names.append(folder.name)
    return ".".join(reversed(names))


def _quoted_path(spec: Path, folder: Path) -> str:
    """Return a spec's path from a folder, for a string in double quotes."""
    relative = Path(os.path.relpath(spec.resolve(), folder.resolve())).as_posix()
    return relative.replace("\\", "\\\\").replace('"', '\\"')


def _list_text(names: Iterable[str]) -> str:
    """Return the source of a list of names: on one line if they fit, else one name a line."""
    quoted = [f'"{name}"' for name in names]
    line = f"[{', '.join(quoted)}]"
    return line if len(f"OPS = {line}") <= _WIDTH else "\n".join(["[", *(f"    {name}," for name in quoted), "]"])
