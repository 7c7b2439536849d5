"""Devices measured by turns (`turns`), each in a process of its own, and their rows put together in one report.

OpenCL's drivers are libraries that a loader brings into a process together, and two of them may not agree (two builds
of LLVM, two thread pools). So every driver is asked for its devices by a process that has no other but the one that
comes with pyopencl, and each device is measured in such a process. `opencl:0@nvidia-opencl` is the first device of the
driver whose library is libnvidia-opencl.so; `cpu`, `opencl:0` and `cuda:0` are devices of this process.
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
from typing import Any

from ..runtime.errors import ArgumentError, DeviceError
from .running import seconds_of
from .turns import rotate

__all__ = ["Place", "chosen", "identity", "measure", "merged", "part_of", "present", "tell", "wanted"]

Report = dict[str, Any]
_VENDORS = Path("/etc/OpenCL/vendors")
# Where NVIDIA's driver puts its OpenCL, which containers bring along without the file that says so.
_UNLISTED = tuple(
    Path(folder, "libnvidia-opencl.so.1")
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib",
                   "/usr/local/nvidia/lib64")
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Place:
    """A device. name: in reports. device: what it is called in its process. library: the driver to load there. gpu:
    whether it is one."""

    name: str
    device: str
    library: str = ""
    gpu: bool = False


def wanted(text: str | None) -> bool:
    """Whether `--device` asks for processes of their own: `all`, `gpus`, or a device of a driver that is named."""
    return text is not None and (text in ("all", "gpus") or "@" in text)


def identity(handle: Any) -> list[str]:
    """What tells an OpenCL device and its driver from others."""
    platform = handle.platform
    return [platform.name, platform.version, handle.name.strip(), handle.driver_version]


def tell() -> None:
    """Print the devices that this process sees, as JSON: for `present`, in another process."""
    from ..runtime.backends import available
    from .sites import is_gpu

    found: list[dict[str, Any]] = []
    for device in available():
        if device.type == "interpreter":
            continue
        try:
            driver: Any = device.driver
            name = f"{driver.capabilities and driver.name}"
        except DeviceError as error:
            found.append({"device": str(device), "problem": str(error).partition("\n")[0]})
            continue
        handle = driver.compiler._handle if hasattr(driver, "compiler") else None
        found.append({
            "device": str(device), "name": name, "identity": handle and identity(handle), "gpu": is_gpu(device),
        })  # fmt: skip
    print(json.dumps(found))


def _asked(library: str = "") -> list[dict[str, Any]]:
    """What a process of its own sees with this driver, or with those of this process's environment."""
    code = "from weftgrad.bench.apart import tell; tell()"
    with _environment(library) as environment:
        command = [sys.executable, "-c", code]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    try:
        return list(json.loads(done.stdout))
    except ValueError:
        last = done.stderr.strip().rpartition("\n")[2]
        print(f"{library or 'devices'}: not listed, exit status {done.returncode} {last}", file=sys.stderr)
        return []


@contextmanager
def _environment(library: str) -> Iterator[dict[str, str]]:
    """An environment in which OpenCL's loader has one driver (and the one that pyopencl's own loader adds)."""
    if not library:
        yield dict(os.environ)
        return
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "one.icd").write_text(f"{library}\n", encoding="utf-8")
        yield {**os.environ, "OCL_ICD_VENDORS": folder}


def libraries(extra: Sequence[Path]) -> list[str]:
    """Drivers that are installed for all of the machine, or by pip in this environment, and those named."""
    files = sorted(_VENDORS.glob("*.icd")) if _VENDORS.is_dir() else []
    found = [path.read_text(encoding="utf-8").strip() for path in files]
    intel = Path(sys.prefix, "lib", "libintelocl.so")
    found += [str(intel)] if intel.exists() else []
    if not any("nvidia-opencl" in each for each in found):
        found += [str(path) for path in _UNLISTED if path.exists()][:1]
    for path in extra:
        if not path.exists():
            raise ArgumentError(f"bench: --icd {path} does not exist: name a driver's library or its .icd file")
        found.append(path.read_text(encoding="utf-8").strip() if path.suffix == ".icd" else str(path.resolve()))
    return list(dict.fromkeys(filter(None, found)))


