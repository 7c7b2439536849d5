"""Measure each device in its own process, and let the processes alternate (`alternation`).

A process loads no OpenCL driver but that of its device (`device_listing` says why). It writes its rows to a file after
each of them; the controlling process merges the files of all (`merging`).
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ..runtime.errors import ArgumentError
from .alternation import rotate
from .device_listing import BenchDevice, loader_environment
from .merging import device_report, merge_reports
from .time_budget import parse_seconds

if TYPE_CHECKING:
    from .report_types import Report

__all__ = ["measure"]


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
            environment = stack.enter_context(loader_environment(device.library))
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
