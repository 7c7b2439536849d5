"""The public names are pinned in files, so that no change goes unnoticed.

`python tests/test_api.py` rewrites the files.
"""

import importlib
from pathlib import Path

import pytest

_BELOW = (
    "nn.functional", "nn", "optim", "autograd", "special", "amp", "distributed", "distributions", "func",
    "serialization", "utils.benchmark", "utils.data", "profiler",
)  # fmt: skip
MODULES = ("weftgrad", *(f"weftgrad.{name}" for name in _BELOW))
PINNED = Path(__file__).parent / "names"


def names(module: str) -> list[str]:
    """Return the public names of a module."""
    imported_module = importlib.import_module(module)
    declared = getattr(imported_module, "__all__", None)
    return sorted(declared if declared is not None else [n for n in vars(imported_module) if not n.startswith("_")])


@pytest.mark.parametrize("module", MODULES)
def test_names_are_pinned(module: str) -> None:
    pinned = (PINNED / f"{module}.txt").read_text().split()
    assert names(module) == pinned, f"{module}: run python tests/test_api.py if this is meant"


@pytest.mark.parametrize("module", MODULES)
def test_names_exist(module: str) -> None:
    imported_module = importlib.import_module(module)
    assert not [n for n in names(module) if not hasattr(imported_module, n)]


if __name__ == "__main__":
    PINNED.mkdir(parents=True, exist_ok=True)
    for module_name in MODULES:
        (PINNED / f"{module_name}.txt").write_text("\n".join(names(module_name)) + "\n")
