"""Give the CPU device the capabilities of another vendor's device, so that tests run that device's schedules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from weftgrad.runtime.backends.cpu.launching import ClangExecutor
from weftgrad.runtime.backends.cpu.objects import open_store
from weftgrad.runtime.context import forget_plans
from weftgrad.runtime.device import device

__all__ = ["change_capabilities"]

_executors: dict[tuple[tuple[str, Any], ...], Any] = {}


def change_capabilities(changes: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Change capabilities of `cpu` until the generator is resumed. Without changes, leave `cpu` as it is.

    Schedules for GPUs have work-groups, so they run by an OpenCL CPU driver. Their kernels are not optimised, because
    that would take most of the test's time.
    """
    driver: Any = device("cpu").driver
    driver.require()
    if changes:
        key = tuple(changes.items())
        if key not in _executors:
            _executors[key] = _executor(driver, changes)
        capabilities, executor = _executors[key]
        monkeypatch.setattr(driver, "_capabilities", capabilities)
        monkeypatch.setattr(driver, "executor", executor)
    forget_plans()
    yield
    driver.synchronize()
    forget_plans()


def _executor(driver: Any, changes: Mapping[str, Any]) -> tuple[Any, Any]:
    if changes.get("style", "cpu") == "cpu":
        capabilities = replace(driver.capabilities, **changes)
        notes: list[str] = []
        store = open_store(capabilities, notes)
        if store is None:
            pytest.skip(f"no clang: {'; '.join(notes)}")
        return capabilities, ClangExecutor(store, driver.counter)
    from weftgrad.runtime.backends.cpu.fallback import OpenCLExecutor
    from weftgrad.runtime.errors import DriverNotFound

    try:
        executor = OpenCLExecutor(driver.counter, None)
        capabilities = replace(executor.capabilities, optimize=False, **changes)
        return capabilities, OpenCLExecutor(driver.counter, capabilities)
    except DriverNotFound as error:
        pytest.skip(str(error))
