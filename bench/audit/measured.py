"""The time of a call on a GPU, if this machine has one that is described."""

from __future__ import annotations

from functools import cache

import weftgrad as wg

from ...runtime.device import Device
from ...runtime.errors import DeviceError
from ..measure import compare
from ..sites import OurSite
from .cases import Case
from .machines import MACHINES, Machine
from .operands import Operands

__all__ = ["present_machine", "seconds"]


@cache
def _site() -> OurSite | None:
    """Return the first CUDA device as a site; None if there is none."""
    if not wg.cuda.is_available():
        return None
    return OurSite(wg.device("cuda:0"))


@cache
def present_machine() -> Machine | None:
    """Return the description of this machine's first GPU; None if there is no GPU, or it is not described."""
    site = _site()
    if site is None:
        return None
    name = site.device.driver.name
    return next((machine for machine in MACHINES.values() if machine.name in name), None)


def seconds(case: Case) -> float:
    """Return the least time of a case's call on the first GPU, by events before and after it.

    The call's results and operands stay in memory, so a GPU with little memory may refuse large cases.

    Raises:
        DeviceError: There is no GPU.
        WeftgradError: The call fails.
    """
    site = _site()
    if site is None:
        raise DeviceError(f"audit: {case.name} cannot be measured: this machine has no GPU with CUDA")
    device: Device = site.device
    precision = wg.get_float32_matmul_precision()
    wg.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    try:
        call = case.prepare(Operands(device, case.dtype, has_values=True))
        timing = compare({"call": (call, site.clock("device"))}, rounds=3)["call"]
    finally:
        wg.set_float32_matmul_precision(precision)
        site.release()
    return timing.least
