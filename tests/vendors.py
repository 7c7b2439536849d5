"""The CPU device under the capabilities of another vendor's, so that the schedules of that one run here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from weftgrad.runtime.backends.cpu.launching import ClangRoad
from weftgrad.runtime.backends.cpu.objects import open_store
from weftgrad.runtime.context import _local
from weftgrad.runtime.device import device

__all__ = ["posing"]

_roads: dict[tuple[tuple[str, Any], ...], Any] = {}


def posing(changes: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """`cpu` with these capabilities changed, until the generator is resumed. None changed: `cpu` as it is.

    Schedules for GPUs have work-groups, so they run by an OpenCL CPU driver; kernels of a device that is not here are
    not optimised there, because that would be most of what such a test takes.
    """
    driver: Any = device("cpu").driver
    driver.require()
    if changes:
        key = tuple(changes.items())
        if key not in _roads:
            _roads[key] = _road(driver, changes)
        capabilities, road = _roads[key]
        monkeypatch.setattr(driver, "_capabilities", capabilities)
        monkeypatch.setattr(driver, "road", road)
    _local.state.plans.clear()
    yield
    driver.synchronize()
    _local.state.plans.clear()


def _road(driver: Any, changes: Mapping[str, Any]) -> tuple[Any, Any]:
    if changes.get("style", "cpu") == "cpu":
        capabilities = replace(driver.capabilities, **changes)
        notes: list[str] = []
        store = open_store(capabilities, notes)
        if store is None:
            pytest.skip(f"no clang: {'; '.join(notes)}")
        return capabilities, ClangRoad(store, driver.counter)
    from weftgrad.runtime.backends.cpu.fallback import OpenCLRoad
    from weftgrad.runtime.errors import DriverNotFound

    try:
        road = OpenCLRoad(driver.counter, None)
        capabilities = replace(road.capabilities, optimize=False, **changes)
        return capabilities, OpenCLRoad(driver.counter, capabilities)
    except DriverNotFound as error:
        pytest.skip(str(error))
