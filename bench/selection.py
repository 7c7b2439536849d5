"""Select the cases of a run by its options, in the order in which they are measured."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from itertools import zip_longest

from ..runtime.errors import WeftgradError
from . import babelstream, core, gpu, library, limits, sweep, train, tritonbench
from .cases import Case
from .models import suite as models
from .sites import OurSite, Site, is_gpu

__all__ = ["NothingMeasured", "check_obstacles", "select_cases", "select_host_cases", "selects_first_result"]

_SUITES_WITH_ROOFS = ("core", "ops", "specs", "tritonbench")  # suites whose rows get a share of the roofline
_MAX_LISTED_GROUPS = 12  # in an error


class NothingMeasured(WeftgradError):
    """The options leave no row to measure, or no time for one."""


def select_cases(options: argparse.Namespace, contenders: Sequence[Site]) -> list[Case]:
    """Return the cases that the options select, in the order in which they are measured.

    Raises:
        NothingMeasured: `--only` or `--dtypes` leave no row, and there are no other processes that may have one; or no
            row can be measured.
    """
    our_sites = [site for site in contenders if isinstance(site, OurSite)]
    has_gpu = any(site.device.type == "interpreter" or is_gpu(site.device) for site in our_sites)
    on_gpu = options.cases == "gpu" or (has_gpu and not options.cases)
    dtypes = sweep.dtypes_of(options.dtypes) if options.dtypes else None
    all_cases: list[Case]
    if options.suite == "specs":
        all_cases = list(sweep.cases(options))
    elif options.suite == "core":
        all_cases = list(gpu.cases(options.scale) if on_gpu else core.cases())
    elif options.suite == "models":
        all_cases = list(models.cases(on_gpu and options.scale == 1))
    elif options.suite == babelstream.SUITE:
        all_cases = list(babelstream.cases(contenders, options.scale))
    elif options.suite == tritonbench.SUITE:
        all_cases = list(tritonbench.cases(on_gpu, options.scale))
    elif options.suite == "device":
        all_cases = list(limits.cases(on_gpu, options.scale))
    else:
        all_cases = list((library if options.suite == "ops" else train).cases())
    cases = [c for c in all_cases
             if c.matches(options.only) and (dtypes is None or c.obstacle or c.element in dtypes)]  # fmt: skip
    check_obstacles(cases)
    if not cases and not options.part and not _selects_host_rows(options, contenders):
        raise NothingMeasured(_no_rows_text(options, all_cases))
    # Reference rows: copies, if a target is a share of a copy; roofline rows, unless --only selects single rows.
    copies = [c for c in all_cases if c.group == "roofline"] if any("copy" in (c.target or {}) for c in cases) else []
    roofs = (
        list(limits.roofs(on_gpu, options.scale)) if options.suite in _SUITES_WITH_ROOFS and not options.only else []
    )
    # On a GPU last: profiling events slow OpenCL launches from then on, and some rows depend on launch latency.
    groups_first = _interleave_groups if options.time else list
    ordered = [*copies, *groups_first(cases), *roofs] if on_gpu else groups_first([*copies, *roofs, *cases])
    return list({(case.group, case.name): case for case in reversed(ordered)}.values())[::-1]


def check_obstacles(cases: Sequence[Case]) -> None:
    """Raise NothingMeasured if there are cases, and none of them can be measured on any device."""
    if cases and all(case.obstacle for case in cases):
        reasons = "; ".join(f"{case.name}: {case.obstacle}" for case in cases)
        raise NothingMeasured(f"bench: no op can be measured: {reasons}")


def _no_rows_text(options: argparse.Namespace, all_cases: Sequence[Case]) -> str:
    """Return why no row is selected, and what can be."""
    reasons = [f"has {options.only!r} in its group or name (--only)"] if options.only else []
    reasons += [f"is of dtype {options.dtypes} (--dtypes)"] if options.dtypes else []
    groups = list(dict.fromkeys(case.group for case in all_cases))
    listed = ", ".join(groups[:_MAX_LISTED_GROUPS]) + (", …" if len(groups) > _MAX_LISTED_GROUPS else "")
    example = f', a row "{all_cases[0].name}"' if all_cases else ""
    return (
        f"bench: no row of the suite {options.suite} {' and '.join(reasons) or 'runs on this device'}: its groups are "
        f"{listed or 'none'}{example}; name one of them, or another suite by --suite"
    )


def select_host_cases(options: argparse.Namespace, contenders: Sequence[Site]) -> list[core.HostCase]:
    """Return the cases of host costs that the options select. The first result of a process is none of them."""
    if options.suite != "core":
        return []
    return [case for case in core.host_cases(contenders[0].gpu) if options.only in f"host {case.name}"]


def selects_first_result(options: argparse.Namespace) -> bool:
    """Return True if the options select the row of a process's first result, which is one of host costs, too."""
    return options.suite == "core" and options.only in "host first result" and options.scale == 1


def _selects_host_rows(options: argparse.Namespace, contenders: Sequence[Site]) -> bool:
    return bool(select_host_cases(options, contenders)) or selects_first_result(options)


def _interleave_groups(cases: Sequence[Case]) -> list[Case]:
    """Interleave the groups, so that a run that is cut short has rows of every group."""
    groups: dict[str, list[Case]] = {}
    for case in cases:
        groups.setdefault(case.group, []).append(case)
    return [case for layer in zip_longest(*groups.values()) for case in layer if case is not None]
