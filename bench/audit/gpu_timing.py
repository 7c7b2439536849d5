"""The time of a call on a GPU, if this machine has one that is described, and of the same call of PyTorch beside it."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import weftgrad as wg

from ...runtime.errors import ArgumentError, DeviceError
from ..library_source import execute_source
from ..measure import Timing, compare
from ..sites import OurSite, Site
from . import case as case_module
from . import cases
from .case import Case
from .machines import MACHINES, Machine
from .operands import Operands

if TYPE_CHECKING:
    from ...runtime.device import Device

__all__ = ["Times", "present_machine", "read", "time_case"]

Times = Mapping[tuple[str, str], tuple[float, float | None]]  # ours and PyTorch's, by case and machine


def read(path: Path) -> Times:
    """Return the measured times of a file that `weftgrad audit --output FILE.json` wrote on a machine with a GPU.

    Raises:
        ArgumentError: The file cannot be read, or it has no measured times.
    """
    try:
        content = path.read_bytes()
        records = json.loads(gzip.decompress(content) if path.suffix == ".gz" else content)
        figures = {(r["case"], r["machine"]): r["figures"] for r in records if r["figures"]}
        times = {key: (f["measured"], f["peer"]) for key, f in figures.items() if f["measured"]}
    except (OSError, EOFError, ValueError, KeyError, TypeError) as error:
        raise ArgumentError(f"audit: {path} is not a file of an audit: {error}") from error
    if not times:
        raise ArgumentError(f"audit: {path} has no measured times")
    return times


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
    cores = site.device.driver.capabilities.cores  # fewer on the cards for PCIe
    return next((m for m in MACHINES.values() if re.search(rf"\b{m.name}\b", name) and m.cores == cores), None)


@cache
def _torch_site() -> Site | None:
    """Return PyTorch on the first GPU; None if it is not installed, or does not have the GPU."""
    site = _site()
    if site is None or find_spec("torch") is None:
        return None
    from ..peers.torch import site as torch_site  # lazy: optional dependency (torch)

    peer = torch_site([site], 1)
    return peer if peer.gpu == site.gpu else None


@cache
def _cases_of(library: ModuleType) -> dict[str, Case]:
    """Return the cases by name, rebuilt on another library."""
    program = execute_source(Path(cases.__file__), library, {"case": case_module}.__getitem__)
    return {case.name: case for case in program.cases()}


def time_case(case: Case) -> tuple[Timing, Timing | None]:
    """Return the times of a case's call on the first GPU, by events before and after it: ours, and PyTorch's.

    The calls alternate. Their results and operands stay in memory, so a GPU with little memory may refuse large cases.

    Returns:
        Ours, and PyTorch's, or None if it is not installed or its call fails.

    Raises:
        DeviceError: There is no GPU.
        WeftgradError: Our call fails.
    """
    site, peer = _site(), _torch_site()
    if site is None:
        raise DeviceError(f"audit: {case.name} cannot be measured: this machine has no GPU with CUDA")
    precision = "high" if case.precision == "tf32" else "highest"
    with ExitStack() as stack:
        sites: list[Site] = [site] if peer is None else [site, peer]
        for each in sites:
            stack.callback(each.release)
            stack.enter_context(each.precision(precision))
        contenders = {site.name: (case.prepare(_operands(site, case)), site.clock("device"))}
        if peer is not None:
            # It may need more memory, and another version of it may lack a function.
            with suppress(RuntimeError, AttributeError, TypeError, ValueError):
                call = _cases_of(peer.library)[case.name].prepare(_operands(peer, case))
                call()
                contenders[peer.name] = call, peer.clock("device")
        timings = compare(contenders, rounds=3)
    return timings[site.name], None if peer is None else timings.get(peer.name)


def _operands(site: Site, case: Case) -> Operands:
    library: Any = site.library
    return Operands(cast("Device", site.device), getattr(library, case.dtype), has_values=True, library=library)
