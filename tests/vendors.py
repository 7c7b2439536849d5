"""The CPU device under the capabilities of another vendor's, so that the schedules of that one run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from weftgrad.runtime.backends import opencl
from weftgrad.runtime.context import _local, forget_plans
from weftgrad.runtime.device import device
from weftgrad.runtime.errors import DriverNotFound

__all__ = ["optimise", "posing"]

_compilers: dict[tuple[tuple[str, Any], ...], Any] = {}
_of_cpu: dict[bool, tuple[Any, Any]] = {}  # as users have it, or not: the compilers for large and for small work


def optimise(wanted: bool) -> None:
    """Have `cpu` run as users have it, or build each kernel once, without the optimiser, whatever the size of its work.

    Where there is no driver, nothing happens.
    """
    driver: Any = device("cpu").driver
    try:
        driver.require()
    except DriverNotFound:
        return
    if not _of_cpu:
        plain = opencl.Compiler(driver.context, driver.compiler._handle, replace(driver.capabilities, optimize=False))
        _of_cpu.update({True: (driver.compiler, driver.quick_compiler), False: (plain, None)})
    if driver.compiler is not _of_cpu[wanted][0]:
        driver.compiler, driver.quick_compiler = _of_cpu[wanted]
        forget_plans()


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