def present(extra: Sequence[Path] = (), asked: Callable[..., list[dict[str, Any]]] = _asked) -> list[Place]:
    """Every device of every backend: `cpu`, CUDA's, then OpenCL's by driver. No driver's device is listed twice."""
    found: list[Place] = []
    known: list[Any] = []
    for each in asked():
        if "problem" in each:
            print(f"{each['device']}: left out: {each['problem']}", file=sys.stderr)
            continue
        if each["identity"] is None or each["identity"] not in known:
            found.append(Place(each["device"], each["device"], gpu=bool(each.get("gpu"))))
            known.append(each["identity"])
    for library in libraries(extra):
        stem = Path(library).name.removeprefix("lib").partition(".so")[0]
        count = 0
        for each in asked(library):
            new = "problem" not in each and each["device"].startswith("opencl") and each["identity"] not in known
            if not new:
                continue
            known.append(each["identity"])
            found.append(Place(f"opencl:{count}@{stem}", each["device"], library, bool(each.get("gpu"))))
            count += 1
    return found


def chosen(text: str, extra: Sequence[Path] = ()) -> list[Place]:
    """The places of `all`, of `gpus`, or of names with commas between. ArgumentError for one that is not there."""
    everything = present(extra)
    if text == "all":
        return everything
    if text == "gpus":
        found = [place for place in everything if place.gpu]
        if not found:
            there = ", ".join(place.name for place in everything) or "no devices at all"
            raise ArgumentError(f"bench: --device gpus finds no GPU; there are {there} (--device all takes these)")
        return found
    by_name = {place.name: place for place in everything}
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
    options: argparse.Namespace, places: Sequence[Place], before: Report | None, keep: Callable[[Report], None]
) -> tuple[Report, bool]:
    """All places: processors by turns, then GPUs by turns; the report and whether it was interrupted. keep: called with
    what there is, after every row.

    A process that ends badly costs the rest of its device's rows, and its report has a row that says so.
    """
    end = None if not options.time else time.monotonic() + seconds_of(options.time)
    found = {place.name: old for place in places if (old := part_of(before, place.name)) is not None}
    interrupted = False
    kinds = [some for gpu in (False, True) if (some := [place for place in places if place.gpu == gpu])]
    for i, some in enumerate(kinds):
        share = None if end is None else (end - time.monotonic()) * len(some) / sum(map(len, kinds[i:]))
        if share is not None and share <= 0:
            print(f"time is up: not measured: {', '.join(place.name for place in some)}", file=sys.stderr)
            continue
        rows = _Rows(places, found, keep)
        statuses, interrupted = _by_turns(options, some, share, rows)
        if interrupted:
            print("\ninterrupted: what was measured so far is kept", file=sys.stderr)
            break
        for place, status in zip(some, statuses, strict=True):
            if status < 0 or (status and place.name not in found):
                _note(found, place, status)
    if not found:
        raise ArgumentError("bench: no device was measured; what went wrong stands above")
    return merged([found[place.name] for place in places if place.name in found]), interrupted


class _Rows:
    """What processes write, each to a file. found: their reports, by place."""

    def __init__(self, places: Sequence[Place], found: dict[str, Report], keep: Callable[[Report], None]):
        self.found = found
        self._places, self._keep = places, keep
        self._files: dict[str, tuple[Path, int]] = {}

    def begin(self, place: Place, file: Path) -> None:
        """Give a process what there is already."""
        if place.name in self.found:
            file.write_text(json.dumps(self.found[place.name]), encoding="utf-8")
        self._files[place.name] = file, _written(file)

    def take(self) -> None:
        """Read what is new."""
        new = {name: file for name, (file, then) in self._files.items() if _written(file) != then}
        for name, file in new.items():
            self._files[name] = file, _written(file)
            self.found[name] = json.loads(file.read_text(encoding="utf-8"))
        if new:
            self._keep(merged([self.found[place.name] for place in self._places if place.name in self.found]))


