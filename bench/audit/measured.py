"""The time of a call on a GPU, if this machine has one that is described."""

from __future__ import annotations

from functools import cache

import weftgrad as wg

from ...runtime.device import Device
from ...runtime.errors import WeftgradError
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


def seconds(case: Case, machine: Machine) -> float | None:
    """Return the least time of a case's call on the GPU, by events before and after it; None if it is another GPU.

    The call's results and operands stay in memory, so a GPU with little memory may refuse large cases.
    """
    site = _site()
    if site is None or present_machine() != machine:
        return None
    device: Device = site.device
    precision = wg.get_float32_matmul_precision()
    wg.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    try:
        call = case.prepare(Operands(device, case.dtype, has_values=True))
        timing = compare({"call": (call, site.clock("device"))}, rounds=3)["call"]
    except WeftgradError:
        return None
    finally:
        wg.set_float32_matmul_precision(precision)
        site.release()
    return timing.least
