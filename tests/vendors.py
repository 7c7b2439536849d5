"""The CPU device under the capabilities of another vendor's, so that the schedules of that one run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from weftgrad.runtime.backends import opencl
from weftgrad.runtime.context import _local
from weftgrad.runtime.device import device

__all__ = ["posing"]

_compilers: dict[tuple[tuple[str, Any], ...], Any] = {}


def posing(changes: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`cpu` with these capabilities changed, until the generator is resumed. None changed: `cpu` as it is.

    Kernels of a device that is not here are not optimised: that would be most of what such a test takes.
    """
    driver: Any = device("cpu").driver
    driver.require()
    if changes:
        changed = replace(driver.capabilities, optimize=False, **changes)
        key = tuple(changes.items())
        if key not in _compilers:
            _compilers[key] = opencl.Compiler(driver.context, driver.compiler._handle, changed)
        monkeypatch.setattr(driver, "_capabilities", changed)
        monkeypatch.setattr(driver, "compiler", _compilers[key])
    monkeypatch.setattr(driver, "quick_compiler", None)  # one build of each kernel, not one for every size of work
    _local.state.plans.clear()
    yield
    _local.state.plans.clear()
