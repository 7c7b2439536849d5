"""Audit cases on machines: plan, compile, estimate and compare with the bars, in several processes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache

import weftgrad as wg

from ...cli.compile import planning_device
from ...cli.workers import map_in_processes
from ...runtime.device import Device
from ...runtime.errors import WeftgradError
from ...runtime.tensor import Tensor
from . import bars, gpu_timing
from .capture import Launch, capture, footprint
from .case import Case
from .cases import cases
from .estimate import CallFigures, call_figures
from .machines import MACHINES, Machine
from .operands import Operands

__all__ = ["Row", "audit", "capture_case", "matching_cases"]


@dataclass(frozen=True, slots=True)
class Row:
    """One case on one machine.

    figures: None if the case could not be planned or compiled, for the reason `error`. missed: the bars that it misses.
    error: Also why a call on a GPU that is present was not measured, or why its measured time is doubtful.
    """

    case: str
    group: str
    machine: str
    figures: CallFigures | None
    missed: tuple[str, ...] = ()
    error: str = ""


@cache
def _cases_by_name() -> dict[str, Case]:
    return {case.name: case for case in cases()}


def matching_cases(patterns: Sequence[str]) -> list[str]:
    """Return the names of the cases whose group or name contains one of `patterns`; all names without patterns."""
    return [
        name
        for name, case in _cases_by_name().items()
        if not patterns or any(pattern in f"{case.group} {name}" for pattern in patterns)
    ]


def audit(
    names: Sequence[str], machines: Sequence[Machine], jobs: int = 1, times: gpu_timing.Times | None = None
) -> Iterable[Row]:
    """Yield a row for each case and machine, case by case.

    This process measures, so that calls never share the GPU. It reads the kernels from Triton's cache, where the
    process that compiled them left them.

    Args:
        names: Of cases.
        machines: The GPUs.
        jobs: Processes that compile.
        times: What an earlier audit measured, by case and machine; None to measure on the GPU that is present.
    """
    work = [(name, machine.name) for name in names for machine in machines]
    rows = map(_audit_case, work) if jobs <= 1 else map_in_processes(_audit_case, work, jobs, 1)
    present = gpu_timing.present_machine() if times is None else None
    for row in rows:
        if row.figures is not None and times is not None and (row.case, row.machine) in times:
            ours, peer = times[row.case, row.machine]
            row = replace(row, figures=replace(row.figures, measured=ours, peer=peer))
        yield row if present is None or row.machine != present.name else _with_measured_time(row)


def _with_measured_time(row: Row) -> Row:
    if row.figures is None:
        return row
    try:
        ours, peer = gpu_timing.time_case(_cases_by_name()[row.case])
    except WeftgradError as error:
        return replace(row, error=f"not measured: {error}")
    late_samples = [
        f"{name} late in {timing.late} of {timing.samples}"
        for name, timing in (("host", ours), ("torch's host", peer))
        if timing is not None and timing.late
    ]
    figures = replace(row.figures, measured=ours.least, peer=peer.least if peer is not None else None)
    return replace(row, figures=figures, error="; ".join(late_samples))


def _audit_case(work: tuple[str, str]) -> Row:
    case, machine = _cases_by_name()[work[0]], MACHINES[work[1]]
    try:
        launches, results = capture_case(case, machine)
        figures = call_figures(launches, results, case.flops, case.precision, machine)
    except WeftgradError as error:
        return Row(case.name, case.group, machine.name, None, ("fails",), str(error))
    return Row(case.name, case.group, machine.name, figures, bars.missed(case.name, figures))


def capture_case(case: Case, machine: Machine) -> tuple[list[Launch], list[tuple[int, int]]]:
    """Return the launches that a case plans on a machine, and key and bytes of each result."""
    device = _planning_device(machine.target)
    precision = wg.get_float32_matmul_precision()
    wg.set_float32_matmul_precision("high" if case.precision == "tf32" else "highest")
    try:
        launches, result = capture(device, lambda: case.prepare(Operands(device, getattr(wg, case.dtype))))
    finally:
        wg.set_float32_matmul_precision(precision)
    return launches, [(id(t.storage), footprint(t)) for t in _tensors(result)]


@cache
def _planning_device(target: str) -> Device:
    return planning_device(target)


def _tensors(result: object) -> list[Tensor]:
    """Return the tensors of a call's result, including those in nested lists and tuples."""
    if isinstance(result, Tensor):
        return [result]
    return [t for item in result for t in _tensors(item)] if isinstance(result, list | tuple) else []
