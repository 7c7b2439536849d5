"""Measure each device in its own process, let the processes alternate (`alternation`), and merge their reports.

The OpenCL loader loads every installed driver into the same process, and two drivers may conflict there (two builds of
LLVM, two thread pools). Each driver is therefore listed and measured in a process that loads this driver and the one
bundled with pyopencl, and no other. `opencl:0@nvidia-opencl` is the first device of the driver
libnvidia-opencl.so; `cpu`, `opencl:0` and `cuda:0` are devices that this process sees itself.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NotRequired, Protocol, TypedDict

from ..runtime.backends import available
from ..runtime.errors import ArgumentError, DeviceError
from .alternation import rotate
from .sites import is_gpu
from .time_budget import parse_seconds

if TYPE_CHECKING:
    from .report_types import DeviceFacts, Report

__all__ = [
    "BenchDevice",
    "device_report",
    "identity",
    "list_devices",
    "measure",
    "merge_reports",
    "needs_processes",
    "print_devices",
    "select_devices",
]

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
    code = "from weftgrad.bench.device_processes import print_devices; print_devices()"
    with _environment(library) as environment:
        command = [sys.executable, "-c", code]
        process = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        return list(json.loads(process.stdout))
    except ValueError:
        last_line = process.stderr.strip().rpartition("\n")[2]
        print(f"{library or 'devices'}: not listed, exit status {process.returncode} {last_line}", file=sys.stderr)
        return []


@contextmanager
def _environment(library: str) -> Iterator[dict[str, str]]:
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


# Measuring


def measure(
    options: argparse.Namespace,
    devices: Sequence[BenchDevice],
    old_report: Report | None,
    save: Callable[[Report], None],
) -> tuple[Report, bool]:
    """Measure all CPU devices in alternation, then all GPUs.

    If a process crashes, its device loses the remaining rows, and the report gets a row with the problem.

    Args:
        options: the command line's options.
        devices: the devices to measure.
        old_report: the report of an interrupted run to resume, or None.
        save: called with the merged report after every row.

    Returns:
        The merged report, and whether the run was interrupted.

    Raises:
        ArgumentError: no device was measured.
    """
    end = None if not options.time else time.monotonic() + parse_seconds(options.time)
    reports = {
        device.name: report for device in devices if (report := device_report(old_report, device.name)) is not None
    }
    interrupted = False
    groups = [group for gpu in (False, True) if (group := [device for device in devices if device.gpu == gpu])]
    for i, group in enumerate(groups):
        share = None if end is None else (end - time.monotonic()) * len(group) / sum(map(len, groups[i:]))
        if share is not None and share <= 0:
            print(f"time is up: not measured: {', '.join(device.name for device in group)}", file=sys.stderr)
            continue
        rows = _Reports(devices, reports, save)
        statuses, interrupted = _run_in_turns(options, group, share, rows)
        if interrupted:
            print("\ninterrupted: what was measured so far is kept", file=sys.stderr)
            break
        for device, status in zip(group, statuses, strict=True):
            if status < 0 or (status and device.name not in reports):
                _add_process_row(reports, device, status)
    if not reports:
        raise ArgumentError("bench: no device was measured; what went wrong stands above")
    return merge_reports([reports[device.name] for device in devices if device.name in reports]), interrupted


class _Reports:
    """Collect the reports that processes write, one file each. reports: by device name."""

    def __init__(self, devices: Sequence[BenchDevice], reports: dict[str, Report], save: Callable[[Report], None]):
        self.reports = reports
        self._devices, self._save = devices, save
        self._files: dict[str, tuple[Path, int]] = {}

    def begin(self, device: BenchDevice, file: Path) -> None:
        """Write the rows that a device already has into the file from which its process resumes."""
        if device.name in self.reports:
            file.write_text(json.dumps(self.reports[device.name]), encoding="utf-8")
        self._files[device.name] = file, _modified_ns(file)

    def collect(self) -> None:
        """Read the files that changed since the last call, and save the merged report."""
        changed = {name: file for name, (file, mtime) in self._files.items() if _modified_ns(file) != mtime}
        for name, file in changed.items():
            self._files[name] = file, _modified_ns(file)
            self.reports[name] = json.loads(file.read_text(encoding="utf-8"))
        if changed:
            finished = [device.name for device in self._devices if device.name in self.reports]
            self._save(merge_reports([self.reports[name] for name in finished]))


def _modified_ns(file: Path) -> int:
    """Return the file's modification time in nanoseconds, 0 if it does not exist."""
    return file.stat().st_mtime_ns if file.exists() else 0


