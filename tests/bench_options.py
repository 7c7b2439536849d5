"""Options of `weftgrad bench`, a run with them, and rows and reports for tests of benchmarks."""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np

from weftgrad.bench import (
    command,
)
from weftgrad.bench.cases import Case, Work

__all__ = ["make_report", "options", "row", "run"]


def options(*arguments: str) -> argparse.Namespace:
    return command.options(argparse.ArgumentParser()).parse_args(arguments)


def run(*arguments: str) -> int:
    args = options(*arguments)
    return int(args.run(args))


def row(name: str, **facts: Any) -> Case:
    """Return a row that does nothing and has right values."""
    return Case("g", name, lambda site: Work(lambda: None, lambda: [(np.ones(2), np.ones(2))]), **facts)


def make_report(device: str, least: float, *names: str) -> dict[str, Any]:
    """Return the report of one process: rows of one device and of numpy."""
    times = {n: {"least": t, "median": t, "p20": t, "p80": t, "samples": 3, "late": 0, "host": t}
             for n, t in ((device, least), ("numpy", 4e-3))}  # fmt: skip
    rows = [
        {
            "group": "sum",
            "name": n,
            "bytes": 8,
            "flops": 0,
            "target": None,
            "errors": {},
            "notes": [],
            "missed": [],
            "clock": "wall",
            "least": least,
            "times": times,
            "ratios": {"numpy": [4e-3 / least] * 2},
        }
        for n in names
    ]
    machine = {"date": "2026-01-02T03:04:05", "devices": [{"device": device, "name": "Cores", "kind": "CPU"}],
               "torch": None, "places": {"numpy": "cpu"}, "cores": 2, "system": "L", "python": "3.12", "driver": None,
               "versions": {"weftgrad": "0.1.0", "numpy": "2.4", "torch": None}}  # fmt: skip
    return {"suite": "core", "machine": machine, "host": [], "kernels": rows}
