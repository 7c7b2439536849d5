"""`weftgrad bench --figures DIR`: figures 1 and 2 of the PyTorch paper, drawn from our own training steps.

The paper is A. Paszke et al., "PyTorch: an imperative style, high-performance deep learning library" (NeurIPS 2019).
Its figure 1 shows how the host queues the operators of a ResNet-50 step ahead of the device (sections 5.2 and 6.1), its
figure 2 how the caching allocator shortens all iterations but the first (sections 5.3 and 6.2). Read `figure_traces`
next, which measures, then `uncached_pool`, then `figure_plots`, which draws.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import weftgrad as wg

from ..runtime.errors import ArgumentError
from . import outputs
from .cases import Case
from .figure_traces import (
    CACHED,
    UNCACHED,
    CachingRun,
    StepTrace,
    caching_runs,
    record_caching,
    record_step,
    step_traces,
)
from .sites import OurSite

if TYPE_CHECKING:
    from .report_types import Report

__all__ = ["caching_words", "measure", "run", "trace_words"]

_MODEL = "ResNet-50"


def run(options: argparse.Namespace) -> int:
    """Measure, print and draw the figures for each device of `--device`. Return exit status 0."""
    for name in ("output", "markdown", "timeline", "compare", "resume"):
        if getattr(options, name):
            raise ArgumentError(f"bench: --figures writes reports to its own folder: leave --{name} away")
    if options.device in ("all", "gpus"):
        raise ArgumentError(f"bench: --figures: name devices such as cpu,opencl:0, not {options.device}")
    outputs.check(options)
    names = dict.fromkeys(str(wg.device(name)) for name in (options.device or str(wg.device())).split(","))
    sites = [OurSite(name) for name in names]
    cases = [_case(options, site.gpu if options.cases is None else options.cases == "gpu") for site in sites]
    reports = [measure(case, site) for case, site in zip(cases, sites, strict=True)]
    print(*(f"written to {path}" for path in [*_write(options.figures, reports), *outputs.write(options, reports)]),
          sep="\n")  # fmt: skip
    return 0


def _case(options: argparse.Namespace, on_gpu: bool) -> Case:
    """Return the training step of ResNet-50, or the first one that `--only` selects, at the size for the device."""
    from .models.suite import cases  # lazy: start-up of the command line

    selected = options.only or _MODEL
    case = next((case for case in cases(on_gpu) if case.matches(selected)), None)
    if case is None:
        raise ArgumentError(f"bench: --figures: no model has {selected!r} in its name")
    return case


def measure(case: Case, site: OurSite) -> Report:
    """Measure a training step on a device, print the figures in words, and return a report with the traces.

    Args:
        case: The training step.
        site: The device.
    """
    # lazy: start-up of the command line
    from .machine import describe
    from .rows import FORMAT

    report: Report = {
        "format": FORMAT, "suite": "models", "machine": describe([site]), "host": [], "kernels": [],
    }  # fmt: skip
    print(f"{case.name} on {site.name}", flush=True)
    report["step_traces"] = [record_step(case, site)]
    print(*trace_words(*step_traces(report)), sep="\n", flush=True)
    report["caching_runs"] = [record_caching(case, site)]
    print(*caching_words(*caching_runs(report)), sep="\n", flush=True)
    return report


def _write(folder: Path, reports: Sequence[Report]) -> list[Path]:
    """Write each report as JSON and its pictures as PNG and SVG into a folder, and return the paths."""
    # lazy: start-up of the command line
    from . import plots
    from .report_files import as_bytes

    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for report in reports:
        trace = report["step_traces"][0]
        path = folder / (plots.file_stem(f"traces {trace['name']} {trace['device']}") + ".json")
        path.write_bytes(as_bytes(report, path))
        paths.append(path)
    return paths + plots.write([], folder, reports)


def trace_words(trace: StepTrace) -> Iterator[str]:
    """Yield the first figure's numbers as sentences."""
    phases = ", ".join(f"{name} {_ms(end - begin)}" for name, (begin, end) in trace.phase_spans().items())
    host, total = trace.unprofiled
    yield (
        f"  the host takes {_ms(trace.host_end)} for the step ({phases}), the device is done after "
        f"{_ms(trace.device_end)}; its {len(trace.kernels)} kernels take {_ms(trace.busy)}, "
        f"{trace.busy / trace.device_end:.0%} of the step"
    )
    yield f"  without a profiler, the host takes {_ms(host)}, and the device is done after {_ms(total)}"
    if trace.is_synchronous:
        yield f"  {trace.device} is synchronous: the host computes the kernels itself and is not ahead"
    else:
        yield f"  the host is at most {_ms(trace.max_lead)} and {trace.max_queue} kernels ahead of the device"


def caching_words(run: CachingRun) -> Iterator[str]:
    """Yield the second figure's numbers as sentences."""
    for mode, label in ((CACHED, "with the caching allocator"), (UNCACHED, "without a cache")):
        first, *later = run.shortest(mode)
        yield (
            f"  {label}: the first iteration takes {_ms(first.total * 1e3)} with {first.allocations} driver allocations"
            f", later ones {_ms(median(i.total for i in later) * 1e3)} with {median(i.allocations for i in later):.0f}"
            f" (memory calls of the driver and waits: {_ms(median(i.driver for i in later) * 1e3)})"
        )


def _ms(microseconds: float) -> str:
    return f"{microseconds * 1e-3:.3g} ms" if microseconds < 1e5 else f"{microseconds * 1e-3:.0f} ms"
