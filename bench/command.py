"""`weftgrad bench`: runs a suite, prints a table, keeps JSON."""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

__all__ = ["register", "run"]


def register(subparsers: Any) -> None:
    """Add `bench` to the command line."""
    parser = subparsers.add_parser("bench", help="measure this device beside its peers")
    parser.add_argument("--suite", default="core", choices=("core",), help="what to measure")
    parser.add_argument("--device", default="cpu", help="the device to measure (default: cpu)")
    parser.add_argument("--only", default="", help="only groups or rows whose name contains this")
    parser.add_argument("--output", type=Path, help="a JSON file to write")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of interleaved samples (default: 5)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Measure, print, and write JSON. Exit status 1 if a result is wrong; a slow one is only marked."""
    report: dict[str, Any] = {"machine": machine(options.device), "host": [], "kernels": []}
    wrong = 0
    try:
        _host(options, report)
        wrong = _kernels(options, report)
    except KeyboardInterrupt:
        print("interrupted: what was measured so far is kept", file=sys.stderr)
    if options.output:
        options.output.parent.mkdir(parents=True, exist_ok=True)
        options.output.write_text(json.dumps(report, indent=1) + "\n")
        print(f"written to {options.output}")
    return 1 if wrong else 0


def machine(device: str) -> dict[str, Any]:
    """What was measured, and with what."""
    import numpy as np

    import weftgrad as wg

    from .core import torch_or_none

    driver = wg.device(device).driver
    driver.capabilities  # noqa: B018  (opens the driver, so that its name is known)
    torch = torch_or_none()
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"), "device": device,
        "name": driver.name, "cores": os.cpu_count(), "python": platform.python_version(),
        "weftgrad": wg.__version__, "numpy": np.__version__, "torch": None if torch is None else torch.__version__,
    }  # fmt: skip


def _host(options: argparse.Namespace, report: dict[str, Any]) -> None:
    import weftgrad as wg

    from . import core
    from .measure import host_cost

    driver = wg.device(options.device).driver
    print(f"{report['machine']['name']} ({options.device}), torch {report['machine']['torch']}\n")
    print(f"{'host cost, pipelined':28s} {'min us':>8s} {'median':>8s} {'target':>12s}")
    for name, function, calls, least, middle in core.host_cases(options.device):
        if options.only not in f"host {name}":
            continue
        timing = host_cost(function, driver.synchronize, calls=calls)
        met = timing.least * 1e6 <= least and timing.median * 1e6 <= middle
        print(
            f"{name:28s} {timing.least * 1e6:8.2f} {timing.median * 1e6:8.2f} {least:5.0f} / {middle:<4.0f} "
            f"{'' if met else 'x'}"
        )
        report["host"].append({"name": name, **asdict(timing), "target_us": [least, middle], "met": met})
    if options.only in "host first result":
        seconds = core.first_result()
        print(f"{'first result, warm process':28s} {seconds:8.2f} s {'1 s':>14s}")
        report["host"].append({"name": "first result", "least": seconds, "target_us": [1e6, 1e6], "met": seconds <= 1})


def _kernels(options: argparse.Namespace, report: dict[str, Any]) -> int:
    import numpy as np

    from . import core
    from .measure import compare

    print(f"\n{'kernel':28s} {'us':>10s} {'GB/s':>7s} {'GFLOP/s':>8s}   peer/ours by minima (medians); above 1 we win")
    wrong = 0
    for case in core.device_cases(options.device):
        if options.only not in f"{case.group} {case.name}":
            continue
        expected = np.asarray(case.expected())
        error = 0.0
        if expected.size or case.result().size == 0:
            scale = float(np.abs(expected).max()) or 1.0
            error = float(np.abs(case.result() - expected).max()) / scale
        if not error <= case.tolerance:
            wrong += 1
            print(f"{case.name:28s} WRONG: relative error {error:.1e}")
            report["kernels"].append({"group": case.group, "name": case.name, "error": error, "wrong": True})
            continue
        times = compare(case.contenders, rounds=options.rounds)
        mine = times["ours"]
        ratios = {p: (t.least / mine.least, t.median / mine.median) for p, t in times.items() if p != "ours"}
        missed = [p for p, goal in (case.target or {}).items() if p in ratios and ratios[p][0] < goal]
        shown = "  ".join(f"{p} {a:.2f} ({b:.2f})" for p, (a, b) in ratios.items())
        rate = f"{case.bytes / mine.least * 1e-9:7.1f}" if case.bytes else " " * 7
        flops = f"{case.flops / mine.least * 1e-9:8.1f}" if case.flops else " " * 8
        print(
            f"{case.name:28s} {mine.least * 1e6:10.1f} {rate} {flops}   {shown}"
            f"{'   x ' + ', '.join(missed) if missed else ''}",
            flush=True,
        )
        report["kernels"].append(
            {"group": case.group, "name": case.name, "error": error, "times": {p: asdict(t) for p, t in times.items()},
             "ratios": ratios, "target": case.target, "missed": missed}
        )  # fmt: skip
    return wrong
