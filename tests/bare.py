"""Run tests on a machine without an installed weftgrad or without SciPy. Does nothing if both are installed.

A copy of the tree is enough to run `pytest -m gpu` with Python, NumPy, triton, cuda-bindings, pytest, Jinja2 and
PyYAML. The package is assembled from links to the source folders, in a temporary folder on PYTHONPATH, and the
generated modules are generated there. The special functions that references need come from `bare_special`.
`python tests/bare.py FOLDER` creates such a package in FOLDER, for other commands:

    PYTHONPATH=FOLDER python -m weftgrad.cli bench --suite core
"""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from types import ModuleType

__all__ = ["install", "link"]

ROOT = Path(os.environ.get("WEFTGRAD_CHECKOUT") or Path(__file__).resolve().parent.parent)
_GENERATE = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from codegen.generate import generate
generate(Path(sys.argv[2]))
"""


def link(folder: Path) -> Path:
    """Assemble the package in `folder`, and return `folder`, which must be on PYTHONPATH."""
    package = folder / "weftgrad"
    package.mkdir(parents=True)
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    for entry in (ROOT / "api").iterdir():
        is_module = entry.is_file() or (entry / "__init__.py").is_file()  # torch_modules is neither: its folders are
        if is_module and entry.name != "_generated":
            (package / entry.name).symlink_to(entry)
    for name, source in configuration["tool"]["setuptools"]["package-dir"].items():
        if name != "weftgrad":
            (package / name.removeprefix("weftgrad.")).symlink_to(ROOT / source)
    subprocess.run([sys.executable, "-c", _GENERATE, str(ROOT), str(package / "_generated")], check=True)
    dist_info = folder / "weftgrad-0.dist-info"  # its entry points tell the command line its further commands
    dist_info.mkdir()
    (dist_info / "METADATA").write_text("Metadata-Version: 2.1\nName: weftgrad\nVersion: 0\n")
    commands = configuration["project"]["entry-points"]["weftgrad.commands"]
    lines = [f"{name} = {target}" for name, target in commands.items()]
    (dist_info / "entry_points.txt").write_text("\n".join(["[weftgrad.commands]", *lines, ""]))
    return folder


def install() -> None:
    """Make `weftgrad` and the needed part of SciPy importable, if they are not."""
    if importlib.util.find_spec("weftgrad") is None and (ROOT / "codegen").is_dir():
        folder = Path(tempfile.mkdtemp(prefix="weftgrad-package-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
        link(folder)
        sys.path.insert(0, str(folder))
        existing_path = os.environ.get("PYTHONPATH")
        os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(folder), existing_path)))
    if importlib.util.find_spec("scipy") is None:
        import bare_special

        package = ModuleType("scipy")
        package.special = bare_special  # type: ignore[attr-defined]
        sys.modules["scipy"], sys.modules["scipy.special"] = package, bare_special


if __name__ == "__main__":
    link(Path(sys.argv[1]))
