"""A pytest plugin that leaves out tests by their exact names, for checks that continue after an interruption.

`--deselect` of pytest leaves out every test whose name begins with the text: with `test_a` also `test_ab`. The plugin
reads a file instead, so the command line also stays short when thousands of tests have passed. `op_checks` uses it:

    pytest -p weftgrad.bench.skip_passed --passed-tests passed.json tests/test_gpu.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pytest  # lazy: optional dependency

__all__ = ["pytest_addoption", "pytest_collection_modifyitems"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--passed-tests`."""
    parser.addoption("--passed-tests", metavar="FILE", help="a JSON list of names of tests to leave out")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests whose names, without the file, are in the list."""
    file = config.getoption("--passed-tests")
    passed = set(json.loads(Path(file).read_text(encoding="utf-8"))) if file else set()
    deselected = [item for item in items if item.nodeid.partition("::")[2] in passed]
    items[:] = [item for item in items if item.nodeid.partition("::")[2] not in passed]
    if deselected:
        config.hook.pytest_deselected(items=deselected)