def _run_in_turns(
    options: argparse.Namespace, devices: Sequence[BenchDevice], share: float | None, rows: _Reports
) -> tuple[list[int], bool]:
    """Run one process per device until all end. Return their exit statuses and whether the run was interrupted."""
    starts = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for i, device in enumerate(devices):
            file = Path(folder, f"{i}.json")
            rows.begin(device, file)
            environment = stack.enter_context(_environment(device.library))
            starts.append(partial(_start, options, device, file, share, environment))
        ended = rotate(starts, rows.collect)
        rows.collect()
        return ended


def _start(
    options: argparse.Namespace, device: BenchDevice, file: Path, share: float | None, environment: Mapping[str, str],
    ends: tuple[int, int],
) -> subprocess.Popen[bytes]:  # fmt: skip
    """Start the process of one device. It writes its rows to `file` and takes turns through two file descriptors."""
    command = [sys.executable, "-m", "weftgrad.bench", *_forwarded_options(options), "--device", device.device,
               "--label", device.name, "--part", str(file), "--turns", "{},{}".format(*ends)]  # fmt: skip
    command += ["--resume", str(file)] if file.exists() else []
    command += ["--time", f"{max(share, 1e-3):.3f}"] if share is not None else []
    command += [str(options.spec)] if options.spec else []
    # In its own process group: a terminal's Ctrl-C reaches this process only, which passes the signal on.
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0, pass_fds=ends)


def _forwarded_options(options: argparse.Namespace) -> list[str]:
    """Return the command-line words for the options that select what is measured."""
    words = []
    for name in ("suite", "only", "ops", "dtypes", "shapes", "peers", "rounds", "cases", "scale"):
        value = getattr(options, name)
        if value not in (None, ""):
            words += [f"--{name}", str(value)]
    return words


def _add_process_row(reports: dict[str, Report], device: BenchDevice, status: int) -> None:
    """Add a row that reports a crashed process."""
    ending = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    print(f"{device.name}: its process ended {ending}", file=sys.stderr)
    if device.name in reports:
        reports[device.name]["kernels"].append({
            "group": "process", "name": "measured to the end", "bytes": 0, "flops": 0, "target": None, "notes": [],
            "errors": {}, "wrong": True, "problem": f"the device's process ended {ending}", "clock": "wall",
        })  # fmt: skip


# Reports


def merge_reports(parts: Sequence[Report]) -> Report:
    """Merge reports of one device each. Every row gets its `device`, every device the `places` of its peers."""
    first = parts[0]
    versions = dict(first["machine"]["versions"])
    for part in parts[1:]:
        versions |= {name: version for name, version in part["machine"]["versions"].items() if version}
    devices: list[DeviceFacts] = [
        {**device, "places": part["machine"].get("places", {})}
        for part in parts for device in part["machine"]["devices"]
    ]  # fmt: skip
    merged: Report = {
        **first,
        "machine": {**first["machine"], "devices": devices, "versions": versions},
        "host": [{"device": _first_device(part), **row} for part in parts for row in part["host"]],
        "kernels": [{"device": _first_device(part), **row} for part in parts for row in part["kernels"]],
    }
    if any("curves" in part for part in parts):
        merged["curves"] = [row for part in parts for row in part.get("curves", ())]
    if any("timelines" in part for part in parts):
        merged["timelines"] = [row for part in parts for row in part.get("timelines", ())]
    return merged


def _first_device(report: Report) -> str:
    return str(report["machine"]["devices"][0]["device"])


def device_report(report: Report | None, name: str) -> Report | None:
    """Return the report of one device as its process wrote it, or None if the merged report has none."""
    if report is None:
        return None
    devices = [each for each in report["machine"]["devices"] if each["device"] == name]
    if not devices:
        return None
    (device,) = devices
    places = device.get("places", report["machine"].get("places", {}))
    device = {**device}
    device.pop("places", None)
    part: Report = {
        **report,
        "machine": {**report["machine"], "devices": [device], "places": places},
        "host": [row for row in report["host"] if row.get("device", name) == name],
        "kernels": [
            row for row in report["kernels"] if row.get("device", name) == name and row["group"] != "process"
        ],
    }  # fmt: skip
    part.pop("curves", None)
    part.pop("timelines", None)
    return part
