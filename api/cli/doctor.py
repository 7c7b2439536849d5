"""`weftgrad doctor`: check the installation, and print what works and how to repair what does not.

Every line has a verdict: `ok`, `note` (works, but could be better) or `problem`. The last line counts notes and
problems. The checks are in the modules `doctor_*`. Those that could crash or hang run in child processes (`probes`).
An exception in a check is printed as a `problem` line. So that this covers a failing import too, the checks import the
modules that they test inside their functions.

Exit status: 0 if a kernel ran on `cpu` and there is no problem, else 1.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys

from .. import __version__
from .doctor_drivers import check_gpu, check_opencl, check_triton
from .doctor_host import check_cache, check_processor, check_settings
from .doctor_kernels import check_compilers, check_cpu, cpu_runs
from .doctor_packages import check_native, check_packages
from .findings import NOTE, OK, PROBLEM, Finding, as_json, as_text, run_check
from .probes import ProbeResult, run_probe
from .terminal import Style

__all__ = ["add_options", "examine"]


def add_options(command: argparse.ArgumentParser) -> None:
    """Add the command's description and options to its parser."""
    command.description = (
        "Checks processor, compilers, drivers, caches and packages, and runs a kernel on cpu. The exit status is 0 "
        "if the kernel ran and there is no problem, else 1."
    )
    command.add_argument("--json", action="store_true", help="print JSON")
    command.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Run and print every check. Return 1 if there is a problem or `cpu` runs no kernel."""
    if hasattr(sys.stdout, "reconfigure"):
        sys.stdout.reconfigure(errors="backslashreplace")  # device names may have characters that the terminal lacks
    findings, probe = examine()
    counts = {verdict: sum(finding.verdict == verdict for finding in findings) for verdict in (OK, NOTE, PROBLEM)}
    is_healthy = cpu_runs(probe) and not counts[PROBLEM]
    if options.json:
        report = {
            "version": __version__,
            "python": platform.python_version(),
            "platform": platform.platform(),
            "is_healthy": is_healthy,
            "cpu_runs": cpu_runs(probe),
            "executor": probe.get("executor"),
            "counts": counts,
            "findings": as_json(findings),
        }
        print(json.dumps(report, indent=1))
    else:
        style = Style()
        print(f"weftgrad {__version__}, Python {platform.python_version()}, {platform.platform()}")
        print(as_text(findings, style))
        print()
        print(_summary(counts, probe, style))
    return 0 if is_healthy else 1


def examine() -> tuple[list[Finding], ProbeResult]:
    """Run every check. Return the findings in the order of the report, and what the probe `kernel` printed."""
    # This probe measures how soon a new program has its first result, so no other check may run at the same time.
    probe = run_probe("kernel")
    findings = [
        *run_check("processor", check_processor),
        *run_check("calls of ops", check_native),
        *run_check("cache", check_cache),
        *run_check("compilers for cpu", check_compilers),
        *run_check("cpu", check_cpu, probe),
        *run_check("OpenCL", check_opencl),
        *run_check("GPU", check_gpu),
        *run_check("GPU", check_triton),
        *run_check("packages", check_packages),
    ]
    # Findings about an OpenCL or CUDA device have its name, such as `opencl:0`, in the fact `listed`.
    devices = [str(finding.facts["listed"]) for finding in findings if "listed" in finding.facts]
    findings += run_check("settings", check_settings, devices)
    return findings, probe


def _summary(counts: dict[str, int], probe: ProbeResult, style: Style) -> str:
    """Return the last line of the report: whether `cpu` runs kernels, and how many problems and notes there are."""
    problems, notes = counts[PROBLEM], counts[NOTE]
    state = f"cpu runs kernels by {probe.text('executor')}" if cpu_runs(probe) else "cpu runs no kernels"
    kind = "bad" if problems or not cpu_runs(probe) else "warning" if notes else "good"
    return style(kind, f"{state}; {_count(problems, 'problem')}, {_count(notes, 'note')}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
