"""`weftgrad devices`: what there is to run on, and what schedules are chosen by."""

from __future__ import annotations

import argparse
from typing import Any

from .terminal import Style, table

__all__ = ["register"]


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser("devices", help="list the devices present")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line a device; the default one is marked."""
    from ..runtime.backends import available
    from ..runtime.device import default_device
    from ..runtime.errors import DeviceError, format_bytes

    style = Style()
    default = default_device()
    rows, marks = [], []
    present = available()
    for device in present if default in present else [*present, default]:
        mark = "*" if device is default else ""
        try:
            able = device.driver.capabilities
        except DeviceError as error:
            rows.append([f"{device}{mark}", str(error).partition("\n")[0], "", "", "", ""])
            marks.append(["", "bad", "", "", "", ""])
            continue
        types = "float32" + ", float64" * able.fp64 + ", float16" * able.fp16
        memory = format_bytes(able.memory) if able.memory else ""
        rows.append([f"{device}{mark}", device.driver.name, able.style, str(able.cores), memory, types])
        marks.append([""] * 6)
    print(table(rows, ("device", "name", "schedules", "cores", "memory", "computes in"), style, marks))
    print(style("comment", "* the default; WEFTGRAD_DEVICE or set_default_device() chooses another"))
    return 0