def _written(file: Path) -> int:
    """When it was, in ns; 0 where there is no such file."""
    return file.stat().st_mtime_ns if file.exists() else 0


def _by_turns(
    options: argparse.Namespace, places: Sequence[Place], share: float | None, rows: _Rows
) -> tuple[list[int], bool]:
    """Run a process a place to its end: their exit statuses, and whether they were told to stop."""
    starts = []
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        for i, place in enumerate(places):
            file = Path(folder, f"{i}.json")
            rows.begin(place, file)
            environment = stack.enter_context(_environment(place.library))
            starts.append(partial(_start, options, place, file, share, environment))
        ended = rotate(starts, rows.take)
        rows.take()
        return ended


def _start(
    options: argparse.Namespace, place: Place, file: Path, share: float | None, environment: Mapping[str, str],
    ends: tuple[int, int],
) -> subprocess.Popen[bytes]:  # fmt: skip
    """One place's process, which writes its rows to `file` and takes turns by these two file descriptors."""
    command = [sys.executable, "-m", "weftgrad.bench", *_forwarded(options), "--device", place.device,
               "--label", place.name, "--part", str(file), "--turns", "{},{}".format(*ends)]  # fmt: skip
    command += ["--resume", str(file)] if file.exists() else []
    command += ["--time", f"{share:.3f}"] if share is not None else []
    command += [str(options.spec)] if options.spec else []
    # A group of its own: a terminal's Ctrl-C comes to this process alone, which passes it on.
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, process_group=0, pass_fds=ends)


def _forwarded(options: argparse.Namespace) -> list[str]:
    """The options that say what is measured, as a command line."""
    found = []
    for name in ("suite", "only", "ops", "dtypes", "shapes", "peers", "rounds", "cases", "scale"):
        value = getattr(options, name)
        if value not in (None, ""):
            found += [f"--{name}", str(value)]
    return found


def _note(parts: dict[str, Report], place: Place, status: int) -> None:
    """A row about a process that ended badly."""
    how = f"by {signal.Signals(-status).name}" if status < 0 else f"with status {status}"
    print(f"{place.name}: its process ended {how}", file=sys.stderr)
    if place.name in parts:
        parts[place.name]["kernels"].append({
            "group": "process", "name": "measured to the end", "bytes": 0, "flops": 0, "target": None, "notes": [],
            "errors": {}, "wrong": True, "problem": f"the device's process ended {how}", "clock": "wall",
        })  # fmt: skip


# Reports


def merged(parts: Sequence[Report]) -> Report:
    """One report of several, of a device each. Every row names its device; places of peers stand with the devices."""
    first = parts[0]
    machine = dict(first["machine"])
    machine["devices"] = [device | {"places": part["machine"].get("places", {})}
                          for part in parts for device in part["machine"]["devices"]]  # fmt: skip
    for part in parts[1:]:
        machine["versions"] = machine["versions"] | {n: v for n, v in part["machine"]["versions"].items() if v}
    found = {key: value for key, value in first.items() if key not in ("machine", "host", "kernels")}
    found["machine"] = machine
    for rows in ("host", "kernels"):
        found[rows] = [{"device": str(part["machine"]["devices"][0]["device"])} | row
                       for part in parts for row in part[rows]]  # fmt: skip
    for extra in ("curves", "timelines"):
        if any(extra in part for part in parts):
            found[extra] = [each for part in parts for each in part.get(extra, ())]
    return found


def part_of(report: Report | None, name: str) -> Report | None:
    """A device's part of a report, as its process wrote it; None where there is none."""
    if report is None:
        return None
    devices = [each for each in report["machine"]["devices"] if each["device"] == name]
    if not devices:
        return None
    (device,) = devices
    machine = report["machine"] | {"devices": [{k: v for k, v in device.items() if k != "places"}]}
    machine["places"] = device.get("places", machine.get("places", {}))
    found = report | {"machine": machine}
    for rows in ("host", "kernels"):
        found[rows] = [row for row in report[rows] if row.get("device", name) == name and row.get("group") != "process"]
    for extra in ("curves", "timelines"):
        found.pop(extra, None)
    return found
