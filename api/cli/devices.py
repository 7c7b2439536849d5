"""`weftgrad devices`: list the devices present, their capabilities, the compiler of `cpu`, and the C call path."""

from __future__ import annotations

import argparse

from ..runtime.backends import available
from ..runtime.backends.cpu import CpuDriver
from ..runtime.device import default_device
from ..runtime.device import device as to_device
from ..runtime.errors import DeviceError, WeftgradError, format_bytes
from ..runtime.memory_stats import host_memory
from .doctor_packages import native_state
from .terminal import Style, table

__all__ = ["add_options"]


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print one line per device with the default marked, then the compiler of `cpu` and the call path of ops."""
    style = Style()
    default = default_device()
    rows, marks = [], []
    devices = available()
    for device in devices if default in devices else [*devices, default]:
        mark = "*" if device is default else ""
        try:
            caps = device.driver.capabilities
        except DeviceError as error:
            rows.append([f"{device}{mark}", str(error).partition("\n")[0], "", "", "", ""])
            marks.append(["", "bad", "", "", "", ""])
            continue
        types = "float32" + ", float64" * caps.fp64 + ", float16" * caps.fp16
        num_bytes = caps.memory or (host_memory() if device.type == "cpu" else 0)
        memory = format_bytes(num_bytes) if num_bytes else ""
        rows.append([f"{device}{mark}", device.driver.name, caps.style, str(caps.cores), memory, types])
        marks.append([""] * 6)
    print(table(rows, ("device", "name", "schedules", "cores", "memory", "computes in"), style, marks))
    print(style("comment", "* the default; WEFTGRAD_DEVICE or set_default_device() chooses another"))
    print(_executor_line(style))
    print(_native_line(style))
    return 0


def _executor_line(style: Style) -> str:
    """Return a line that names the compiler or OpenCL driver of `cpu`."""
    driver = to_device("cpu").driver
    if not isinstance(driver, CpuDriver):  # a test or a user registered another backend for `cpu`
        return style("comment", f"cpu: {driver.name}")
    try:
        driver.require()
    except (WeftgradError, OSError) as error:
        return style("bad", f"cpu: {error}")
    return style("comment", f"cpu: kernels by {driver.require().name}")


def _native_line(style: Style) -> str:
    """Return a line that says whether ops are called through the C extension, with the remedy if not."""
    is_present, reason, remedy = native_state()
    if is_present:
        return style("comment", "ops are called through C")
    return style("warning", f"ops are called through Python, not C ({reason}); remedy: {remedy}")
