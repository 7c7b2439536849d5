"""The names users see: pinned, so that none comes or goes unnoticed.

`python tests/test_api.py` writes the list anew.
"""

import importlib
from pathlib import Path

import pytest

_BELOW = ("nn.functional", "nn", "optim", "autograd", "special", "amp", "serialization", "utils.data", "profiler")
MODULES = ("weftgrad", *(f"weftgrad.{name}" for name in _BELOW))
PINNED = Path(__file__).parent / "names"


def names(module: str) -> list[str]:
    """The public names of a module."""
    found = importlib.import_module(module)
    listed = getattr(found, "__all__", None)
    return sorted(listed if listed is not None else [n for n in vars(found) if not n.startswith("_")])


@pytest.mark.parametrize("module", MODULES)
def test_names_are_pinned(module: str) -> None:
    pinned = (PINNED / f"{module}.txt").read_text().split()
    assert names(module) == pinned, f"{module}: run python tests/test_api.py if this is meant"


@pytest.mark.parametrize("module", MODULES)
def test_names_exist(module: str) -> None:
    found = importlib.import_module(module)
    assert not [n for n in names(module) if not hasattr(found, n)]


if __name__ == "__main__":
    PINNED.mkdir(parents=True, exist_ok=True)
    for each in MODULES:
        (PINNED / f"{each}.txt").write_text("\n".join(names(each)) + "\n")
