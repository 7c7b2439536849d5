"""What was measured, and with what: devices, drivers, versions."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Sequence
from importlib import metadata
from typing import Any

import weftgrad as wg

from .sites import OurSite, Site

__all__ = ["describe"]


def describe(sites: Sequence[Site]) -> dict[str, Any]:
    """A report's head."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "devices": [_device(site) for site in sites if isinstance(site, OurSite)],
        "torch": next((str(site.device) for site in sites if site.name == "torch"), None),
        "cores": os.cpu_count(), "system": platform.platform(), "python": platform.python_version(),
        "versions": {name: _version(name) for name in
                     ("weftgrad", "numpy", "torch", "triton", "cuda-bindings", "pyopencl", "pocl-binary-distribution")},
        "driver": _driver(),
    }  # fmt: skip


def _version(name: str) -> str | None:
    """A distribution's version; ours by its own word, as it may be linked instead of installed."""
    if name == "weftgrad":
        return wg.__version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _device(site: OurSite) -> dict[str, Any]:
    driver = site.device.driver
    able = driver.capabilities
    found: dict[str, Any] = {
        "device": site.name, "name": driver.name, "schedules": able.style, "cores": able.cores, "memory": able.memory
    }  # fmt: skip
    if site.device.type == "cuda":
        from ..runtime.backends.cuda_api import ask

        version = int(ask("cuDriverGetVersion"))
        found["sm"] = able.sm
        found["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
    elif site.device.type == "opencl":
        handle = driver.handle  # type: ignore[attr-defined]
        found["driver"] = f"{handle.platform.version}, {handle.driver_version}"
    return found


def _driver() -> str | None:
    """NVIDIA's kernel module, as it tells."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return file.readline().strip().removeprefix("NVRM version: ")
    except OSError:
        return None
