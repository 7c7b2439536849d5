"""List the devices that can be measured: `cpu`, CUDA devices, and the devices of every installed OpenCL driver.

The OpenCL loader loads every installed driver into the same process, and two drivers may conflict there (two builds of
LLVM, two thread pools). Each driver is therefore listed and measured in a process that loads this driver and the one
bundled with pyopencl, and no other. `opencl:0@nvidia-opencl` is the first device of the driver
libnvidia-opencl.so; `cpu`, `opencl:0` and `cuda:0` are devices that this process sees itself.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NotRequired, Protocol, TypedDict

from ..runtime.backends import available
from ..runtime.errors import ArgumentError, DeviceError
from .sites import is_gpu

__all__ = ["BenchDevice", "identity", "libraries", "list_devices", "loader_environment", "needs_processes",
           "print_devices", "select_devices"]  # fmt: skip

_VENDORS = Path("/etc/OpenCL/vendors")
# Install locations of NVIDIA's OpenCL library. Containers often mount the library without its .icd file.
_NVIDIA_LIBRARIES = tuple(
    Path(folder, "libnvidia-opencl.so.1")
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib",
                   "/usr/local/nvidia/lib64")
)  # fmt: skip


class OpenCLPlatform(Protocol):
    """A platform as pyopencl describes it."""

    name: str
    version: str


class OpenCLDevice(Protocol):
    """A device as pyopencl describes it."""

    platform: OpenCLPlatform
    name: str
    driver_version: str


class ListedDevice(TypedDict):
    """A device as a process lists it, or why it cannot be opened. identity: names and versions of an OpenCL driver."""

    device: str
    name: NotRequired[str]
    identity: NotRequired[list[str] | None]
    gpu: NotRequired[bool]
    problem: NotRequired[str]


@dataclass(frozen=True, slots=True)
class BenchDevice:
    """A device to measure.

    name: its name in reports. device: its name in the process that measures it. library: the OpenCL driver to load in
    that process, empty for the default ones. gpu: whether it is a GPU.
    """

    name: str
    device: str
    library: str = ""
    gpu: bool = False


def needs_processes(text: str | None) -> bool:
    """Return True if `--device` needs one process per device: `all`, `gpus`, or a device with `@driver`."""
    return text is not None and (text in ("all", "gpus") or "@" in text)


def identity(handle: OpenCLDevice) -> list[str]:
    """Return the names and versions that identify an OpenCL device together with its driver."""
    platform = handle.platform
    return [platform.name, platform.version, handle.name.strip(), handle.driver_version]


def print_devices() -> None:
    """Print the devices of this process as JSON. `list_devices` reads them from another process."""
    devices: list[ListedDevice] = []
    for device in available():
        if device.type == "interpreter":
            continue
        try:
            driver = device.driver
            name = f"{driver.capabilities and driver.name}"
        except DeviceError as error:
            devices.append({"device": str(device), "problem": str(error).partition("\n")[0]})
            continue
        handle = driver.compiler._handle if hasattr(driver, "compiler") else None
        devices.append({
            "device": str(device), "name": name, "identity": handle and identity(handle), "gpu": is_gpu(device),
        })  # fmt: skip
    print(json.dumps(devices))


def _query_devices(library: str = "") -> list[ListedDevice]:
    """List the devices that a new process sees with this OpenCL driver; without one, with the current environment."""
    code = "from weftgrad.bench.device_listing import print_devices; print_devices()"
    with loader_environment(library) as environment:
        command = [sys.executable, "-c", code]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        return list(json.loads(process.stdout))
    except ValueError:
        last_line = process.stderr.strip().rpartition("\n")[2]
        print(f"{library or 'devices'}: not listed, exit status {process.returncode} {last_line}", file=sys.stderr)
        return []


@contextmanager
def loader_environment(library: str) -> Iterator[dict[str, str]]:
    """Yield environment variables with which the OpenCL loader loads one driver (and pyopencl's bundled one)."""
    if not library:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "one.icd").write_text(f"{library}\n", encoding="utf-8")
        yield {**os.environ, "OCL_ICD_VENDORS": folder}


def libraries(extra: Sequence[Path]) -> list[str]:
    """List OpenCL driver libraries: installed system-wide, installed by pip here, and `extra`.

    Raises:
        ArgumentError: a path in `extra` does not exist.
    """
    files = sorted(_VENDORS.glob("*.icd")) if _VENDORS.is_dir() else []
    paths = [path.read_text(encoding="utf-8").strip() for path in files]
    intel = Path(sys.prefix, "lib", "libintelocl.so")
    paths += [str(intel)] if intel.exists() else []
    if not any("nvidia-opencl" in library_path for library_path in paths):
        paths += [str(path) for path in _NVIDIA_LIBRARIES if path.exists()][:1]
    for path in extra:
        if not path.exists():
            raise ArgumentError(f"bench: --icd {path} does not exist: name a driver's library or its .icd file")
        paths.append(path.read_text(encoding="utf-8").strip() if path.suffix == ".icd" else str(path.resolve()))
    return list(dict.fromkeys(filter(None, paths)))


def list_devices(
    extra: Sequence[Path] = (), query: Callable[..., list[ListedDevice]] = _query_devices
) -> list[BenchDevice]:
    """List every device of every backend: `cpu`, CUDA devices, then OpenCL devices by driver, without duplicates.

    Args:
        extra: further OpenCL drivers, each a library or an .icd file.
        query: lists the devices of one driver library as dictionaries; tests replace it.
    """
    devices: list[BenchDevice] = []
    identities: list[list[str] | None] = []
    for entry in query():
        if "problem" in entry:
            print(f"{entry['device']}: left out: {entry['problem']}", file=sys.stderr)
            continue
        if entry["identity"] is None or entry["identity"] not in identities:
            devices.append(BenchDevice(entry["device"], entry["device"], gpu=bool(entry.get("gpu"))))
            identities.append(entry["identity"])
    for library in libraries(extra):
        stem = Path(library).name.removeprefix("lib").partition(".so")[0]
        count = 0
        for entry in query(library):
            is_new = (
                "problem" not in entry and entry["device"].startswith("opencl") and entry["identity"] not in identities
            )
            if not is_new:
                continue
            identities.append(entry["identity"])
            devices.append(BenchDevice(f"opencl:{count}@{stem}", entry["device"], library, bool(entry.get("gpu"))))
            count += 1
    return devices


def select_devices(text: str, extra: Sequence[Path] = ()) -> list[BenchDevice]:
    """Return the devices that `text` names: `all`, `gpus`, or comma-separated names.

    Raises:
        ArgumentError: a device does not exist or is named twice, or there is no GPU for `gpus`.
    """
    devices = list_devices(extra)
    if text == "all":
        return devices
    if text == "gpus":
        gpus = [device for device in devices if device.gpu]
        if not gpus:
            names_present = ", ".join(device.name for device in devices) or "no devices at all"
            raise ArgumentError(
                f"bench: --device gpus finds no GPU; there are {names_present} (--device all takes these)"
            )
        return gpus
    by_name = {device.name: device for device in devices}
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if name not in by_name:
            raise ArgumentError(
                f"bench: --device has no {name}; there are {', '.join(by_name)} (more drivers: --icd LIBRARY)"
            )
    if len(set(names)) < len(names):
        raise ArgumentError(f"bench: --device names a device twice: {text}")
    return [by_name[name] for name in names]
