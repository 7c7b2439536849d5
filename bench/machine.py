"""What was measured, and with what: devices, drivers, versions."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import weftgrad as wg

from ..codegen.generate import own_specs
from ..runtime import native
from ..runtime.backends.processor import cores, last_level_cache
from .sites import OurSite, Site, is_gpu

__all__ = ["describe"]

_PACKAGES = ("weftgrad", "numpy", "torch", "cupy", "jax", "tinygrad", "triton", "cuda-bindings", "pyopencl",
             "pocl-binary-distribution", "intel-opencl-rt", "ziglang")  # fmt: skip


def describe(sites: Sequence[Site]) -> dict[str, Any]:
    """A report's head."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "devices": [_device(site) for site in sites if isinstance(site, OurSite)],
        "torch": next((str(site.device) for site in sites if site.name == "torch"), None),
        "places": {site.name: site.place for site in sites if not site.ours},
        "cores": os.cpu_count(), "threads": cores(), "cache": last_level_cache(), "system": platform.platform(),
        "python": platform.python_version(), "versions": {name: _version(name) for name in _PACKAGES},
        "driver": _driver(), "commit": _commit(), "specs": _specs(),
        "calls": "in C" if native.present else "in Python",
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
    """kind: what schedules and labels go by; a CPU is one whoever's driver runs it. platform: of OpenCL."""
    driver: Any = site.device.driver
    able = driver.capabilities
    found: dict[str, Any] = {
        "device": site.name, "name": _hardware(driver.name), "schedules": able.style, "cores": able.cores,
        "memory": able.memory, "kind": "GPU" if site.gpu or is_gpu(site.device) else "CPU",
    }  # fmt: skip
    if site.device.type == "cuda":
        from ..runtime.backends.cuda_api import ask

        version = int(ask("cuDriverGetVersion"))
        found["sm"] = able.sm
        found["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
    elif site.device.type == "cpu":
        found["driver"] = driver.identity
    elif hasattr(driver, "compiler"):
        handle = driver.compiler._handle
        found["platform"] = handle.platform.name
        found["driver"] = f"{' '.join(handle.platform.version.split())}, {handle.driver_version}"
    return found


def _hardware(name: str) -> str:
    """A driver's name for a device, without what PoCL puts ahead of the processor's: one processor has one name."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return name
    models = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next((model for model in models if model and name.endswith(model)), name)


def _commit() -> str | None:
    """The commit of a checkout; None for an installed package."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _specs() -> str:
    """A digest of the specs that kernels are generated from."""
    digest = hashlib.sha256()
    for path in own_specs():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _driver() -> str | None:
    """NVIDIA's kernel module, as it tells."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return file.readline().strip().removeprefix("NVRM version: ")
    except OSError:
        return None
