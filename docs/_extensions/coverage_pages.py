"""Write docs/coverage.md: which of PyTorch's names weftgrad has. The page is not tracked.

The names come from _data/torch_names.json, which `docs/refresh_torch_names.py` writes in an environment with torch.
"""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import TYPE_CHECKING

import weftgrad

if TYPE_CHECKING:
    from sphinx.application import Sphinx


def page(torch_names: dict[str, str | list[str]]) -> str:
    """Return the page in Markdown.

    Args:
        torch_names: PyTorch's public names by module, and its version under the key `version`.
    """
    version = torch_names["version"]
    lines = [
        "# Names of PyTorch", "",
        f"Public names of PyTorch {version}, and those that weftgrad has. [Coming from PyTorch](from-pytorch.md) says",
        "why others are missing.", "", "| module | here | of | |", "| --- | ---: | ---: | --- |",
    ]  # fmt: skip
    details = []
    for module, names in torch_names.items():
        if isinstance(names, str):  # the version
            continue
        here = module.replace("torch", "weftgrad", 1)
        owner = weftgrad.Tensor if here == "weftgrad.Tensor" else importlib.import_module(here)
        missing = [name for name in names if not hasattr(owner, name)]
        count = len(names) - len(missing)
        lines.append(f"| `{module}` | {count} | {len(names)} | {count / len(names):.0%} |")
        if missing:
            details += [f"## Missing in `{here}`", "", ", ".join(f"`{name}`" for name in missing), ""]
    return "\n".join([*lines, "", *details])


def write_page(app: Sphinx) -> None:
    """Write the page."""
    folder = Path(app.srcdir)
    names = json.loads((folder / "_data" / "torch_names.json").read_text(encoding="utf-8"))
    (folder / "coverage.md").write_text(page(names), encoding="utf-8")


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the extension."""
    app.connect("builder-inited", write_page)
    return {"parallel_read_safe": True}
