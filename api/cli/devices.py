"""`weftgrad devices`: the devices present, their capabilities, the compiler of `cpu`, and whether ops go by C."""

from __future__ import annotations

import argparse
from typing import Any

from .doctor_packages import native_state
from .terminal import Style, table

__all__ = ["register"]


def register(subparsers: Any) -> None:
    """Add the command."""
    made = subparsers.add_parser("devices", help="list the devices present")
    made.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line for each device, the default one marked, then the compiler of `cpu` and the path of ops."""
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
    print(_road_line(style))
    print(_native_line(style))
    return 0


def _road_line(style: Style) -> str:
    """Return a line that names the compiler or the driver that kernels of `cpu` go to."""
    from ..runtime.device import device
    from ..runtime.errors import WeftgradError

    driver: Any = device("cpu").driver
    try:
        driver.require()
    except (WeftgradError, OSError) as error:
        return style("bad", f"cpu: {error}")
    return style("comment", f"cpu: kernels by {driver.road.name}")


def _native_line(style: Style) -> str:
    """Return a line that says whether calls of ops go by C, with the remedy if not."""
    is_present, reason, remedy = native_state()
    if is_present:
        return style("comment", "ops go by C")
    return style("warning", f"ops go by Python, not by C ({reason}); remedy: {remedy}")
