"""Describe the machine that a report was measured on: devices, drivers, versions of libraries."""

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
    """Return a report's `machine` dictionary: what a reader needs to compare it with the report of another machine.

    Args:
        sites: All contenders of the report, ours and other libraries.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "devices": [_describe_device(site) for site in sites if isinstance(site, OurSite)],
        "torch": next((str(site.device) for site in sites if site.name == "torch"), None),
        "places": {site.name: site.device_name for site in sites if not site.ours},
        "cores": os.cpu_count(), "threads": cores(), "cache": last_level_cache(), "system": platform.platform(),
        "processor": _processor(),
        "python": platform.python_version(), "versions": {name: _version(name) for name in _PACKAGES},
        "driver": _nvidia_driver(), "commit": _commit(), "specs": _specs_digest(),
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


def _describe_device(site: OurSite) -> DeviceFacts:
    """Describe one of our devices.

    The key `kind` is `GPU` or `CPU`. A CPU behind an OpenCL driver is a `CPU`, too. `sm` is the compute capability of a
    CUDA device, `platform` the name of an OpenCL platform.
    """
    driver = site.device.driver
    caps = driver.capabilities
    facts: DeviceFacts = {
        "device": site.name, "name": _hardware_name(driver.name), "schedules": caps.style, "cores": caps.cores,
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


def _hardware_name(name: str) -> str:
    """Return a CPU's name as in /proc/cpuinfo, without the prefix of a driver such as PoCL; other names unchanged."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return name
    models = (line.partition(":")[2].strip() for line in text.splitlines() if line.startswith("model name"))
    return next((model for model in models if model and name.endswith(model)), name)


def _processor() -> str:
    """Return the processor's numbers, such as `family 25, model 17, stepping 1`; empty if they are unknown.

    Different processors may have the same name, for example in virtual machines.
    """
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8").partition("\n\n")[0]
    except OSError:
        return ""
    facts = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in text.splitlines())}
    names = {"cpu family": "family", "model": "model", "stepping": "stepping"}
    return ", ".join(f"{name} {facts[key]}" for key, name in names.items() if key in facts)


def _commit() -> str | None:
    """Return the checkout's commit, with `-dirty` after local changes; None for an installed package."""
    folder = Path(__file__).resolve().parent.parent
    if not (folder / ".git").exists():
        return None
    try:
        command = ["git", "-C", str(folder), "describe", "--always", "--dirty", "--abbrev=12"]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _specs_digest() -> str:
    """Return 16 hexadecimal digits that differ if the specs that kernels are generated from do."""
    digest = hashlib.sha256()
    for path in own_specs():
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _nvidia_driver() -> str | None:
    """Return the version line of NVIDIA's kernel module, or None if it is not loaded."""
    try:
        with open("/proc/driver/nvidia/version", encoding="utf-8") as file:
            return file.readline().strip().removeprefix("NVRM version: ")
    except OSError:
        return None
