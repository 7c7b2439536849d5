"""Describe the machine for a report: devices, drivers, versions."""

from __future__ import annotations

import datetime
import hashlib
import os
import platform
import subprocess
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import weftgrad as wg

from ..codegen.generate import own_specs
from ..runtime import native
from ..runtime.backends.processor import cores, last_level_cache
from .sites import OurSite, Site, is_gpu

if TYPE_CHECKING:
    from .report_types import DeviceFacts, Machine

__all__ = ["describe"]

_PACKAGES = ("weftgrad", "numpy", "torch", "cupy", "jax", "tinygrad", "triton", "cuda-bindings", "pyopencl",
             "pocl-binary-distribution", "intel-opencl-rt", "ziglang")  # fmt: skip


def describe(sites: Sequence[Site]) -> Machine:
    """Return a report's `machine` dictionary: what a reader needs to compare it with the report of another machine."""
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "devices": [_device(site) for site in sites if isinstance(site, OurSite)],
        "torch": next((str(site.device) for site in sites if site.name == "torch"), None),
        "places": {site.name: site.device_name for site in sites if not site.ours},
        "cores": os.cpu_count(), "threads": cores(), "cache": last_level_cache(), "system": platform.platform(),
        "processor": _processor(),
        "python": platform.python_version(), "versions": {name: _version(name) for name in _PACKAGES},
        "driver": _driver(), "commit": _commit(), "specs": _specs(),
        "calls": "in C" if native.present else "in Python",
    }  # fmt: skip


def _version(name: str) -> str | None:
    """Return the version of a distribution, or None if it is not installed."""
    if name == "weftgrad":  # a checkout has no metadata
        return wg.__version__
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _device(site: OurSite) -> DeviceFacts:
    """Describe one of our devices.

    The key `kind` is `GPU` or `CPU`, also for a CPU that OpenCL drives. `sm` is the compute capability on CUDA,
    `platform` the name of an OpenCL platform.
    """
    driver = site.device.driver
    caps = driver.capabilities
    facts: DeviceFacts = {
        "device": site.name, "name": _hardware(driver.name), "schedules": caps.style, "cores": caps.cores,
        "memory": caps.memory, "kind": "GPU" if site.gpu or is_gpu(site.device) else "CPU",
    }  # fmt: skip
    if site.device.type == "cuda":
        from ..runtime.backends.cuda_api import call_driver  # lazy: CUDA devices only

        version = int(call_driver("cuDriverGetVersion"))
        facts["sm"] = caps.sm
        facts["driver"] = f"CUDA {version // 1000}.{version % 1000 // 10}"
    elif site.device.type == "cpu" and hasattr(driver, "identity"):
        facts["driver"] = driver.identity
    elif hasattr(driver, "compiler"):
        handle = driver.compiler._handle
        facts["platform"] = handle.platform.name
        facts["driver"] = f"{' '.join(handle.platform.version.split())}, {handle.driver_version}"
    return facts


def _hardware(name: str) -> str:
    """Return the device's name without PoCL's prefix, so that a CPU has the same name under every driver."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return name
    models = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next((model for model in models if model and name.endswith(model)), name)


def _processor() -> str:
    """Return what tells processors of one name apart: `family 25, model 17, stepping 1`; empty if it is unknown."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return ""
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    names = {"cpu family": "family", "model": "model", "stepping": "stepping"}
    return ", ".join(f"{name} {facts[key]}" for key, name in names.items() if key in facts)


def _commit() -> str | None:
    """Return the commit of a checkout, or None for an installed package."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _specs() -> str:
    """Return a digest of the specs that kernels are generated from."""
    digest = hashlib.sha256()
    for path in own_specs():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _driver() -> str | None:
    """Return the version line of NVIDIA's kernel module, or None."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return file.readline().strip().removeprefix("NVRM version: ")
    except OSError:
        return None
